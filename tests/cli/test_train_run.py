"""A run by the real command line: its files, stops, and resumptions."""

import fcntl
import os
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from command_line import (
    COMMAND,
    TINY,
    environment,
    finish,
    refused,
    rigor_train,
    start,
    start_anew,
    wait_for,
)
from run_files import ANSI, CONTRACT, RESULT, WALL_CLOCK, only, read, rows, runs

SAVING = (*TINY, "out=out", "train.checkpoint_every=50")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of a finished run of SAVING; `screen` holds its output on 80 columns."""
    place = tmp_path_factory.mktemp("saved")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {key: value for key, value in environment().items() if key != "COLUMNS"}
    process = subprocess.Popen(
        [COMMAND, *SAVING], cwd=place, env=env | {"TERM": "xterm"}, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 600)[0]:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the other end has closed
            break
    os.close(master)
    assert process.wait(60) == 0, shown
    (place / "screen").write_bytes(shown)
    return place


@pytest.mark.slow
def test_a_terminal_of_80_columns_shows_a_bar(saved):
    text = (saved / "screen").read_text()
    for part in (ANSI, "━", "100%", "300/300"):
        assert part in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    drawn = [line for line in re.split(r"[\r\n]+", plain) if "━" in line]
    assert max(map(len, drawn)) <= 80


LONG = (
    "env=cartpole",
    "tracker=none",
    "train.steps=1000",
    "train.checkpoint_every=100",
    "train.learning_starts=0.05",
    "train.batch_size=32",
    "train.log_every=0.05",
    "agent.quantiles=10",
    "evaluate.every=0.2",
    "evaluate.episodes=1",
    "evaluate.final_episodes=1",
    "discount=hyperbolic",
    "risk=cvar",
    "outer.every=50",
)
"""A few seconds of learning with a stock and some evaluations."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The directory of a run of LONG that was never stopped, and its exit."""
    place = tmp_path_factory.mktemp("undisturbed")
    return place, rigor_train(*LONG, "out=out", cwd=place)


@pytest.mark.slow
def test_a_run_directory_has_the_documented_files(undisturbed):
    place, done = undisturbed
    assert (done.code, done.err) == (0, "")
    assert ANSI not in done.out
    assert "\r" not in done.out
    assert "1,000/1,000 steps (100%)" in done.out
    assert [path.name for path in place.iterdir()] == ["out"]  # no outputs/, no multirun/
    run = only(place / "out")
    assert run.name.startswith("cartpole-singlehorizon-hyperbolic-cvar-time_consistent-s0-")
    assert {path.name for path in run.iterdir()} == CONTRACT
    status, result = read(run / "status.json"), read(run / "result.json")
    assert (status["state"], status["step"], status["steps_total"]) == ("done", 1000, 1000)
    assert (status["error"], status["host"]) == (None, os.uname().nodename)
    assert result.keys() >= RESULT
    assert (result["steps"], result["episodes"]) == (1000, 1)
    assert (result["score_low"], result["score_high"]) == (None, None)  # of one episode
    assert run.name.endswith(result["config_hash"][:8])
    assert f"config hash: {result['config_hash']}" in (run / "config.yaml").read_text()
    assert result["versions"]["torch"]
    table = rows(run)
    assert table[-1]["steps"] == "1000"
    assert table[-1]["eval_score"]
    assert {"episodes", "updates", "loss", "epsilon", "train_score"} <= table[0].keys()
    assert f"figure: {run.relative_to(place) / 'learning_curves.png'}" in done.out


@pytest.mark.slow
def test_a_run_is_skipped_when_done_and_extended_when_asked(tmp_path, undisturbed):
    shutil.copytree(undisturbed[0], tmp_path, dirs_exist_ok=True)
    run = only(tmp_path / "out")
    table = rows(run)
    before = {path: path.stat().st_mtime_ns for path in (run / "checkpoints").iterdir()}
    again = rigor_train(*LONG, "out=out", cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert f"{run.relative_to(tmp_path)}: done, skipped" in again.out
    assert {path: path.stat().st_mtime_ns for path in (run / "checkpoints").iterdir()} == before

    longer = ("train.schedule_steps=1000", "train.steps=1100")
    more = rigor_train(*LONG, *longer, "out=out", cwd=tmp_path)
    assert (more.code, more.err) == (0, "")
    assert only(tmp_path / "out") == run
    assert read(run / "status.json")["step"] == read(run / "result.json")["steps"] == 1100
    extended = rows(run)
    assert extended[: len(table)] == table
    assert extended[-1]["steps"] == "1100"
    assert extended[-1]["epsilon"] == table[-1]["epsilon"]  # schedules keep their last value


@pytest.mark.slow
def test_a_directory_of_another_config_is_refused_and_a_locked_one_too(tmp_path, saved):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    run = only(tmp_path / "out")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("seed: 0", "seed: 5"))
    (run / "status.json").unlink()
    done = rigor_train(*SAVING, cwd=tmp_path)
    refused(done, "another config", "seed: 5 there, 0 here", "out=DIR")
    assert "seed: 5" in (run / "config.yaml").read_text()

    (run / "config.yaml").write_text(text)
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("pid 4711 on elsewhere\n")
        lock.flush()
        done = rigor_train(*SAVING, cwd=tmp_path)
        refused(done, "another process runs there (pid 4711 on elsewhere)", "out=DIR")
        assert not (run / "status.json").exists()


