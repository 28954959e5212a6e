"""Hydra sweeper of `rigor-train`: it composes, checks and names a sweep before it starts.

Hydra accepts plugins only from the package `hydra_plugins`. Its basic sweeper accepts sweeps
without a job and keeps no record. This sweeper writes a manifest, skips finished runs, and ends
with a table and a figure.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from rigor.config.groups import SCHEMAS
from rigor.errors import UserError
from rigor.launch import sweep
from rigor.launch.compose import Composer
from rigor.launch.importable import refuse_unimportable
from rigor.runs import relatives
from rigor.runs.job import Job

MOST_VALUES = 100_000
"""Values of a range; a sweep has a directory for each."""


class RigorSweeper(Sweeper):
    """Expands a sweep and checks every job, then launches the unfinished ones.

    Args:
      params: swept values of an experiment file; values on the command line replace them.
      rows: further swept values, for an experiment that is not a product: the sweep consists of the
        product of `params` with the first row, then with the second, and so on.
      report: whether to write the page of `rigor-report` at the end of the sweep; ignored if a
        cluster continues the sweep without this process.
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
        """Receive the context, the task and the config from Hydra."""
        self.context: HydraContext = hydra_context
        self.composed: DictConfig = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the sweep that `arguments`, `params` and `rows` describe.

        A sweep over experiments is the union of their sweeps.

        Raises:
          UserError: there is no job, two jobs have the same hash, or a job is refused; no run has
            started.
          SweepFailed: some runs failed; the others have ended.
        """
        overrides = self._expand(arguments)
        jobs = Composer(self.context.config_loader, self.composed).jobs(overrides)
        if len(self.rows) > 1 or self._experiments(
            arguments
        ):  # values on the command line can make rows equal
            first = {job.digest: i for i, job in reversed(list(enumerate(jobs)))}
            kept = sorted(first.values())
            jobs, overrides = [jobs[i] for i in kept], [overrides[i] for i in kept]
        sweep.refuse_duplicates(jobs, overrides)
        order = _first_seeds_first(jobs)
        jobs, overrides = [jobs[i] for i in order], [overrides[i] for i in order]
        if line := relatives.hint(jobs):
            print(line, flush=True)
        try:
            self._launch(jobs, overrides)
        except sweep.SweepFailed:  # the other runs are done
            self._report(jobs)
            raise
        self._report(jobs)

    def _report(self, jobs: list[Job]) -> None:
        cluster = getattr(self.launcher, "cluster", None)
        ended = cluster is None or (cluster.wait and not cluster.dry_run)
        if self.report and ended:
            sweep.report(jobs)

    def _launch(self, jobs: list[Job], overrides: list[list[str]]) -> None:
        if hasattr(self.launcher, "launch_sweep"):  # a launcher of rigor, which takes jobs
            refuse_unimportable(jobs)
            self.launcher.launch_sweep(jobs, overrides)
            return
        with sweep.prepared(jobs, overrides, {"name": "basic"}) as directory:
            named = [[*override, f"sweep={directory.name}"] for override in overrides]
            returns = self.launcher.launch(named, initial_job_idx=0)
        failed = JobStatus.FAILED
        ended = [r._return_value if r.status == failed else None for r in returns]
        sweep.remove_refused(jobs, directory, ended)
        sweep.raise_failures(ended)

    def _expand(self, arguments: list[str]) -> list[list[str]]:
        """Return the overrides of every job: the products of the swept values."""
        products = self._products(arguments)
        return [job for values, given in products for job in self._product(values, given)]

    def _products(self, arguments: list[str]) -> Iterator[tuple[dict[str, Any], list[str]]]:
        """Yield the swept values of every row, and the arguments, which replace them.

        Raises:
          UserError: one of several experiments needs another launcher than the sweep has.
        """
        named = self._experiments(arguments)
        if not named:
            for row in self.rows:
                yield {**self.params, **row}, arguments
        for name in named:
            own = self._experiment(name)
            self.report |= own.report
            rest = [text for text in arguments if not text.startswith("experiment=")]
            for row in own.rows:
                yield {**own.params, **row}, [f"experiment={name}", *rest]

    def _experiments(self, arguments: list[str]) -> list[str]:
        """Return the experiments over which the arguments sweep, none if they name only one."""
        given = self._parser().parse_overrides(arguments)
        return [
            option
            for override in given
            if override.key_or_group == "experiment" and override.is_sweep_override()
            for option in override.sweep_string_iterator()
        ]

    def _experiment(self, name: str) -> "RigorSweeper":
        """Return a sweeper of one experiment's sweep."""
        composed = self.context.config_loader.load_configuration(
            self.composed.hydra.job.config_name,
            [f"experiment={name}", *self.composed.hydra.overrides.hydra],
            run_mode=RunMode.MULTIRUN,
        )
        if composed.hydra.launcher != self.composed.hydra.launcher:
            launcher = composed.hydra.runtime.choices["hydra/launcher"]
            raise UserError(
                f"experiment={name}: it runs with hydra/launcher={launcher}, and the other "
                f"experiments need not; add hydra/launcher={launcher}, or another one, for all"
            )
        own = composed.hydra.sweeper
        return RigorSweeper(own.params, own.rows, own.report)

    def _parser(self) -> OverridesParser:
        options: Any = _Options(self.context.config_loader)  # all that a parser asks of a loader
        return OverridesParser.create(config_loader=options)

    def _product(self, params: dict[str, Any], arguments: list[str]) -> list[list[str]]:
        parser = self._parser()
        typed = {override.key_or_group for override in parser.parse_overrides(arguments)}
        # discount=hyperbolic on the command line also removes a row's discount.gamma
        kept = [
            f"{key}={value}"
            for key, value in params.items()
            if key not in typed and key.partition(".")[0] not in typed & set(params)
        ]
        parsed = parser.parse_overrides(kept + arguments)
        for override in parsed:
            if not override.is_sweep_override():
                continue
            _count_in_decimals(override)
            _refuse_endless_range(override)
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


