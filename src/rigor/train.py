"""`rigor-train`: compose a configuration, check it, run it.

Exit codes: 0 done, 2 the user's mistake, 1 ours, 130 or 143 stopped by Ctrl-C or SIGTERM.
"""

import os
import sys
from collections.abc import Mapping

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.rigor.launchers import LocalLauncher, SlurmLauncher
from hydra_plugins.rigor.sweeper import RigorSweeper
from rigor import config
from rigor.errors import RunFailed, Stopped, UserError
from rigor.execute import run
from rigor.launch import hints, sweep
from rigor.launch.job import explain, job
from rigor.launch.process import one_thread

FLAGS_WITH_VALUE = (  # of Hydra; --info may stand without one
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


def main() -> None:
    """Run the command line and exit with its code."""
    one_thread()
    # Hydra then raises what it would otherwise print in its own way and exit 1 for
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.path.append(os.getcwd())  # where a user's own discounts and problems are
    config.register()
    for plugin in (RigorSweeper, LocalLauncher, SlurmLauncher):
        Plugins.instance().register(plugin)
    overrides, flags = split(sys.argv[1:])
    sys.argv[1:] = overrides + flags
    code, line = 0, ""
    try:
        asked = hints.flags(flags)
        if asked.help:
            print(hints.help_text(overrides, asked.config_dir))
        else:
            hints.refuse_values_of_groups(overrides)
            task()
    except UserError as error:
        code, line = 2, str(error)
    except OmegaConfBaseException as error:
        code, line = 2, explain(error)
    except HydraException as error:
        code, line = 2, hints.line(error)
    except (Ended, sweep.SweepFailed) as error:
        code, line = error.code, str(error)
    except BrokenPipeError:
        code = 1  # whoever read our output, such as `head`, has gone
    except Stopped as stopped:
        code, line = 128 + stopped.signal, str(stopped)
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    if line:
        print(f"rigor-train: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


class Ended(BaseException):
    """Carries an error past Hydra, which would print it in its own way and go on."""

    def __init__(self, error: UserError | RunFailed) -> None:
        super().__init__(str(error))
        self.code = 2 if isinstance(error, UserError) else 1


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return overrides and flags: Hydra refuses overrides on both sides of a flag such as `-m`."""
    overrides: list[str] = []
    flags: list[str] = []
    for argument in arguments:
        before = flags[-1] if flags else ""
        waits = before in FLAGS_WITH_VALUE or (before in ("--info", "-i") and "=" not in argument)
        (flags if argument.startswith("-") or waits else overrides).append(argument)
    return overrides, flags


@hydra.main(version_base="1.3", config_path="pkg://rigor.conf", config_name="train")
def task(composed: DictConfig) -> float:
    """Run one composed job, or skip it when it is done; return its objective."""
    runtime = HydraConfig.get()
    alone = runtime.mode == RunMode.RUN
    try:
        if alone:
            _refuse_a_launcher(runtime.runtime.choices)
        one = job(composed, runtime.runtime.choices)
        objective = run(one, composed.sweep)
    except (UserError, RunFailed) as error:
        if alone:
            raise Ended(error) from error
        raise
    if alone:
        sweep.summarise([one.path], one.path)
    return objective


def _refuse_a_launcher(choices: Mapping[str, str]) -> None:
    """Refuse a launcher for one run, which Hydra would start here and without a word."""
    launcher = choices.get("hydra/launcher")
    if launcher != "basic":
        raise UserError(
            f"hydra/launcher={launcher}: starts the runs of a sweep; add -m, or leave it out to "
            "run here"
        )


if __name__ == "__main__":
    main()
