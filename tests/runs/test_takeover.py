import fcntl
import json
import os
import socket
import subprocess

import pytest

from rigor.errors import UserError
from rigor.runs import takeover
from rigor.runs.directory import SILENT, RunDirectory
from rigor.runs.takeover import ALONE, wait_until_alone


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock; `clock.at[n]` is called when n seconds have passed."""

    class ManualClock:
        def __init__(self):
            self.now, self.at = 0.0, {}

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds
            for moment in [moment for moment in self.at if moment <= self.now]:
                self.at.pop(moment)()

    clock = ManualClock()
    monkeypatch.setattr(takeover, "time", clock)
    return clock


def left_behind(path, state, **fields) -> RunDirectory:
    """Make the directory of a run with this status."""
    run = RunDirectory(path)
    run.write_status("running")
    status = run.status() | {"state": state} | fields
    (path / "status.json").write_text(json.dumps(status))
    return RunDirectory(path)


@pytest.fixture
def dead():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("state", ["queued", "running", "done", "failed", "preempted"])
def test_no_time_is_lost_where_no_process_can_be_alive(tmp_path, clock, state, dead):
    wait_until_alone(RunDirectory(tmp_path))  # new
    wait_until_alone(left_behind(tmp_path, state, host=None, pid=None))
    wait_until_alone(left_behind(tmp_path, state, pid=dead))  # on this machine, where locks work
    if state not in ("queued", "running"):
        wait_until_alone(left_behind(tmp_path, state, host="elsewhere", pid=7))
    assert clock.now == 0.0


def test_a_queued_run_of_another_machine_starts_when_its_process_must_have_noticed(tmp_path, clock):
    wait_until_alone(left_behind(tmp_path, "queued", host="elsewhere", pid=7))
    assert ALONE <= clock.now < ALONE + 1


def test_a_silent_run_of_another_machine_is_taken_over_and_a_live_one_is_not(tmp_path, clock):
    run = left_behind(tmp_path, "running", host="elsewhere", pid=7)
    wait_until_alone(run)
    assert ALONE <= clock.now < ALONE + 1
    beat = {"step": 9}
    clock.at[clock.now + 8] = lambda: left_behind(
        tmp_path, "running", host="elsewhere", pid=7, **beat
    )
    with pytest.raises(UserError, match="process 7 on elsewhere runs there; wait for it or end it"):
        wait_until_alone(run)


def test_the_end_of_a_process_that_holds_the_lock_is_noticed_at_once(tmp_path, clock):
    run = left_behind(tmp_path, "queued")
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        clock.at[ALONE + 5] = lambda: fcntl.flock(file, fcntl.LOCK_UN)
        wait_until_alone(run)
        assert clock.now < ALONE + 6
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=f"process {os.getpid()} on .* still holds its lock"):
            wait_until_alone(run)
    assert clock.now > SILENT


def test_a_heartbeat_that_had_begun_before_the_run_was_queued_does_not_keep_it(tmp_path, clock):
    run = left_behind(tmp_path, "queued", host="elsewhere", pid=7)
    clock.at[9] = lambda: left_behind(tmp_path, "running", host="elsewhere", pid=7)
    wait_until_alone(run)
    assert run.status()["state"] == "queued"
    assert ALONE + 9 <= clock.now < ALONE + 11  # from the second time on
    clock.now = 0.0
    left_behind(tmp_path, "running", host="elsewhere", pid=7)
    wait_until_alone(run, queued=True)
    assert run.status()["state"] == "queued"


def test_without_locks_the_process_itself_is_evidence_on_its_machine(
    tmp_path, clock, monkeypatch, dead
):
    monkeypatch.setattr(RunDirectory, "is_locked", lambda self: None)
    wait_until_alone(left_behind(tmp_path, "queued", host=socket.gethostname(), pid=dead))
    assert clock.now == 0.0
    wait_until_alone(left_behind(tmp_path, "queued", host=socket.gethostname(), pid=1))
    assert clock.now >= ALONE
