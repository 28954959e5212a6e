import subprocess
from pathlib import Path

import pytest

from rigor.launch import witness
from rigor.launch.board import Standing
from rigor.launch.sweep import Manifest, Submission
from rigor.tracking.rundir import RunDirectory


@pytest.fixture
def manifest():
    """Five runs: an array of two tasks, and a retry of the first run by itself."""
    entries = [Submission("x.0", "7", [[0, 1], [2, 3]]), Submission("x.1", "9", [[0]])]
    paths = [Path(f"run{number}") for number in range(5)]
    return Manifest(paths, {"name": "slurm"}, [[]] * 5, list("abcde"), entries)


def squeue(monkeypatch, *lines):
    """Let squeue answer with these lines: job, index, state and name."""

    def run(command, **options):
        assert command[0] == "squeue"
        return subprocess.CompletedProcess(command, 0, "".join(f"{line}\n" for line in lines))

    monkeypatch.setattr(witness.subprocess, "run", run)


def test_the_newest_task_of_a_run_counts(manifest, monkeypatch):
    squeue(monkeypatch, "7|0|RUNNING|x.0", "7|1|PENDING|x.0", "9|N/A|PENDING|x.1", "5|0|RUNNING|y")
    assert witness.queue(manifest) == {0: "PENDING", 1: "RUNNING", 2: "PENDING", 3: "PENDING"}
    manifest.submissions[1].job = None  # whoever submitted it died before SLURM answered
    assert witness.queue(manifest)[0] == "PENDING"
    squeue(monkeypatch)
    assert witness.queue(manifest) == {}


def test_what_is_submitted_while_somebody_looks_is_seen(manifest, monkeypatch, tmp_path):
    manifest.runs = [tmp_path / path for path in manifest.runs]
    for path in manifest.runs:
        path.mkdir()
        RunDirectory(path).write_status("queued")
    manifest.write(tmp_path)
    squeue(monkeypatch, "7|1|PENDING|x.0", "11|N/A|PENDING|x.2")
    read = witness.standings(tmp_path)
    assert [one.state for one in read()] == ["lost", "lost", "queued", "queued", "lost"]
    manifest.submissions.append(Submission("x.2", "11", [[4]]))
    manifest.write(tmp_path)
    assert [one.state for one in read()] == ["lost", "lost", "queued", "queued", "queued"]


def test_slurm_that_does_not_answer_knows_nothing(manifest, monkeypatch):
    def fail(command, **options):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(witness.subprocess, "run", fail)
    assert witness.queue(manifest) is None


@pytest.mark.parametrize(
    ("said", "slurm", "state"),
    [
        ("queued", None, "lost"),  # by its own word only
        ("queued", "PENDING", "queued"),
        ("queued", "RUNNING", "queued"),  # its process is starting
        ("running", None, "running"),  # somebody may run it by hand
        ("running", "RUNNING", "running"),
        ("running", "PENDING", "queued"),  # its node died, and it has been requeued
        ("lost", None, "lost"),
        ("lost", "RUNNING", "lost"),  # killed, while others of its task go on
        ("lost", "PENDING", "queued"),
        ("preempted", None, "preempted"),
        ("preempted", "RUNNING", "queued"),  # saved, and about to be requeued
        ("preempted", "COMPLETING", "queued"),
        ("preempted", "PENDING", "queued"),
        ("failed", "RUNNING", "failed"),
        ("done", "PENDING", "done"),
    ],
)
def test_what_files_say_and_what_slurm_says_make_a_state(said, slurm, state):
    one = Standing(Path("run"), said, 0, 10, None, None, None, None, "a word")
    (found,) = witness.witnessed([one], {} if slurm is None else {0: slurm})
    assert found.state == state


def test_tasks_are_named_as_slurm_does(manifest):
    assert witness.task_ids(manifest, [0], {0: "RUNNING"}) == ["7_0", "9"]
    assert witness.task_ids(manifest, [0, 1], {1: "RUNNING"}) == ["7_0"]
    assert witness.task_ids(manifest, [4], {}) == []