@pytest.mark.slow
def test_a_corrupt_checkpoint_is_skipped(tmp_path, saved):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    run = only(tmp_path / "out")
    last = max((run / "checkpoints").glob("step_*"))
    arrays = last / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-100])
    (run / "status.json").unlink()
    done = rigor_train(*SAVING, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"{last.name} cannot be used" in done.out
    assert "resumed at step " in done.out
    assert rows(run) == rows(only(saved / "out"))
    assert read(run / "status.json")["state"] == "done"


def small_files():
    """Let no file grow past 60 kB, as a full disk would."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_same_command_resumes(tmp_path):
    done = finish(start_anew(*SAVING, cwd=tmp_path, preexec_fn=small_files))
    refused(done, "no space left on device", "resume with the same command")
    run = only(tmp_path / "out")
    status = read(run / "status.json")
    assert status["state"] == "failed"
    assert "no space left" in status["error"]
    done = rigor_train(*SAVING, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert read(run / "status.json")["state"] == "done"


STOPPED = "rigor-train: stopped and saved; the same command resumes the run\n"


def newest(out: Path) -> int:
    """The step of the newest checkpoint, 0 before there is one."""
    return max((int(path.name[5:]) for path in out.glob("*/checkpoints/step_*")), default=0)


def interrupted(command, place: Path, number: int):
    """Start a command, send it a signal once it has saved another checkpoint, and let it end."""
    before = newest(place / "out")
    process = start(*command, cwd=place)
    wait_for(lambda: newest(place / "out") > before, process)
    process.send_signal(number)
    return finish(process)


@pytest.mark.slow
def test_a_killed_stopped_and_interrupted_run_equals_an_undisturbed_one(tmp_path, undisturbed):
    command = (*LONG, "out=out")
    done = interrupted(command, tmp_path, signal.SIGKILL)
    assert done.code == -signal.SIGKILL
    run, whole_run = only(tmp_path / "out"), only(undisturbed[0] / "out")
    assert run.name == whole_run.name
    assert read(run / "status.json")["state"] == "running"  # SIGKILL leaves no time to update it

    step = 0
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        done = interrupted(command, tmp_path, number)
        assert (done.code, done.err) == (code, STOPPED)
        assert "resumed at step " in done.out
        status = read(run / "status.json")
        assert status["state"] == "preempted"
        assert number.name in status["error"]
        assert step < status["step"] < 1000
        step = status["step"]
        assert not (run / "result.json").exists()

    done = rigor_train(*command, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"resumed at step {step} " in done.out
    assert rows(run) == rows(whole_run)
    mine, whole = read(run / "result.json"), read(whole_run / "result.json")
    different = {key for key in whole if mine[key] != whole[key]}
    # the source may have been edited
    assert different <= WALL_CLOCK | {"commit", "sources"}
    assert read(run / "status.json")["state"] == "done"


SLOW_STEP = """
import time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Slow(CartPoleEnv):
    def step(self, action):
        print("step", flush=True)
        time.sleep(1000)
        return super().step(action)


gymnasium.register("Slow-v0", entry_point=Slow, max_episode_steps=20)
"""


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_STEP)
    env = environment(PYTHONPATH=str(tmp_path))
    own = ("env=gymnasium", "env.id=slow:Slow-v0", *TINY[1:], "out=out")
    process = start_anew(*own, cwd=tmp_path, env=env)
    for line in process.stdout:
        if line == "step\n":
            break
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None  # the first signal waits for the end of the step
    process.send_signal(signal.SIGINT)
    done = finish(process)  # long before the end of the step
    assert (done.code, done.err) == (130, "rigor-train: interrupted\n")
    status = read(only(tmp_path / "out") / "status.json")
    assert status["state"] == "preempted"


@pytest.mark.slow
def test_a_stopped_sweep_shows_its_partial_results_and_resumes(tmp_path):
    shorter = ("train.steps=400", "train.checkpoint_every=40")
    command = (*LONG, *shorter, "-m", "seed=0,1", "out=out")
    done = interrupted(command, tmp_path, signal.SIGTERM)
    assert (done.code, done.err) == (143, STOPPED)
    assert done.out.count("stopped") == 1
    assert done.out.count("queued") == 1
    assert "lost" not in done.out
    states = [read(run / "status.json")["state"] for run in runs(tmp_path / "out")]
    assert states == ["preempted", "queued"]
    done = rigor_train(*command, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    states = [read(run / "status.json")["state"] for run in runs(tmp_path / "out")]
    assert states == ["done"] * 2


@pytest.mark.slow
def test_a_real_game_with_the_default_tracker(tmp_path):
    done = rigor_train(
        "env=atari/breakout",
        "agent=multihorizon",
        "train.steps=256",
        "train.batch_size=32",
        "env.num_envs=2",
        "env.max_frames=400",
        "evaluate.every=1",
        "evaluate.episodes=1",
        "evaluate.final_episodes=1",
        "network.hidden=32",
        "agent.quantiles=5",
        cwd=tmp_path,
    )
    assert (done.code, done.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    run = only(tmp_path / "runs")
    assert {path.name for path in run.iterdir()} >= CONTRACT
    assert list((run / "wandb").glob("offline-run-*"))
    result = read(run / "result.json")
    steps = result["steps"]  # the rows of autoresets are none
    assert 256 <= steps < 256 + 64
    assert (result["frames"], result["horizons"]) == (4 * steps, 10)
    assert result["updates"] == 4 * 2 * 2  # the first rollout is not learned from; two epochs
