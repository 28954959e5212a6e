"""Hydra's plugin of `rigor-train`: a sweep is composed, checked and named before it starts.

Hydra accepts plugins from the package `hydra_plugins` only. Its basic sweeper accepts a sweep that
expands to nothing, knows no directories, and forgets what ran; this one writes a manifest, lets
done runs be skipped, and ends with a table and a picture.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rigor.errors import UserError
from rigor.launch import sweep
from rigor.launch.compose import Composer
from rigor.launch.job import Job


class RigorSweeper(Sweeper):
    """Expand a sweep, refuse it whole or launch what is not done yet.

    Args:
      params: swept values that an experiment file brings; the command line's replace them.
      rows: more of them, for an experiment that is no product: the sweep is the product of `params`
        with each row, one row after the other.
      report: whether `rigor-report` writes its page when the sweep ends, for an experiment whose
        result is a table; not where a cluster goes on without this process.
    """

    def __init__(
        self,
        params: dict[str, Any] | None = None,
        rows: list[dict[str, Any]] | None = None,
        report: bool = False,
    ) -> None:
        self.params, self.rows = dict(params or {}), [dict(row) for row in rows or [{}]]
        self.report = report

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Receive what Hydra hands to its plugins."""
        self.context: HydraContext = hydra_context
        self.composed: DictConfig = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the sweep that `arguments` and `params` describe.

        Raises:
          UserError: no job, two jobs with one hash, or a job that cannot work; nothing has started.
          SweepFailed: some runs failed; the others went on.
        """
        overrides = self._expand(arguments)
        jobs = Composer(self.context.config_loader, self.composed).jobs(overrides)
        if len(self.rows) > 1:  # the command line may have made rows alike: each run once
            first = {one.digest: i for i, one in reversed(list(enumerate(jobs)))}
            kept = sorted(first.values())
            jobs, overrides = [jobs[i] for i in kept], [overrides[i] for i in kept]
        sweep.refuse_twins(jobs, overrides)
        try:
            self._launch(jobs, overrides)
        except sweep.SweepFailed:  # the others are done
            self._report(jobs)
            raise
        self._report(jobs)

    def _report(self, jobs: list[Job]) -> None:
        cluster = getattr(self.launcher, "cluster", None)
        ended = cluster is None or (cluster.wait and not cluster.dry_run)
        if self.report and ended:
            sweep.report(jobs)

    def _launch(self, jobs: list[Job], overrides: list[list[str]]) -> None:
        if hasattr(self.launcher, "launch_sweep"):  # one of ours: it needs no overrides
            self.launcher.launch_sweep(jobs, overrides)
            return
        with sweep.at_work(jobs, overrides, {"name": "basic"}) as directory:
            named = [[*override, f"sweep={directory.name}"] for override in overrides]
            returns = self.launcher.launch(named, initial_job_idx=0)
        failed = JobStatus.FAILED
        sweep.raise_failures([r._return_value if r.status == failed else None for r in returns])

    def _expand(self, arguments: list[str]) -> list[list[str]]:
        """Return the overrides of every job: the products of the swept values."""
        return [
            job for row in self.rows for job in self._product({**self.params, **row}, arguments)
        ]

    def _product(self, params: dict[str, Any], arguments: list[str]) -> list[list[str]]:
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        said = {override.key_or_group for override in parser.parse_overrides(arguments)}
        # discount=hyperbolic on the command line leaves a row's discount.gamma without an owner
        brought = [
            f"{key}={value}"
            for key, value in params.items()
            if key not in said and key.partition(".")[0] not in said & set(params)
        ]
        parsed = parser.parse_overrides(brought + arguments)
        for override in parsed:
            if not override.is_sweep_override():
                continue
            if not override.is_discrete_sweep():
                raise UserError(f"{override.input_line}: name the values, such as key=1,2,3")
            if not list(override.sweep_string_iterator()):
                raise UserError(
                    f"{override.input_line}: expands to no value, so the sweep has no job"
                )
        batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        overrides = list(itertools.chain.from_iterable(batches))
        if not overrides:
            raise UserError("the sweep expands to no job")
        return overrides


@dataclass
class SweeperConf:
    """Schema of `hydra/sweeper=rigor`."""

    _target_: str = "hydra_plugins.rigor.sweeper.RigorSweeper"
    params: dict[str, Any] | None = field(default_factory=dict)
    rows: list[Any] | None = field(default_factory=list)
    report: bool = False


ConfigStore.instance().store(group="hydra/sweeper", name="rigor", node=SweeperConf)