def _first_seeds_first(jobs: Sequence[Job]) -> list[int]:
    """Return the numbers of jobs in the order of their seeds, otherwise as they are.

    A sweep that stops early has then compared everything on its first seeds.
    """
    seeds = [job.plain["seed"] for job in jobs]
    rank = {seed: i for i, seed in enumerate(dict.fromkeys(seeds))}
    return sorted(range(len(jobs)), key=lambda i: rank[seeds[i]])


class _Options:
    """The options of groups for a `glob`, without the schemas, which Hydra lists as options too."""

    def __init__(self, loader: ConfigLoader) -> None:
        self._loader = loader

    def get_group_options(self, group: str, results_filter: ObjectType | None) -> list[str]:
        """Return the options that have a YAML file."""
        schemas = {cls.__name__ for cls in SCHEMAS.get(group, ())}
        found = self._loader.get_group_options(group, results_filter)
        return [option for option in found if option not in schemas]


def _count_in_decimals(override: Override) -> None:
    """Let range(0.1,0.4,0.1) be 0.1, 0.2, 0.3: Hydra adds floats, and ends with 0.4."""
    swept = override.value()
    if isinstance(swept, RangeSweep):
        for key in ("start", "stop", "step"):
            if isinstance(number := getattr(swept, key), float):
                setattr(swept, key, Decimal(repr(number)))


def _refuse_endless_range(override: Override) -> None:
    """Refuse a range without an end, or with so many values that listing them takes all memory."""
    swept = override.value()
    if not isinstance(swept, RangeSweep):
        return
    if swept.step == 0:
        raise UserError(f"{override.input_line}: the step of a range must not be 0")
    assert swept.start is not None
    assert swept.stop is not None
    if (n := (float(swept.stop) - float(swept.start)) / float(swept.step)) > MOST_VALUES:
        raise UserError(
            f"{override.input_line}: expands to {n:,.0f} values, of at most {MOST_VALUES:,}"
        )


@dataclass
class SweeperConf:
    """Schema of `hydra/sweeper=rigor`."""

    _target_: str = "hydra_plugins.rigor.sweeper.RigorSweeper"
    params: dict[str, Any] | None = field(default_factory=dict)
    rows: list[Any] | None = field(default_factory=list)
    report: bool = False


ConfigStore.instance().store(group="hydra/sweeper", name="rigor", node=SweeperConf)
