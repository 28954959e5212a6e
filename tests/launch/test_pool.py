import os
import shutil
import signal
import subprocess
import sys

import pytest
from command_line import TINY, choices, composed

from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch import pool
from rigor.runs.directory import RunDirectory
from rigor.runs.job import enqueue, job


@pytest.mark.slow
def test_modules_in_the_working_directory_do_not_hide_pythons_own(tmp_path, monkeypatch):
    for name in ("queue", "random", "rigor", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    config = composed(*TINY, f"out={tmp_path}", "train.steps=50")
    queued = job(config, choices(config))
    enqueue(queued, "some")
    worker = pool.start(queued.path)
    worker.process.wait(timeout=300)
    assert pool.error_of(worker) is None, RunDirectory(worker.path).log_path.read_text()


FAKE = """
import os, signal, sys, time
from pathlib import Path
path = Path(sys.argv[-1])
(path / "gpu").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
parts = (os.environ.get(name, "all") for name in ("RIGOR_MEMORY", "RIGOR_CORES"))
(path / "parts").write_text(", ".join(parts))
order = (path / "order").read_text()
if order == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (path / "ready").touch()
    time.sleep(300)
elif order == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (path / "ready").touch()
    time.sleep(300)
elif order == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif order != "0":
    print("rigor-worker: it broke", file=sys.stderr)
sys.exit(int(order))
"""


@pytest.fixture
def fake_runs(tmp_path, monkeypatch):
    """Make run directories whose workers follow an order: end with a code, or wait."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    real = subprocess.Popen
    monkeypatch.setattr(
        pool.subprocess,
        "Popen",
        lambda command, **options: real([sys.executable, str(script), command[-1]], **options),
    )

    def make(*orders):
        paths = [tmp_path / f"run{number}" for number in range(len(orders))]
        for path, order in zip(paths, orders, strict=True):
            path.mkdir()
            (path / "order").write_text(order)
        return paths

    return make


def test_a_failing_run_does_not_affect_other_runs(fake_runs):
    paths = fake_runs("0", "1", "2", "kill", "0")
    reported = []
    errors = pool.run_pool(paths, 2, lambda path, error: reported.append(path))
    assert [type(error) for error in errors] == [
        *(type(None), RunFailed, UserError, RunFailed, type(None))
    ]
    assert str(errors[1]) == str(errors[2]) == "it broke"
    assert str(errors[3]) == f"killed by SIGKILL; see {paths[3] / 'train.log'}"
    assert sorted(reported) == paths


def test_at_most_n_runs_run_at_a_time_and_gpus_are_used_in_turn(fake_runs, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    paths = fake_runs(*"000000")
    running = []
    real_start, real_error_of = pool.start, pool.error_of
    monkeypatch.setattr(
        pool, "start", lambda path, *more: running.append(path) or real_start(path, *more)
    )
    most = []

    def error_of(worker):
        most.append(len(running))
        running.remove(worker.path)
        return real_error_of(worker)

    monkeypatch.setattr(pool, "error_of", error_of)
    assert pool.run_pool(paths, 3) == [None] * 6
    assert max(most) == 3
    assert [(path / "gpu").read_text() for path in paths[:3]] == ["4", "7", "4"]


def test_a_run_whose_directory_is_gone_does_not_affect_other_runs(fake_runs):
    paths = fake_runs("0", "0")
    shutil.rmtree(paths[0])
    errors = pool.run_pool(paths, 1)
    assert str(errors[0]) == f"{paths[0]}: no worker can start there (no such file or directory)"
    assert errors[1] is None


def test_runs_at_once_share_the_free_memory_and_the_cores(fake_runs, monkeypatch):
    monkeypatch.setattr(pool, "shares", lambda n, gpus: {"RIGOR_MEMORY": f"a part of {n}"})
    monkeypatch.setattr("rigor.cores.cores", lambda: 8)
    paths = fake_runs("0", "0", "0")
    for n_jobs, part in ((2, "a part of 2, 4"), (8, "a part of 3, 2"), (1, "all, all")):
        pool.run_pool(paths, n_jobs)
        assert {(path / "parts").read_text() for path in paths} == {part}


def test_a_single_visible_gpu_stays_visible(fake_runs, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (path,) = fake_runs("0")
    pool.run_pool([path], 1)
    assert (path / "gpu").read_text() == "3"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_is_passed_on_and_no_further_run_starts(fake_runs, number):
    paths = fake_runs("wait", "wait", "0")

    def poll():
        if all((path / "ready").exists() for path in paths[:2]) and not sent:
            sent.append(os.kill(os.getpid(), number))

    sent = []
    with pytest.raises(Stopped, match="same command resumes") as caught:
        pool.run_pool(paths, 2, on_poll=poll)
    assert caught.value.signal == number
    assert not (paths[2] / "gpu").exists()


def test_a_second_signal_ends_at_once(fake_runs, monkeypatch):
    monkeypatch.setattr(pool, "_KILL_AFTER", 0.2)
    paths = fake_runs("stubborn")
    sent = []

    def poll():
        if (paths[0] / "ready").exists() and len(sent) < 2:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))

    with pytest.raises(Stopped, match="ended at once"):
        pool.run_pool(paths, 1, on_poll=poll)


def test_the_signal_handlers_are_restored(fake_runs):
    before = signal.getsignal(signal.SIGINT)
    pool.run_pool(fake_runs("0"), 1)
    assert signal.getsignal(signal.SIGINT) is before
