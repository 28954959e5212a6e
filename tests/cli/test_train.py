"""The real command line, in subprocesses."""

import csv
import fcntl
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
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

from rigor.cli import train

CONTRACT = {
    "config.yaml",
    "status.json",
    "metrics.csv",
    "result.json",
    "checkpoints",
    "train.log",
    # the summary of a run outside a sweep, and the lock
    "table.txt",
    "learning_curves.png",
    ".lock",
}
RESULT = {
    "objective",
    "objective_low",
    "objective_high",
    "objective_bundle",
    "score",
    "score_low",
    "score_high",
    "episodes",
    "steps",
    "frames",
    "seconds",
    "config_hash",
    "commit",
    "versions",
}
WALL_CLOCK = {"seconds", "steps_per_second"}
ANSI = "\x1b"

USER_MODULE = '''
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Fragile(gymnasium.Env):
    """Ten steps of reward 1; raises at step `at` with a message of two lines."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Discrete(2)

    def __init__(self, at=None, seconds=0.0):
        self.at, self.total = at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.total += 1
        if self.at is not None and self.total == self.at:
            raise ValueError("the sensor fell off\\nand rolled away")
        return np.full(2, self.t / 10, np.float32), 1.0, self.t == 10, False, {}


gymnasium.register("Fragile-v0", entry_point=Fragile, max_episode_steps=20)


class HalfLife:
    """d_t = 2^(-t/steps): a discount that rigor does not know."""

    mixture = None
    atoms = None

    def __init__(self, steps):
        self.steps = steps
        self.tail_factor = 0.5 ** (1 / steps)

    def factor(self, t):
        return np.power(0.5, np.asarray(t, dtype=float) / self.steps)

    def step_factor(self, t):
        return np.full(np.shape(t), self.tail_factor)

'''


@pytest.fixture
def user(tmp_path):
    """A user's own module and configs; returns the environment that finds the module."""
    (tmp_path / "mine.py").write_text(USER_MODULE)
    for file, text in {
        "discount/half_life.yaml": "_target_: mine.HalfLife\nsteps: 7\n",
    }.items():
        path = tmp_path / "conf" / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return environment(PYTHONPATH=str(tmp_path))


def runs(out: Path) -> list[Path]:
    """The run directories in `out`, by name."""
    return sorted(path for path in out.iterdir() if path.name != "sweeps") if out.exists() else []


def only(out: Path) -> Path:
    (run,) = runs(out)
    return run


