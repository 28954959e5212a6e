"""One trained agent at every level of its risk measure, beside the exact frontier."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rigor.config.config import episodes_for
from rigor.errors import UserError
from rigor.exact.outer_search import objective_of, optimum
from rigor.exact.policy_evaluation import learned_outcome
from rigor.exact.solve import solve_at_level
from rigor.learning.evaluate import interval
from rigor.maths.utility import RiskLevel, other_level, tail_of
from rigor.report.data.load import initial_observations
from rigor.report.evaluation.protocol import (
    EvaluatedPolicy,
    EvaluationRequest,
    load_policy,
    locked_place,
)
from rigor.report.evaluation.recording import Progress, record_episodes
from rigor.report.figures.style import COLOURS, dress, new_figure, save_png
from rigor.runs.disk import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Distribution = tuple[np.ndarray, np.ndarray]  # returns, ascending, and probabilities, [k] each


@dataclasses.dataclass
class Frontier:
    """A policy at several levels of its risk measure.

    Attributes:
      table: one row for each level: `level`, `initial_stock`, `objective` (of that level) with
        `objective_low` and `objective_high`, `mean`, `optimum` (nan without a model), `episodes`
        (0 where the value is exact).
      distributions: of the discounted return at each level.
      notes: what a reader must know. files: written.
    """

    table: pd.DataFrame
    distributions: list[Distribution]
    notes: list[str]
    files: list[Path]

    def text(self) -> str:
        """Return the table, the notes and the files for a terminal."""
        solved = bool(self.table["optimum"].notna().any())
        lines = [
            "level      c0         objective  95 % interval          mean       "
            + "optimum" * solved
        ]
        for row in self.table.itertuples():
            low, high = f"{row.objective_low:.4g}", f"{row.objective_high:.4g}"
            between = "none" if np.isnan(row.objective_low) else f"[{low}, {high}]"
            between = between if row.episodes else "exact"
            best = "" if np.isnan(row.optimum) else f"{row.optimum:.4g}"
            lines.append(
                f"{row.level:<10g} {row.initial_stock:<10.4g} {row.objective:<10.4g} {between:<22} "
                f"{row.mean:<10.4g} {best}"
            )
        return "\n".join([*lines, "", *self.notes, *map(str, self.files)])


def write_frontier(
    directory: Path,
    levels: Sequence[float],
    request: EvaluationRequest,
    out: Path | None,
    progress: Progress = lambda episodes, total, steps: None,
) -> Frontier:
    """Evaluate a run's policy at other levels of its risk measure; write a table and a figure.

    Where the problem has a model, values are exact and the optimum of each level stands beside
    them. Otherwise each level plays at least `request.episodes` episodes, and MIN_TAIL in the tail.

    Raises:
      UserError: there is no policy, or it does not serve these levels.
    """
    policy = load_policy(directory, request)
    served = [_served(policy, level) for level in levels]
    starts = initial_observations(policy.config) if policy.agent else None
    with locked_place(policy, request, out, levels) as place:
        rows, distributions = [], []
        over_all = _OverLevels(request, served, progress)
        for level, one in zip(levels, served, strict=True):
            row, distribution = _at_level(policy, one, starts, request, over_all)
            rows.append({"level": level, **row})
            distributions.append(distribution)
        files = [place / "frontier.csv", place / "frontier.png"]
        found = Frontier(pd.DataFrame(rows), distributions, _notes(policy, levels), files)
        text = found.table.to_csv(index=False, lineterminator="\n", float_format="%.8g")
        atomic_write(files[0], text)
        figure = frontier_figure(found, policy)
        save_png(figure, place / ".frontier.partial.png").replace(files[1])
    return found


def _served(policy: EvaluatedPolicy, level: float) -> RiskLevel:
    try:
        return other_level(policy.config.risk, level)
    except ValueError as error:
        risk = policy.config.option("risk")
        raise UserError(f"--risk-levels {level:g} with risk={risk}: {error}") from error


def _at_level(
    policy: EvaluatedPolicy,
    level: RiskLevel,
    starts: np.ndarray | None,
    request: EvaluationRequest,
    progress: Progress,
) -> tuple[dict[str, float], Distribution]:
    """Return the row of one level, and the distribution of its return."""
    config, agent = policy.config, policy.agent
    if agent is None:
        solution = solve_at_level(config, level)
        outcome, c0 = solution.outcome, float(solution.metrics["initial_stock"])
        best = float(solution.metrics["objective_optimal"])
    else:
        assert starts is not None
        agent.initial_stock = agent.stock_at_level(starts, level)
        c0, problem = agent.initial_stock - level.shift, config.env.problem
        if problem is None or problem.model is None or problem.n_decisions is None:
            return _played(policy, level, c0, request, progress)
        learned = learned_outcome(config, agent)
        outcome, most = learned.outcome, config.exact.max_stocks
        best = optimum(learned.model, learned.factors, level.utility, most).value
    value = objective_of(level.utility, outcome)
    mean = float(outcome.probabilities @ outcome.returns)
    row = _row(c0, value, value, value, mean, best, 0)
    return row, (outcome.returns, outcome.probabilities)


def _played(
    policy: EvaluatedPolicy,
    level: RiskLevel,
    c0: float,
    request: EvaluationRequest,
    progress: Progress,
) -> tuple[dict[str, float], Distribution]:
    episodes = _episodes(request, level)
    sums, _ = record_episodes(policy, dataclasses.replace(request, episodes=episodes), progress)
    returns = np.sort(sums.discounted)
    found = interval(returns, lambda x: level.utility.oce(x)[0], tail_of(level.utility))
    ends = found.value, found.low, found.high
    row = _row(c0, *ends, float(returns.mean()), np.nan, episodes)
    return row, (returns, np.full(episodes, 1.0 / episodes))


def _episodes(request: EvaluationRequest, level: RiskLevel) -> int:
    """Return how many episodes a level plays."""
    return max(request.episodes, episodes_for(level.utility))


class _OverLevels:
    """Progress over the episodes of all levels, which are played one after the other."""

    def __init__(
        self, request: EvaluationRequest, served: Sequence[RiskLevel], progress: Progress
    ) -> None:
        self._progress = progress
        self._total = sum(_episodes(request, level) for level in served)
        self._episodes = self._steps = 0  # of the levels before

    def __call__(self, episodes: int, total: int, steps: int) -> None:
        self._progress(self._episodes + episodes, self._total, self._steps + steps)
        if episodes == total:
            self._episodes, self._steps = self._episodes + total, self._steps + steps


def _row(
    c0: float, value: float, low: float, high: float, mean: float, best: float, episodes: int
) -> dict[str, float]:
    return {
        "initial_stock": c0,
        "objective": value,
        "objective_low": low,
        "objective_high": high,
        "mean": mean,
        "optimum": best,
        "episodes": episodes,
    }


def _notes(policy: EvaluatedPolicy, levels: Sequence[float]) -> list[str]:
    """Return a line for each fact that a reader of the frontier must know."""
    notes = []
    tau = getattr(policy.config.risk, "tau", None)
    quantiles = policy.agent.config.agent.quantiles if policy.agent else 0
    few = [level for level in levels if tau and quantiles > 1 and level * quantiles < 2]
    if few:
        notes.append(
            f"agent.quantiles={quantiles} puts fewer than two quantiles into the tail of "
            f"{', '.join(f'{level:g}' for level in few)}; train with more quantiles"
        )
    if tau:
        notes.append(
            "compare each level by its own objective: policies of equal CVaR may have other means"
        )
    return notes


def frontier_figure(found: Frontier, policy: EvaluatedPolicy) -> "Figure":
    """Return the objective of each level, learned on exact, and the distributions of the return."""
    table = found.table.sort_values("level")
    key = "tau" if hasattr(policy.config.risk, "tau") else "kappa"
    figure = new_figure(9.0, 4.2, f"Risk levels of {policy.title}")
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        dress(axes)
    if table.optimum.notna().any():
        left.plot(table.level, table.optimum, color="black", label="optimum", zorder=1)
    errors = np.abs(table[["objective_low", "objective_high"]].sub(table.objective, axis=0)).T
    left.errorbar(
        table.level,
        table.objective,
        yerr=errors,
        fmt="o",
        color=COLOURS[0],
        label="this policy",
        capsize=3,
    )
    left.set_xscale("log")
    left.set_xlabel(f"level (risk.{key})")
    left.set_ylabel("objective of the level")
    left.legend()
    for i, (level, (returns, probabilities)) in enumerate(
        zip(found.table.level, found.distributions, strict=True)
    ):
        right.step(
            returns,
            np.cumsum(probabilities),
            where="post",
            color=COLOURS[i % len(COLOURS)],
            label=f"{level:g}",
        )
    right.set_xlabel("discounted return")
    right.set_ylabel("probability of at most this return")
    right.legend(title=f"risk.{key}")
    return figure
