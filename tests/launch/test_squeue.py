import subprocess
from pathlib import Path

import pytest

from rigor.errors import UserError
from rigor.launch import squeue
from rigor.launch.manifest import Manifest, Submission
from rigor.launch.squeue import Task
from rigor.launch.status import RunStatus
from rigor.runs.directory import RunDirectory


@pytest.fixture
def manifest():
    """Five runs: an array of two tasks, and a retry of the first run by itself."""
    entries = [Submission("x.0", "7", [[0, 1], [2, 3]]), Submission("x.1", "9", [[0]])]
    paths = [Path(f"run{number}") for number in range(5)]
    return Manifest(paths, {"name": "slurm"}, [[]] * 5, list("abcde"), entries)


def answer(monkeypatch, *lines):
    """Let squeue answer with these lines: job, index, state and name."""

    def run(command, **options):
        assert command[0] == "squeue"
        return subprocess.CompletedProcess(command, 0, "".join(f"{line}\n" for line in lines))

    monkeypatch.setattr(squeue.subprocess, "run", run)


def test_the_newest_task_of_a_run_counts(manifest, monkeypatch):
    answer(
        monkeypatch,
        "7|0|RUNNING|None|x.0",
        "7|1|PENDING|Resources|x.0",
        "9|N/A|PENDING|Priority|x.1",
        "5|0|RUNNING|None|y|z",
    )
    assert squeue.tasks_of(manifest) == {
        0: Task("PENDING", "Priority"),
        1: Task("RUNNING"),
        2: Task("PENDING", "Resources"),
        3: Task("PENDING", "Resources"),
    }
    manifest.submissions[1].job = None  # the process that submitted it died before SLURM answered
    assert squeue.tasks_of(manifest)[0] == Task("PENDING", "Priority")
    answer(monkeypatch)
    assert squeue.tasks_of(manifest) == {}


def queued(manifest, place):
    """Write the files of a manifest whose runs are queued."""
    manifest.runs = [place / path for path in manifest.runs]
    for path in manifest.runs:
        path.mkdir()
        RunDirectory(path).write_status("queued")
    manifest.write(place)


def test_a_submission_between_two_reads_is_seen(manifest, monkeypatch, tmp_path):
    queued(manifest, tmp_path)
    answer(monkeypatch, "7|1|PENDING|None|x.0", "11|N/A|PENDING|None|x.2")
    reader = squeue.SweepReader(tmp_path)
    assert [each.state for each in reader.read()] == ["lost", "lost", "queued", "queued", "lost"]
    errors = [each.error for each in reader.read()]
    assert errors[0].startswith("its SLURM task ended before the run began")
    assert errors[4] == "it was not submitted to SLURM"
    manifest.submissions.append(Submission("x.2", "11", [[4]]))
    manifest.write(tmp_path)
    assert [each.state for each in reader.read()] == ["lost", "lost", "queued", "queued", "queued"]


def test_squeue_is_asked_once_in_half_a_minute(manifest, monkeypatch, tmp_path):
    queued(manifest, tmp_path)
    asked, clock = [], [0]
    monkeypatch.setattr(squeue, "tasks_of", lambda manifest: asked.append(clock[0]) or {})
    monkeypatch.setattr(squeue.time, "monotonic", lambda: clock[0])
    reader = squeue.SweepReader(tmp_path)
    for clock[0] in range(0, 600, 5):
        reader.read()
    assert asked == list(range(0, 600, 30))


def test_a_task_that_slurm_does_not_start_has_a_reason(manifest):
    statuses = [RunStatus(path, "queued", *[0] * 2, *[None] * 5) for path in manifest.runs]
    tasks = {
        0: Task("PENDING", "PartitionTimeLimit"),
        1: Task("PENDING", "ReqNodeNotAvail, UnavailableNodes:node[1-3]"),
        2: Task("PENDING", "Priority"),
        3: Task("RUNNING"),
        4: Task("PENDING"),
    }
    errors = [status.error for status in squeue.with_tasks(statuses, tasks, manifest)]
    assert errors[0].startswith("PartitionTimeLimit: hydra.launcher.time is above the limit of ")
    assert errors[1] == (
        "ReqNodeNotAvail, UnavailableNodes:node[1-3]: `sinfo --list-reasons` shows why nodes are "
        "down or drained"
    )
    assert errors[2:] == ["Priority", None, None]


