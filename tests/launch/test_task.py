import errno
import fcntl
import shutil
import signal
import subprocess

import pytest

from rigor.errors import RunFailed
from rigor.launch import task
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash


@pytest.fixture
def started(monkeypatch):
    """The names of the runs that a task has started; all of them succeed."""
    found = []

    def run_pool(paths, n_jobs, on_end, patient):
        found.extend(path.name for path in paths)
        return [None] * len(paths)

    monkeypatch.setattr(task, "run_pool", run_pool)
    return found


def directories(out, **states):
    """Make run directories in these states and return their paths."""
    for name, state in states.items():
        (out / name).mkdir()
        RunDirectory(out / name).write_status(state)
        RunDirectory(out / name).write_result({"objective": 1.0})
    return [str(out / name) for name in states]


def test_a_task_runs_unfinished_runs_and_fails_if_a_run_failed_before(tmp_path, started):
    paths = directories(tmp_path, a="queued", b="done", c="failed", d="preempted", e="running")
    with pytest.raises(RunFailed, match=r"1 of 5 runs failed: .*c: failed before"):
        task.run_task(paths)
    assert started == ["a", "d", "e"]
    assert RunDirectory(tmp_path / "d").status()["state"] == "queued"


def test_a_task_does_not_run_runs_of_another_process(tmp_path, started):
    paths = directories(tmp_path, a="queued", b="queued")
    with RunDirectory.open(tmp_path / "a", {"seed": 0}, config_hash({"seed": 0})):
        task.run_task(paths)
    assert started == ["b"]


def test_a_task_runs_a_run_that_was_queued_from_a_process_that_has_not_ended(tmp_path, started):
    (path,) = directories(tmp_path, a="queued")
    with RunDirectory.open(path, {"seed": 0}, config_hash({"seed": 0})) as run:
        run.write_status("running")
        RunDirectory(path).write_status("queued")  # by a retry
        task.run_task([path])
    assert started == ["a"]


def test_a_task_whose_run_is_gone_runs_the_others(tmp_path, started):
    paths = directories(tmp_path, a="queued", b="queued")
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(RunFailed, match=r"1 of 2 runs failed: .*a: its directory is gone"):
        task.run_task(paths)
    assert started == ["b"]


def test_a_requeued_task_takes_its_runs_over_from_its_earlier_start(
    tmp_path, started, monkeypatch, capsys
):
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    paths = directories(tmp_path, a="queued", b="queued", c="queued")
    config = {"seed": 0}
    of = [{"task": "7", "restarts": 1}, {"task": "8", "restarts": 1}, {"task": "7", "restarts": 2}]
    for path, its_own in zip(paths, of, strict=True):
        run = RunDirectory.open(path, config, config_hash(config))
        run.write_status("running", **its_own)  # a process of a node that does not answer
    task.run_task(paths)
    assert started == ["a"]
    states = [RunDirectory(path).status()["state"] for path in paths]
    assert states == ["queued", "running", "running"]
    assert f"{paths[1]}: another process runs there; left to it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shown", "refusal", "line"),
    [
        ("JobState=RUNNING Requeue=1 ", "", "stopped by SIGTERM, saved and requeued"),
        (
            "JobState=COMPLETING Requeue=1 ",
            "",
            "ending the job (COMPLETING), so it is not requeued",
        ),
        (
            "JobState=RUNNING Requeue=0 ",
            "",
            "(requeueing is not allowed); rigor-sweep retry resumes",
        ),
        (
            "JobState=RUNNING Requeue=1 ",
            "Requested operation is\n presently disabled",
            "not requeued (Requested operation is presently disabled); rigor-sweep retry resumes",
        ),
        (None, "", "not requeued (scontrol: No such file or directory); rigor-sweep retry resumes"),
    ],
)
def test_a_stopped_task_is_requeued_where_it_can_be(monkeypatch, shown, refusal, line):
    def run(command, **options):
        if shown is None:  # in a container
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        asked = command[1] == "show"
        return subprocess.CompletedProcess(
            command, 0, shown if asked else "", "" if asked else refusal
        )

    monkeypatch.setattr(task.subprocess, "run", run)
    assert line in task._requeue("7_1", signal.SIGTERM)


def test_a_task_runs_its_runs_where_the_file_system_has_no_locks(tmp_path, started, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOSYS, "function not implemented")

    paths = directories(tmp_path, a="queued", b="running")
    for path in paths:
        RunDirectory(path).path.joinpath(".lock").touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    task.run_task(paths)
    assert started == ["a", "b"]
