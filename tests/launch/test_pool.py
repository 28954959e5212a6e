import os
import signal
import subprocess
import sys

import pytest
from cli import TINY, choices, composed, environment, wait_for

from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch import pool
from rigor.launch.job import job, leave
from rigor.launch.worker import PARENT
from rigor.tracking.rundir import RunDirectory, config_hash


def queued(out, *overrides):
    """Queue a run in `out` and return its directory."""
    one = composed(*TINY, f"out={out}", *overrides)
    made = job(one, choices(one))
    leave(made, "some")
    return made.path


def worker(path, **options):
    return subprocess.run(
        [sys.executable, "-m", "rigor.launch.worker", str(path)],
        env=options.pop("env", None) or environment(),
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


@pytest.mark.slow
def test_a_worker_runs_what_lies_in_its_directory_and_skips_what_is_done(tmp_path):
    path = queued(tmp_path, "seed=3")
    done = worker(path, cwd=tmp_path)  # elsewhere than where it was queued
    assert (done.returncode, done.stderr) == (0, "")
    status = RunDirectory(path).status()
    assert (status["state"], status["step"]) == ("done", 300)
    before = (path / "status.json").stat().st_mtime_ns
    again = worker(path)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == f"{path}: done, skipped\n"
    assert (path / "status.json").stat().st_mtime_ns == before


def test_a_worker_refuses_what_another_process_runs(tmp_path):
    path = tmp_path / "run"
    config = {"seed": 0}
    # started alone: no sweep has queued it
    with RunDirectory.open(path, config, config_hash(config)) as run:
        run.write_status("running")
        done = worker(path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"rigor-worker: {path}: another process runs there")
        assert run.state() == "running"


def test_a_worker_says_what_it_cannot_run(tmp_path):
    done = worker(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rigor-worker: {tmp_path}: no sweep has queued a run there")
    path = queued(tmp_path)
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text.replace("quantiles: 5", "quantiles: 0"))
    done = worker(path)
    assert done.returncode == 2
    assert "agent.quantiles=0" in done.stderr
    status = RunDirectory(path).status()
    assert (status["state"], "agent.quantiles=0" in status["error"]) == ("failed", True)


@pytest.mark.slow
def test_a_worker_ends_with_the_process_that_started_it(tmp_path):
    path = queued(tmp_path, "train.steps=100000")
    code = (
        "import sys; from pathlib import Path; from rigor.launch import pool\n"
        "print(pool.start(Path(sys.argv[1])).process.pid, flush=True); sys.stdin.read()"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    run = RunDirectory(path)
    wait_for(lambda: run.state() == "running" and run.status()["step"] > 0, launcher)
    launcher.kill()
    launcher.communicate()
    left = subprocess.Popen(["sleep", "300"])
    wait_for(lambda: run.state() != "running", left)
    left.kill()
    left.wait()
    assert run.status()["state"] == "preempted"
    assert "SIGTERM" in run.status()["error"]


def test_a_worker_does_not_begin_when_the_process_that_started_it_has_died(tmp_path):
    path = queued(tmp_path)
    before = (path / "status.json").read_bytes()
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = worker(path, env=environment(**{PARENT: str(gone.pid)}))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
    assert (path / "status.json").read_bytes() == before


@pytest.mark.slow
def test_a_module_of_the_users_hides_none_of_pythons(tmp_path, monkeypatch):
    for name in ("queue", "random", "rigor", "torch"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    member = pool.start(queued(tmp_path, "train.steps=50"))
    member.process.wait(timeout=300)
    assert pool.verdict(member) is None, RunDirectory(member.path).log_path.read_text()


FAKE = """
import os, signal, sys, time
from pathlib import Path
path = Path(sys.argv[-1])
(path / "gpu").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
what = (path / "what").read_text()
if what == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    (path / "ready").touch()
    time.sleep(300)
elif what == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (path / "ready").touch()
    time.sleep(300)
elif what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif what != "0":
    print("rigor-worker: it broke", file=sys.stderr)
sys.exit(int(what))
"""


@pytest.fixture
def members(tmp_path, monkeypatch):
    """Make run directories whose workers do as told: end with a code, or wait."""
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
            (path / "what").write_text(order)
        return paths

    return make


def test_one_failing_member_takes_no_other_along(members):
    paths = members("0", "1", "2", "kill", "0")
    told = []
    ended = pool.run_pool(paths, 2, lambda path, error: told.append(path))
    assert [type(error) for error in ended] == [
        *(type(None), RunFailed, UserError, RunFailed, type(None))
    ]
    assert str(ended[1]) == str(ended[2]) == "it broke"
    assert str(ended[3]) == f"killed by SIGKILL; see {paths[3] / 'train.log'}"
    assert sorted(told) == paths


def test_no_more_than_n_run_at_a_time_and_gpus_are_shared_in_turn(members, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    paths = members(*"000000")
    running = []
    real_start, real_verdict = pool.start, pool.verdict
    monkeypatch.setattr(
        pool, "start", lambda path, *more: running.append(path) or real_start(path, *more)
    )
    most = []

    def verdict(member):
        most.append(len(running))
        running.remove(member.path)
        return real_verdict(member)

    monkeypatch.setattr(pool, "verdict", verdict)
    assert pool.run_pool(paths, 3) == [None] * 6
    assert max(most) == 3
    assert [(path / "gpu").read_text() for path in paths[:3]] == ["4", "7", "4"]


def test_a_single_gpu_is_left_as_it_is(members, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (path,) = members("0")
    pool.run_pool([path], 1)
    assert (path / "gpu").read_text() == "3"


def test_a_signal_is_passed_on_and_nothing_more_is_started(members):
    paths = members("wait", "wait", "0")

    def look():
        if all((path / "ready").exists() for path in paths[:2]) and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))

    sent = []
    with pytest.raises(Stopped, match="same command goes on") as caught:
        pool.run_pool(paths, 2, look=look)
    assert caught.value.signal == signal.SIGTERM
    assert not (paths[2] / "gpu").exists()


def test_a_second_signal_ends_at_once(members, monkeypatch):
    monkeypatch.setattr(pool, "_LAST_WORDS", 0.2)
    paths = members("stubborn")
    sent = []

    def look():
        if (paths[0] / "ready").exists() and len(sent) < 2:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))

    with pytest.raises(Stopped, match="ended at once"):
        pool.run_pool(paths, 1, look=look)


def test_the_signal_handlers_are_put_back(members):
    before = signal.getsignal(signal.SIGINT)
    pool.run_pool(members("0"), 1)
    assert signal.getsignal(signal.SIGINT) is before