def read(path: Path):
    return json.loads(path.read_text())


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without their wall-clock columns."""
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]


# --- the order of arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "overrides", "flags"),
    [
        (["a=1", "-m", "b=2"], ["a=1", "b=2"], ["-m"]),
        (["--config-dir", "mine", "a=1"], ["a=1"], ["--config-dir", "mine"]),
        (["--config-dir=mine", "a=1"], ["a=1"], ["--config-dir=mine"]),
        (
            ["a=1", "--cfg", "job", "b=2", "--resolve"],
            ["a=1", "b=2"],
            ["--cfg", "job", "--resolve"],
        ),
        (["--info", "a=1"], ["a=1"], ["--info"]),
        (["--info", "plugins", "a=1"], ["a=1"], ["--info", "plugins"]),
        (["-cd", "-m"], [], ["-cd", "-m"]),
        (["a=-1"], ["a=-1"], []),
        ([], [], []),
    ],
)
def test_overrides_and_flags_are_separated(given, overrides, flags):
    assert train.split(given) == (overrides, flags)


# --- refusals -------------------------------------------------------------------------------------

FAST_REFUSALS = [
    # one for each path through the code
    (["trian.steps=3"], ["trian.steps: no such key", "did you mean train.steps"]),
    (["train.batch_size=0"], ["train.batch_size=0"]),
    (["env=atari/breakot"], ["env=atari/breakot", "atari/breakout"]),
    (["risk=null"], ["risk=null", "mean"]),
    (["-m", "seed=0,0"], ["jobs 0 ", " and 1 ", "seed=0", "the same run"]),
    (["--seed", "3"], ["--seed", "key=value"]),
]
SLOW_REFUSALS = [
    (["seed=abc"], ["seed=abc", "whole number"]),
    (["+foo=3"], ["foo: no such key"]),
    (["seed=0,1"], ["seed=0,1", "add -m"]),
    (["-m", "env=glob(atari/*)"], ["env=glob(atari/*)", "no job"]),
    (["-m", "device=cpu,auto"], ["device=cpu", "device=auto", "the same run"]),
    (["-m", "seed=0,-1"], ["job 1", "seed=-1"]),
    (["risk=cvar", "variant=time_aware"], ["risk=", "variant="]),
    (
        ["discount=cir", "agent=multihorizon", "horizons.quadrature=lower"],
        ["discount=", "horizons.quadrature="],
    ),
]


@pytest.mark.parametrize(("arguments", "parts"), FAST_REFUSALS)
def test_a_mistake_is_one_line_and_leaves_no_files(tmp_path, arguments, parts):
    mistake(tmp_path, arguments, parts)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "parts"), SLOW_REFUSALS)
def test_another_mistake_is_one_line_and_leaves_no_files(tmp_path, arguments, parts):
    mistake(tmp_path, arguments, parts)


def mistake(tmp_path, arguments, parts):
    done = rigor_train(*arguments, cwd=tmp_path)
    refused(done, *parts)
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["device=cuda"], ["device=cuda", "device=cpu"]),
        (
            [
                "env=atari/breakout",
                "learner=replay",
                "train.steps=10_000_000",
                "train.replay_capacity=10_000_000_000",
            ],
            ["train.replay_capacity=10000000000: needs ", " GB", "train.replay_capacity="],
        ),
    ],
)
def test_a_refusal_by_the_machine_leaves_nothing(tmp_path, arguments, parts):
    if "device=cuda" in arguments and shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    done = rigor_train(*TINY, *arguments, "out=out", cwd=tmp_path)
    refused(done, *parts)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_an_unwritable_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for out, more in (("/proc/runs", []), ("file/runs", ["-m"])):
        done = rigor_train(*TINY, f"out={out}", *more, cwd=tmp_path)
        refused(done, out, "out=DIR")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- help and output ------------------------------------------------------------------------------


def test_the_help_lists_the_choices_and_loads_nothing_heavy(tmp_path):
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = finish(start_anew("--help", cwd=tmp_path, env=env))
    imported = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert done.code == 0
    assert not imported & {"torch", "scipy", "gymnasium", "wandb", "matplotlib", "pandas"}
    assert "hydra" in imported
    for group in ("env", "discount", "horizons", "risk", "variant", "agent", "network"):
        assert f"\n  {group}: " in done.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_config_can_be_shown(tmp_path):
    done = rigor_train("env=atari/pong", "--cfg", "job", "seed=7", "--resolve", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "game: pong\n" in done.out
    assert "seed: 7\n" in done.out
    assert "life_loss: terminal\n" in done.out
    assert list(tmp_path.iterdir()) == []


SAVING = (*TINY, "out=out", "train.checkpoint_every=50")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The directory of a finished run of SAVING; `screen` holds its output on 80 columns."""
    place = tmp_path_factory.mktemp("trained")
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
def test_a_terminal_of_80_columns_shows_a_bar(trained):
    text = (trained / "screen").read_text()
    for part in (ANSI, "━", "100%", "300/300"):
        assert part in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    drawn = [line for line in re.split(r"[\r\n]+", plain) if "━" in line]
    assert max(map(len, drawn)) <= 80


