import os
from pathlib import Path

from rigor.launch.status import RunStatus, StatusReader, run_status, totals
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash

NAME = "pong-multihorizon-hyperbolic-mean-time_consistent-s{}-1a2b3c4d"


def at(number, state, step=0, **more) -> RunStatus:
    values = {
        "steps_total": 1000,
        "rate": None,
        "seconds_left": None,
        "host": "node7",
        "gpu": None,
        "error": None,
    } | more
    return RunStatus(Path(NAME.format(number)), state, step, **values)


def test_a_status_is_read_from_the_files_of_the_run(tmp_path):
    config = {"seed": 0}
    with RunDirectory.open(tmp_path, config, config_hash(config)) as run:
        run.write_status("running", step=30, steps_total=90, steps_per_second=2.0, seconds_left=30)
        run.write_status("running", gpu="1 H100 80GB HBM3")
        status = run_status(tmp_path)
        assert (status.state, status.step, status.steps_total, status.rate) == (
            "running",
            30,
            90,
            2.0,
        )
        assert (status.seconds_left, status.log) == (30, tmp_path / "train.log")
        assert (status.host, status.gpu) == (os.uname().nodename, "1 H100 80GB HBM3")
    assert run_status(tmp_path).state == "lost"
    assert run_status(tmp_path).rate is None  # because the process is gone
    assert run_status(tmp_path).gpu is None


def test_the_totals_count_every_run_and_every_step():
    line = totals(
        [
            at(0, "done", 1000),
            at(1, "running", 400, rate=10.0),
            at(2, "running", 900, rate=10.0),
            at(3, "queued"),
            at(4, "failed", 10),
        ]
    )
    # 600 + 100 + 1000 steps are left to running and queued runs, at 20 steps/s
    assert line == ("2 running, 1 queued, 1 done, 1 failed of 5  2.3k/5k steps  20/s  eta 0:01:25")
    assert totals([at(0, "done", 1000)]) == "1 done of 1  1k/1k steps"
    # an exact agent has no steps, and a stopped run is stopped whoever sent the signal
    assert totals([at(0, "queued", 0, steps_total=0)]) == "1 queued of 1"
    assert totals([at(0, "preempted", 0, steps_total=0)]) == "1 stopped of 1"


def test_a_finished_run_is_read_once(tmp_path):
    done, other = RunDirectory(tmp_path / "a"), RunDirectory(tmp_path / "b")
    for run in (done, other):
        run.path.mkdir()
        run.write_result({"objective": 1.0})
        run.write_status("done")
    other.write_status("failed")
    reader = StatusReader([done.path, other.path])
    assert [status.state for status in reader.read()] == ["done", "failed"]
    for run in (done, other):
        run.write_status("queued")
    assert [status.state for status in reader.read()] == ["done", "queued"]
