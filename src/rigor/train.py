"""`rigor-train`: compose a configuration, check it, run it.

Exit codes: 0 done, 2 the user's mistake, 1 ours, 130 or 143 stopped by Ctrl-C or SIGTERM.
"""

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor import config
from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch import hints, sweeper
from rigor.launch.job import explain, job

FLAGS_WITH_VALUE = (
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
    # before torch is imported: a run is one thread, and idle ones must not spin
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Hydra then raises what it would otherwise print in its own way and exit 1 for
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    config.register()
    sweeper.register()
    OmegaConf.register_new_resolver("choices", hints.choices, replace=True)
    sys.argv[1:] = flags_first(sys.argv[1:])
    code, line = 0, ""
    try:
        task()
    except UserError as error:
        code, line = 2, str(error)
    except OmegaConfBaseException as error:
        code, line = 2, explain(error)
    except HydraException as error:
        code, line = 2, hints.line(error)
    except RunFailed as error:
        code, line = 1, str(error)
    except sweeper.SweepFailed as error:
        code, line = error.code, str(error)
    except Stopped as stopped:
        code, line = 128 + stopped.signal, "stopped and saved; the same command goes on from here"
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    if line:
        print(f"rigor-train: {line}", file=sys.stderr)
    sys.exit(code)


def flags_first(arguments: list[str]) -> list[str]:
    """Move flags before overrides: Hydra refuses overrides on both sides of a flag such as `-m`."""
    flags, overrides = [], []
    waiting = iter(arguments)
    for argument in waiting:
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        flags.append(argument)
        if argument in FLAGS_WITH_VALUE:
            flags += [value for value in [next(waiting, None)] if value is not None]
    return flags + overrides


@hydra.main(version_base="1.3", config_path="pkg://rigor.conf", config_name="train")
def task(composed: DictConfig) -> float:
    """Run one composed job, or skip it when it is done; return its objective."""
    runtime = HydraConfig.get()
    one = job(composed, runtime.runtime.choices)
    from rigor.tracking.rundir import RunDirectory

    directory = RunDirectory(one.path)
    if directory.is_done(one.steps):
        result = directory.result() or {}
        print(f"{one.path}: done, skipped", flush=True)
        objective = float(result.get("objective", float("nan")))
    else:
        from rigor.learning.run import execute

        objective = execute(one, composed.sweep)
    if runtime.mode == hydra.types.RunMode.RUN:
        sweeper.summarise([one.path], one.path)
    return objective


if __name__ == "__main__":
    main()