def test_no_answer_of_slurm_is_none(manifest, monkeypatch):
    def fail(command, **options):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(squeue.subprocess, "run", fail)
    assert squeue.tasks_of(manifest) is None


@pytest.mark.parametrize(
    ("written", "task", "state"),
    [
        ("queued", None, "lost"),  # by its own files only
        ("queued", "PENDING", "queued"),
        ("queued", "RUNNING", "queued"),  # its process is starting
        ("running", None, "running"),  # perhaps started by hand
        ("running", "RUNNING", "running"),
        ("running", "SUSPENDED", "running"),
        ("running", "PENDING", "queued"),  # its node died, and it has been requeued
        ("lost", None, "lost"),
        ("lost", "RUNNING", "lost"),  # killed, while other runs of its task go on
        ("lost", "PENDING", "queued"),
        ("preempted", None, "preempted"),
        ("preempted", "RUNNING", "queued"),  # saved, and about to be requeued
        ("preempted", "COMPLETING", "queued"),
        ("preempted", "PENDING", "queued"),
        ("failed", "RUNNING", "failed"),
        ("done", "PENDING", "done"),
    ],
)
def test_the_state_follows_from_the_files_and_the_task(written, task, state, manifest):
    status = RunStatus(Path("run"), written, 0, 10, None, None, None, None, "a reason")
    tasks = {} if task is None else {0: Task(task)}
    (corrected,) = squeue.with_tasks([status], tasks, manifest)
    assert corrected.state == state


def test_the_newest_tasks_of_runs_are_cancelled_each_once(manifest, monkeypatch):
    """Run 0 was in task 7_0 with run 1 before its retry, which is job 9."""
    called = []
    lines = "7|0|RUNNING|None|x.0\n7|1|PENDING|Resources|x.0\n9|N/A|PENDING|Priority|x.1\n"

    def run(command, **options):
        called.append(command)
        return subprocess.CompletedProcess(command, 0, lines)

    monkeypatch.setattr(squeue.subprocess, "run", run)
    assert squeue.cancel(manifest, [0]) == ["9"]
    assert squeue.cancel(manifest, [1, 2, 3]) == ["7_0", "7_1"]
    manifest.submissions[1].job = None  # the process that submitted it died before SLURM answered
    assert squeue.cancel(manifest, [0]) == ["9"]
    assert squeue.cancel(manifest, [4]) == []
    assert [command[1:] for command in called if command[0] == "scancel"] == [
        ["9"],
        ["7_0", "7_1"],
        ["9"],
    ]


def scancel_says(monkeypatch, line):
    def run(command, **options):
        if command[0] == "squeue":
            return subprocess.CompletedProcess(command, 0, "7|0|RUNNING|None|x.0\n")
        return subprocess.CompletedProcess(command, 1, "", line)

    monkeypatch.setattr(squeue.subprocess, "run", run)


@pytest.mark.parametrize(
    "reason", ["Invalid job id specified", "Job/step already completing or completed"]
)
def test_a_task_that_ends_before_it_is_cancelled_is_no_failure(manifest, monkeypatch, reason):
    scancel_says(monkeypatch, f"scancel: error: Kill job error on job id 7_0: {reason}\n")
    assert squeue.cancel(manifest, [0, 1]) == ["7_0"]


def test_nothing_is_called_cancelled_if_slurm_does_not_answer_or_refuses(manifest, monkeypatch):
    scancel_says(monkeypatch, "scancel: error: Kill job error on job id 7_0: Access denied\n")
    with pytest.raises(UserError, match=r"^not all was cancelled; SLURM says: .*Access denied$"):
        squeue.cancel(manifest, [0])

    def silent(command, **options):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(squeue.subprocess, "run", silent)
    with pytest.raises(UserError, match=r"^SLURM does not answer squeue, so nothing was cancelled"):
        squeue.cancel(manifest, [0])
