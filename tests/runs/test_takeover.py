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
        with pytest.raises(UserError, match=f"process {os.getpid()} on .* still works there"):
            wait_until_alone(run)
    assert clock.now > SILENT
    assert "still works there" in run.status()["error"]  # `rigor-sweep status` shows it


ELSEWHERE = {"host": "elsewhere", "pid": 7}


def test_a_heartbeat_that_had_begun_before_the_run_was_queued_is_overruled(tmp_path, clock):
    run = left_behind(tmp_path, "queued", **ELSEWHERE)
    clock.at[9] = lambda: left_behind(tmp_path, "running", **ELSEWHERE)
    wait_until_alone(run)
    assert run.status()["state"] == "queued"
    assert ALONE + 9 <= clock.now < ALONE + 11  # counted from the second queueing


def test_a_run_is_queued_before_it_is_taken_over(tmp_path, clock):
    run = left_behind(tmp_path, "running", **ELSEWHERE, task="7")
    clock.at[1] = lambda: seen.append(run.status()["state"])
    seen = []
    wait_until_alone(run, may_take=lambda status: status["task"] == "7")
    assert seen == ["queued"]
    assert ALONE <= clock.now < ALONE + 1


def test_a_lock_is_waited_for_whatever_its_process_wrote_last(tmp_path, clock):
    run = left_behind(tmp_path, "preempted", **ELSEWHERE)
    with open(tmp_path / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        clock.at[5] = lambda: left_behind(tmp_path, "running", **ELSEWHERE)
        clock.at[ALONE + 20] = lambda: fcntl.flock(file, fcntl.LOCK_UN)
        wait_until_alone(run, may_take=lambda status: True)
    assert ALONE + 20 <= clock.now < ALONE + 21
    assert run.status()["state"] == "queued"


def test_a_third_process_that_starts_a_queued_run_keeps_it(tmp_path, clock):
    run = left_behind(tmp_path, "queued", **ELSEWHERE)
    clock.at[9] = lambda: left_behind(tmp_path, "running", host="third", pid=8)
    with pytest.raises(UserError, match="process 8 on third runs there; wait for it or end it"):
        wait_until_alone(run)
    assert run.status()["host"] == "third"


def test_a_process_that_never_notices_is_not_waited_for_without_end(tmp_path, clock):
    run = left_behind(tmp_path, "queued", **ELSEWHERE)

    def beat():
        left_behind(tmp_path, "running", **ELSEWHERE)
        clock.at[clock.now + 10] = beat

    clock.at[10] = beat
    with pytest.raises(UserError, match="process 7 on elsewhere still works there after 300 s"):
        wait_until_alone(run)


@pytest.mark.parametrize("state", ["preempted", "failed"])
def test_the_last_word_of_a_process_ends_the_wait(tmp_path, clock, state):
    run = left_behind(tmp_path, "running", **ELSEWHERE)
    clock.at[9] = lambda: left_behind(tmp_path, state, **ELSEWHERE)
    wait_until_alone(run)
    assert clock.now < 11


def test_a_run_that_is_done_meanwhile_stays_done(tmp_path, clock):
    run = left_behind(tmp_path, "queued", **ELSEWHERE)
    clock.at[9] = lambda: left_behind(tmp_path, "done", **ELSEWHERE)
    wait_until_alone(run)
    assert (run.status()["state"], clock.now < 11) == ("done", True)
    wait_until_alone(run, may_take=lambda status: True)
    assert run.status()["state"] == "done"


def test_without_locks_the_process_itself_is_evidence_on_its_machine(
    tmp_path, clock, monkeypatch, dead
):
    monkeypatch.setattr(RunDirectory, "is_locked", lambda self: None)
    wait_until_alone(left_behind(tmp_path, "queued", host=socket.gethostname(), pid=dead))
    assert clock.now == 0.0
    wait_until_alone(left_behind(tmp_path, "queued", host=socket.gethostname(), pid=1))
    assert clock.now >= ALONE
