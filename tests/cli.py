"""The real command line in a subprocess, kept small, and the composing half of it in this one."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

import hydra_plugins.rigor.launchers
import hydra_plugins.rigor.sweeper  # noqa: F401  register what conf/ names
from rigor import config

COMMAND = str(Path(sys.executable).with_name("rigor-train"))
TINY = (
    "env=cartpole",
    "tracker=none",
    "train.steps=300",
    "train.batch_size=16",
    "train.log_every=0.1",
    "agent.quantiles=5",
    "evaluate.every=0.5",
    "evaluate.episodes=1",  # of one game no interval is drawn, which takes long
    "evaluate.final_episodes=1",
)
"""A run that is little more than its imports."""


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command: this one's, without what changes its output."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("WANDB", "FORCE_"))
    }
    return kept | {"COLUMNS": "120"} | more


def start(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, **options
) -> subprocess.Popen:
    """Start `rigor-train` in a process group of its own."""
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
    """Run `rigor-train` to its end."""
    process = start(*arguments, cwd=cwd, **options)
    return finish(process, timeout)


def finish(process: subprocess.Popen, timeout: float = 600) -> Done:
    """Wait for a started command."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {timeout} s\n{out}\n{err}") from None
    return Done(process.returncode, out, err)


def wait_for(what, process: subprocess.Popen, seconds: float = 300):
    """Poll `what()` until it is true, and return it; the process must be alive until then."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"not within {seconds} s: {process.communicate()}")


def refused(done: Done, *parts: str) -> None:
    """Assert one line that a user can act on, holding every part, and exit code 2."""
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
    """Return what was chosen in each group."""
    return dict(one.hydra.runtime.choices)
