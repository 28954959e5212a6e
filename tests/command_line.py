"""The real command line in a process of its own with small runs, and composing in this one."""

import copy
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from preloaded import Fork, preloaded

import hydra_plugins.rigor.launchers
import hydra_plugins.rigor.sweeper  # noqa: F401  registers the sweeper that conf/ names
from rigor.config import config

DISCOUNTS = (
    "capped",
    "cir",
    "exponential",
    "generalized_hyperbolic",
    "hyperbolic",
    "quasi_hyperbolic",
    "tail_integral",
)
KNOWN_MIXTURES = ("hyperbolic", "generalized_hyperbolic", "tail_integral")
RISKS = ("cvar", "entropic", "mean", "mean_cvar", "mean_variance")
VARIANTS = ("time_aware", "time_consistent", "time_inconsistent")

COMMAND = str(Path(sys.executable).with_name("rigor-train"))
TINY = (
    "env=cartpole",
    "tracker=none",
    "train.steps=300",
    "train.batch_size=16",
    "train.log_every=0.1",
    "agent.quantiles=5",
    "evaluate.every=0.5",
    "evaluate.episodes=1",  # a single episode has no bootstrap interval, which takes long
    "evaluate.final_episodes=1",
)
"""The smallest run; most of its time is imports."""


@dataclass
class Done:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment variables, without those that change the output."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("WANDB", "FORCE_"))
    }
    return kept | {"COLUMNS": "120"} | more


def start(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, name: str = "train"
) -> Fork:
    """Start a command, such as `rigor-train`, in a process that need not import torch."""
    argv = [str(Path(sys.executable).with_name(f"rigor-{name}")), *map(str, arguments)]
    return preloaded().start(f"rigor.cli.{name}", argv, cwd, env or environment())


def start_anew(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, **options
) -> subprocess.Popen:
    """Start `rigor-train` in a new interpreter, as a user does."""
    return subprocess.Popen(
        [COMMAND, *arguments],
        cwd=cwd,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def rigor_train(*arguments: str, cwd: Path, timeout: float = 600, **options) -> Done:
    """Run `rigor-train` to its end, in a process that need not import torch."""
    return finish(start(*arguments, cwd=cwd, **options), timeout)


def finish(process: Fork | subprocess.Popen, timeout: float = 600) -> Done:
    """Wait for the end of a started command."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {timeout} s\n{out}\n{err}") from None
    return Done(process.returncode, out, err)


def wait_for(condition, process: Fork | subprocess.Popen, seconds: float = 300):
    """Poll `condition()` until it is true, and return it; the process must stay alive."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"not within {seconds} s: {process.communicate()}")


def refused(done: Done, *parts: str) -> None:
    """Assert exit code 2 and one line of error output with every part."""
    lines = done.err.splitlines()
    assert len(lines) == 1, done
    assert lines[0].startswith("rigor-train: "), done
    for part in parts:
        assert part in lines[0], (part, lines[0])
    assert done.code == 2, done


def composed(*overrides: str) -> DictConfig:
    """Compose a configuration as the command line does, with its `hydra` node."""
    config.register()
    with initialize_config_module("rigor.conf", version_base="1.3"):
        return compose("train", list(overrides), return_hydra_config=True)


def choices(one: DictConfig) -> dict[str, str]:
    """Return the option chosen in each group."""
    return dict(one.hydra.runtime.choices)


def changed(one: DictConfig, **values) -> DictConfig:
    """Return a copy with other values or nodes; `train__steps` is the key `train.steps`."""
    one = copy.deepcopy(one)
    for key, value in values.items():
        OmegaConf.update(one, key.replace("__", "."), value, merge=False)
    return one
