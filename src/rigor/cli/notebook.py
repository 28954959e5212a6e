"""Training from Python: the run that a command line describes, in this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rigor.report.data.load import Run


def train(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> "Run":
    """Train, or continue, the one run that some overrides describe, and return it.

    It is the run of `rigor-train` with the same overrides, in the same directory: a finished run
    is loaded without training, and a stopped one continues. The progress is printed.

    Args:
      overrides: as on the command line, such as `["env=cartpole", "seed=1"]`.
      config_dir: a directory with options of your own, as `--config-dir`.

    Raises:
      UserError: an override is wrong, or sweeps over several values. RunFailed: a bug.
      Stopped: Ctrl-C or SIGTERM came; the run has saved, and the same call continues it.
    """
    from rigor.launch.worker import prepare_environment

    prepare_environment()
    # imported here, so that `import rigor` is quick
    from hydra import compose, initialize_config_module
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from hydra_plugins.rigor.launchers import LocalLauncher, SlurmLauncher
    from hydra_plugins.rigor.sweeper import RigorSweeper
    from rigor.config import config, hints
    from rigor.errors import UserError
    from rigor.launch import execute
    from rigor.report.data.load import load
    from rigor.runs.job import explain, job

    if isinstance(overrides, str):
        raise UserError(f"overrides={overrides!r}: give a list of texts, such as [{overrides!r}]")
    config.register()
    for plugin in (RigorSweeper, LocalLauncher, SlurmLauncher):
        Plugins.instance().register(plugin)
    places = [f"hydra.searchpath=['file://{Path(config_dir).absolute()}']"] if config_dir else []
    try:
        for override in OverridesParser.create().parse_overrides(list(overrides)):
            if override.is_sweep_override():
                raise UserError(
                    f"{override.input_line}: describes several runs; rigor.train trains one, so "
                    "call it for each value, or use rigor-train -m"
                )
        hints.refuse_values_of_groups(list(overrides))
        with initialize_config_module("rigor.conf", version_base="1.3"):
            composed = compose("train", [*overrides, *places], return_hydra_config=True)
            _refuse_a_sweep(composed.hydra)
            checked = job(composed, composed.hydra.runtime.choices)
    except OmegaConfBaseException as error:
        raise UserError(explain(error)) from error
    except HydraException as error:
        raise UserError(hints.line(error)) from error
    execute.run(checked, composed.sweep)
    return load(checked.path)


def _refuse_a_sweep(hydra: Any) -> None:
    """Refuse an experiment and a launcher, which only a sweep of the command line can follow."""
    from rigor.errors import UserError

    for group, usual in (("experiment", None), ("hydra/launcher", "basic")):
        if (option := hydra.runtime.choices.get(group)) != usual:
            raise UserError(
                f"{group}={option}: describes several runs; rigor.train trains one in this "
                f"process, so leave it out, or use rigor-train {group}={option} -m"
            )
