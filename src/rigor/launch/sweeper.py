"""The sweeper: every job composed, checked and named before the first one starts.

Hydra's basic sweeper accepts a sweep that expands to nothing, knows no directories, and forgets
what ran. This one writes a manifest, skips what is done, and ends with a table and a picture.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rigor.errors import UserError
from rigor.launch.job import Job, job
from rigor.tracking.rundir import atomic_write


class SweepFailed(Exception):
    """Some runs of a sweep failed; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class RigorSweeper(Sweeper):
    """Expand a sweep, refuse it whole or launch what is not done yet.

    Args:
      params: swept values that an experiment file brings; the command line's replace them.
    """

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = dict(params or {})

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Receive what Hydra hands to its plugins."""
        self.context, self.config = hydra_context, config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[JobReturn]:
        """Run the sweep that `arguments` and `params` describe.

        Raises:
          UserError: no job, two jobs with one hash, or a job that cannot work; nothing has started.
          SweepFailed: some runs failed; the others went on.
        """
        overrides = self._expand(arguments)
        jobs = [self._compose(number, override) for number, override in enumerate(overrides)]
        _refuse_twins(jobs, overrides)
        directory = sweep_directory(jobs)
        directory.mkdir(parents=True, exist_ok=True)
        manifest = {
            "overrides": overrides,
            "runs": [str(one.path) for one in jobs],
            "hashes": [one.digest for one in jobs],
        }
        atomic_write(directory / "manifest.json", json.dumps(manifest, indent=1))
        named = [[*override, f"sweep={directory.name}"] for override in overrides]
        returns: Sequence[JobReturn] = []
        try:
            returns = self.launcher.launch(named, initial_job_idx=0)
        finally:
            # however it ended, a stop by the user included: what there is is shown
            summarise([one.path for one in jobs], directory)
        _raise_failures(returns)
        return list(returns)

    def _expand(self, arguments: list[str]) -> list[list[str]]:
        """Return the overrides of every job: the product of the swept values."""
        given = [f"{key}={value}" for key, value in self.params.items()] + arguments
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        parsed = parser.parse_overrides(given)
        for override in parsed:
            if override.is_sweep_override() and override.is_discrete_sweep():
                if not list(override.sweep_string_iterator()):
                    raise UserError(
                        f"{override.input_line}: expands to no value, so the sweep has no job"
                    )
        batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        overrides = list(itertools.chain.from_iterable(batches))
        if not overrides:
            raise UserError("the sweep expands to no job")
        return overrides

    def _compose(self, number: int, override: list[str]) -> Job:
        """Compose and check one job; its error says which."""
        composed = self.context.config_loader.load_sweep_config(self.config, override)
        try:
            return job(composed, composed.hydra.runtime.choices)
        except (UserError, HydraException) as error:
            raise UserError(f"job {number} ({' '.join(override)}): {error}") from error


@dataclass
class SweeperConf:
    """Schema of `hydra/sweeper=rigor`."""

    _target_: str = "rigor.launch.sweeper.RigorSweeper"
    params: dict[str, Any] | None = field(default_factory=dict)


def register() -> None:
    """Make the sweeper known to Hydra."""
    Plugins.instance().register(RigorSweeper)
    ConfigStore.instance().store(group="hydra/sweeper", name="rigor", node=SweeperConf)


def sweep_directory(jobs: list[Job]) -> Path:
    """Return `out/sweeps/<name>`: the choices that all jobs share, and a hash of their hashes."""
    shared = [
        value.rpartition("/")[2]
        for group, value in jobs[0].choices.items()
        if all(one.choices.get(group) == value for one in jobs)
    ]
    digest = hashlib.sha256("".join(sorted(one.digest for one in jobs)).encode()).hexdigest()
    name = "-".join([*shared, f"{len(jobs)}runs", digest[:8]])
    return Path(jobs[0].config.out) / "sweeps" / name


def summarise(paths: list[Path], directory: Path) -> None:
    """Print the table of some runs, and write it and the learning curves into `directory`."""
    from rich.console import Console

    from rigor.report.figures import learning_curves
    from rigor.report.tables import collect_rows, sweep_table, table_text
    from rigor.tracking.metrics import read

    rows = collect_rows(paths)
    atomic_write(directory / "table.txt", table_text(rows, width=120))
    console = Console(soft_wrap=False)
    console.print(sweep_table(rows, width=min(console.width, 160)))
    drawn = [(path.name, read(path / "metrics.csv")) for path in paths]
    picture = learning_curves(drawn, directory / "learning_curves.png")
    console.print(f"results: {directory}\npicture: {picture}", highlight=False, soft_wrap=True)


def _refuse_twins(jobs: list[Job], overrides: list[list[str]]) -> None:
    """Refuse two jobs that would be the same run."""
    seen: dict[str, int] = {}
    for number, one in enumerate(jobs):
        if one.digest in seen:
            first = overrides[seen[one.digest]]
            raise UserError(
                f"jobs {seen[one.digest]} ({' '.join(first)}) and {number} "
                f"({' '.join(overrides[number])}) are the same run; sweep over something that "
                "changes the result"
            )
        seen[one.digest] = number


def _raise_failures(returns: Sequence[JobReturn]) -> None:
    """Raise when any job failed: code 2 if all failures were the user's, else 1."""
    errors = [r._return_value for r in returns if r.status == JobStatus.FAILED]
    if errors:
        mine = [error for error in errors if not isinstance(error, UserError)]
        raise SweepFailed(f"{len(errors)} of {len(returns)} runs failed", 1 if mine else 2)
