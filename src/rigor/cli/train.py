"""`rigor-train`: compose a configuration, check it and run it.

Exit codes: 0 done, 2 a mistake of the user, 1 a bug, 128 + the signal that stopped it:
130 for Ctrl-C, 143 for SIGTERM, 140 for SIGUSR2.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.rigor.launchers import LocalLauncher, SlurmLauncher
from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor.cli import command
from rigor.config import config, hints
from rigor.config.help import help_text
from rigor.errors import RunFailed, UserError
from rigor.launch import execute, sweep
from rigor.launch.manifest import new_manifest
from rigor.launch.worker import prepare_environment
from rigor.runs import relatives
from rigor.runs.job import Job, explain, job

FLAGS_WITH_VALUE = (  # of Hydra; the value of --info is optional
    "--cfg",
    "-c",
    "--config-dir",
    "-cd",
    "--config-name",
    "-cn",
    "--config-path",
    "-cp",
    "--package",
    "-p",
    "--experimental-rerun",
)

NOTHING_NAMED = """\
no choice is named, so this trains the defaults, CartPole for a minute or two; rigor-train --help
shows the choices, and the main job is: rigor-train env=atari/breakout agent=multihorizon"""


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_environment()
    command.end_with("rigor-train", run, out="out=DIR")


def run(arguments: Sequence[str]) -> None:
    """Run the jobs that the command line describes, or print the help.

    Raises:
      UserError: a mistake in the command. RunFailed: a bug, or some runs of a sweep failed.
      Stopped: a signal came; the runs have saved.
    """
    # Hydra then raises its errors instead of printing them and exiting with code 1
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    config.register()
    for plugin in (RigorSweeper, LocalLauncher, SlurmLauncher):
        Plugins.instance().register(plugin)
    overrides, flags = split(arguments)
    sys.argv[1:] = overrides + flags
    try:
        parsed = hints.flags(flags)
        if parsed.help:
            print(help_text(overrides, parsed.config_dir))
        else:
            hints.refuse_values_of_groups(overrides)
            if not arguments:
                print(NOTHING_NAMED, flush=True)
            with _finished_by_us():
                _start(overrides, flags, parsed.multirun)
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    except HydraException as error:
        raise UserError(hints.line(error)) from error
    except JobError as carried:
        raise carried.error from None


def _start(overrides: list[str], flags: list[str], multirun: bool) -> None:
    """Let Hydra run the jobs.

    For a sweep Hydra first composes a config without the swept options. This config may lack a key
    that every job has, such as discount.k with -m discount=hyperbolic,generalized_hyperbolic. Then
    the key is swept too, over its one value, so that Hydra sets it in the jobs only.
    """
    first: HydraException | None = None
    while True:
        sys.argv[1:] = overrides + flags
        try:
            return task()
        except HydraException as error:
            last = error
        first = first or last
        sweeps = multirun or any(text.startswith("experiment=") for text in overrides)
        changed = _swept(hints.missing_key(last), overrides) if sweeps else overrides
        if changed == overrides:
            raise first
        overrides = changed


def _swept(key: str | None, overrides: list[str]) -> list[str]:
    """Return overrides in which a key of a group, such as discount.k, is swept."""
    split_up = [text.partition("=") for text in overrides]
    return [
        f"{name}=choice({value})"
        if name == key and "." in name and not value.startswith("choice(")
        else f"{name}{equals}{value}"
        for name, equals, value in split_up
    ]


class JobError(BaseException):
    """Carries an error through Hydra, which would print an Exception and continue."""

    def __init__(self, error: UserError | RunFailed) -> None:
        super().__init__(str(error))
        self.error = error


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return overrides and flags: Hydra refuses overrides on both sides of a flag such as `-m`."""
    overrides: list[str] = []
    flags: list[str] = []
    for argument in arguments:
        before = flags[-1] if flags else ""
        is_value = before in FLAGS_WITH_VALUE or (
            before in ("--info", "-i") and "=" not in argument
        )
        (flags if argument.startswith("-") or is_value else overrides).append(argument)
    return overrides, flags


@hydra.main(version_base="1.3", config_path="pkg://rigor.conf", config_name="train")
def task(composed: DictConfig) -> float:
    """Run one composed job, or skip it when it is done; return its objective."""
    runtime = HydraConfig.get()
    in_sweep = runtime.mode != RunMode.RUN
    try:
        if not in_sweep:
            _refuse_a_launcher(runtime.runtime.choices)
        checked = job(composed, runtime.runtime.choices)
        if not in_sweep and (line := relatives.hint([checked])):
            print(line, flush=True)
        if in_sweep and runtime.runtime.choices.get("hydra/sweeper") != "rigor":
            _others.append((checked, list(runtime.overrides.task)))
        objective = execute.run(checked, composed.sweep)
    except (UserError, RunFailed) as error:
        if in_sweep:
            raise
        raise JobError(error) from error
    if not in_sweep:
        sweep.summarise([checked.path], checked.path)
    return objective


_others: list[tuple[Job, list[str]]] = []
"""The jobs of a sweeper other than rigor's, such as Optuna's, which keeps no record of runs."""


@contextmanager
def _finished_by_us() -> Iterator[None]:
    """Write the manifest, the table, the figures and the report of another sweeper's jobs."""
    _others.clear()
    try:
        yield
    finally:
        runs = {job.digest: (job, overrides) for job, overrides in _others}  # each run once
        if runs:
            jobs, overrides = [job for job, _ in runs.values()], [o for _, o in runs.values()]
            directory = sweep.sweep_directory(jobs)
            with sweep.claimed(directory):
                new_manifest(jobs, overrides, {"name": "basic"}, directory)
                sweep.summarise([job.path for job in jobs], directory)
                sweep.report(jobs)


def _refuse_a_launcher(choices: Mapping[str, str]) -> None:
    """Refuse a launcher without a sweep; Hydra would ignore it."""
    launcher = choices.get("hydra/launcher")
    if launcher != "basic":
        raise UserError(
            f"hydra/launcher={launcher}: launches the runs of a sweep; add -m to sweep, or "
            "leave it out to run here"
        )


if __name__ == "__main__":
    main()
