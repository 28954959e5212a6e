import errno
import fcntl

import pytest

from rigor.errors import RunFailed
from rigor.launch import task
from rigor.tracking.rundir import RunDirectory, config_hash


@pytest.fixture
def started(monkeypatch):
    """The runs that a task has started, all of which end well."""
    found = []

    def run_pool(paths, n_jobs, told, signals):
        found.extend(path.name for path in paths)
        return [None] * len(paths)

    monkeypatch.setattr(task, "run_pool", run_pool)
    return found


def made(out, **states):
    """Make run directories in these states and return their paths."""
    for name, state in states.items():
        (out / name).mkdir()
        RunDirectory(out / name).write_status(state)
    return [str(out / name) for name in states]


def test_a_task_runs_what_has_not_ended_and_fails_with_what_has_failed(tmp_path, started):
    paths = made(tmp_path, a="queued", b="done", c="failed", d="preempted", e="running")
    with pytest.raises(RunFailed, match=r"1 of 5 runs failed: .*c: failed before"):
        task.run_task(paths)
    assert started == ["a", "d", "e"]
    assert RunDirectory(tmp_path / "d").status()["state"] == "queued"


def test_a_task_leaves_alone_what_another_process_runs(tmp_path, started):
    paths = made(tmp_path, a="queued", b="queued")
    with RunDirectory.open(tmp_path / "a", {"seed": 0}, config_hash({"seed": 0})):
        task.run_task(paths)
    assert started == ["b"]


def test_a_task_runs_its_runs_where_the_file_system_has_no_locks(tmp_path, started, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOSYS, "function not implemented")

    paths = made(tmp_path, a="queued", b="running")
    for path in paths:
        RunDirectory(path).path.joinpath(".lock").touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    task.run_task(paths)
    assert started == ["a", "b"]
