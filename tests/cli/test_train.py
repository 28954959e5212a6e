"""The arguments of `rigor-train`, its refusals and its help, in subprocesses."""

import os
import shutil
import signal
import sys
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