# --- a run ----------------------------------------------------------------------------------------


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
def test_a_directory_of_another_config_is_refused_and_a_locked_one_too(tmp_path, trained):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
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
def test_a_corrupt_checkpoint_is_skipped(tmp_path, trained):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    run = only(tmp_path / "out")
    last = max((run / "checkpoints").glob("step_*"))
    arrays = last / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-100])
    (run / "status.json").unlink()
    done = rigor_train(*SAVING, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert f"{last.name} cannot be used" in done.out
    assert "resumed at step " in done.out
    assert rows(run) == rows(only(trained / "out"))
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


# --- options of the user --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_users_own_discount_is_fitted(tmp_path, user):
    """`test_docs.py` runs the example of `docs/own_discount.md`."""
    own = ("--config-dir", "conf", "discount=half_life")
    done = rigor_train(*own, *TINY, "agent=multihorizon", "out=out", cwd=tmp_path, env=user)
    assert (done.code, done.err) == (0, "")
    run = only(tmp_path / "out")
    assert run.name.startswith("cartpole-multihorizon-half_life-mean-time_consistent-s0-")
    result = read(run / "result.json")
    # half-life 7: the sum of a long game is 1/(1 - 2^(-1/7)) = 10.6
    expected = [sum(0.5 ** (t / 7) for t in range(int(n))) for n in result["scores"]]
    assert result["objective"] == pytest.approx(sum(expected) / len(expected))
    assert "is approximated by" in (run / "train.log").read_text()  # with the error of the fit


# --- sweeps ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_and_its_repetition(tmp_path):
    command = ("env=cartpole", "-m", "seed=0,1,2", *TINY[1:], "train.steps=150", "out=out")
    done = rigor_train(*command, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert ANSI not in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = runs(tmp_path / "out")
    assert [read(run / "status.json")["state"] for run in found] == ["done"] * 3
    (directory,) = (tmp_path / "out" / "sweeps").iterdir()
    assert {path.name for path in directory.iterdir()} == {
        ".lock",
        "manifest.json",
        "table.txt",
        "learning_curves.png",
    }
    manifest = read(directory / "manifest.json")
    assert [(directory / run).resolve() for run in manifest["runs"]] == found
    table = (directory / "table.txt").read_text()
    assert table.count("done") == 3
    assert "lost" not in table
    assert done.out.count(" done ") == 3
    assert {run.name for run in found} == {path.name for path in runs(tmp_path / "out")}

    again = rigor_train(*command, cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert again.out.count("done, skipped") == 3
    assert list((tmp_path / "out" / "sweeps").iterdir()) == [directory]


@pytest.mark.slow
def test_a_failed_run_does_not_affect_other_runs_of_its_sweep(tmp_path, user):
    command = ("env=gymnasium", "env.id=mine:Fragile-v0", *TINY[1:], "train.steps=60", "out=out")
    command = (*command, "evaluate.every=1", "-m", "+env.kwargs.at=50,5000")
    done = rigor_train(*command, cwd=tmp_path, env=user)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith("rigor-train: 1 of 2 runs failed")
    assert "the sensor fell off and rolled away" in line
    states = {}
    for run in runs(tmp_path / "out"):
        status = read(run / "status.json")
        states[status["state"]] = states.get(status["state"], 0) + 1
        if status["state"] == "failed":
            failed = run
    assert states == {"done": 1, "failed": 1}
    log = (failed / "train.log").read_text()
    assert "Traceback" in log
    assert 'raise ValueError("the sensor fell off' in log
    assert "ValueError: the sensor fell off" in read(failed / "status.json")["error"]
    (directory,) = (tmp_path / "out" / "sweeps").iterdir()
    table = (directory / "table.txt").read_text()
    assert table.count("done") == 1
    assert "failed" in table
    assert "sensor" in done.out
    assert not (failed / "result.json").exists()

    alone = (*command[:-2], "+env.kwargs.at=50", "out=other")
    done = rigor_train(*alone, cwd=tmp_path, env=user)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert line.startswith("rigor-train: ValueError: the sensor fell off and rolled away; ")
    assert line.endswith(f"the traceback is in other/{failed.name}/train.log")


@pytest.mark.slow
def test_a_sweep_that_the_machine_refuses_has_exit_code_2(tmp_path):
    done = rigor_train(*TINY, "env.id=CartPol-v1", "-m", "seed=0,1", "out=out", cwd=tmp_path)
    refused(done, "2 of 2 runs failed", "env.id=CartPol-v1")
    assert done.out.count("failed") == 2
    assert "no run of the sweep began, so its directories are removed" in done.out
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_key_that_every_swept_option_has_can_be_set(tmp_path):
    exact = ("env=tabular", "agent=backward_induction", "tracker=none", "out=out", "discount.k=0.1")
    done = rigor_train(*exact, "-m", "discount=hyperbolic,generalized_hyperbolic", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    texts = [(run / "config.yaml").read_text() for run in runs(tmp_path / "out")]
    assert [text.count("k: 0.1\n") for text in texts] == [1, 1]
    done = rigor_train(*exact, "-m", "discount=hyperbolic,cir", cwd=tmp_path)
    refused(done, "job 1 ", "discount.k needs discount=", "; now discount=cir")
    done = rigor_train(*exact, cwd=tmp_path)
    refused(done, "rigor-train: discount.k needs discount=", "; now discount=exponential")


# --- stopping and resuming ------------------------------------------------------------------------

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


# --- Atari ----------------------------------------------------------------------------------------


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


def test_the_interpreter_of_the_tests_is_the_one_with_the_command():
    assert Path(COMMAND).exists()
    assert Path(COMMAND).parent == Path(sys.executable).parent


def test_a_command_without_a_choice_says_what_it_trains(tmp_path):
    process = start(cwd=tmp_path, env=environment(WANDB_MODE="disabled"))
    wait_for(lambda: list(tmp_path.glob("runs/cartpole-*/metrics.csv")), process)
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    assert done.code == 143, done
    assert done.out.startswith("no choice is named, so this trains the defaults, CartPole ")
