"""The figures that `rigor-figure` draws: from the config groups, from runs, or from one run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.config.whole_numbers import whole
from rigor.errors import UserError
from rigor.report.figures.config_options import all_options

# numpy and matplotlib are imported where they are used, so that `rigor-figure --help` is quick.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rigor.report.data.load import Run

MOST_STEPS = 100_000
"""The largest number of agent steps over which discounts are drawn."""

Values = Mapping[str, str]


@dataclass
class CatalogueEntry:
    """A figure that can be drawn.

    Attributes:
      description: what the figure shows.
      draw: returns the figure, from a directory (None for none) and the values.
      takes: RUN_DIR, SWEEP, [SWEEP] if it is optional, or empty if the figure needs no directory.
      keys: of the values that the figure takes; `GROUP.` stands for `OPTION.PARAMETER=value` of
        every option of that config group.
      number: of the paper's figure.
    """

    description: str
    draw: Callable[[Path | None, Values], "Figure"]
    takes: str = ""
    keys: tuple[str, ...] = ()
    number: str = ""


def discounts(directory: Path | None, values: Values) -> "Figure":
    """Draw every discount of the config group, with default parameters unless changed."""
    from rigor.report.figures.discounts_and_utilities import discount_curves

    given = values.get("steps", "100")
    try:
        steps = whole(given)
    except ValueError:
        steps = 0
    if not 1 <= steps <= MOST_STEPS:
        raise UserError(f"steps={given}: must be a whole number of agent steps, 1 to {MOST_STEPS}")
    return discount_curves(all_options("discount", values), steps)


def utilities(directory: Path | None, values: Values) -> "Figure":
    """Draw the utility of every risk measure of the config group."""
    from rigor.report.figures.discounts_and_utilities import utility_curves

    return utility_curves(all_options("risk", values))


def policy(directory: Path | None, values: Values) -> "Figure":
    """Draw the portfolios and goals of an exact agent on `env=gbwm`."""
    from rigor.envs.wealth import Wealth
    from rigor.report.figures.wealth_policy import policy_map

    run, env = _run("policy", directory, "policy.npz", Wealth, "gbwm")
    table: Any = run.policy()
    costs = {env.early_time: env.early_cost, env.periods: env.late_cost}
    # Episodes spend their time between these limits; the model's grid is much wider.
    limits = min(env.wealth, *costs.values()) / 3, 1.5 * max(env.wealth, sum(costs.values()))
    return policy_map(
        table.model.observations(0)[:, 0].astype(float),
        table.tables.actions,
        table.tables.offsets,
        len(env.weights),
        costs,
        env.wealth,
        limits,
        f"Portfolios and goals of {_name(run)}",
    )


def boundary(directory: Path | None, values: Values) -> "Figure":
    """Draw the prices at which an exact agent on `env=american_put` exercises."""
    from rigor.envs.american_put import AmericanPut
    from rigor.report.figures.exercise_boundary import boundary_figure

    run, env = _run("boundary", directory, "policy.npz", AmericanPut, "american_put")
    table: Any = run.policy()
    return boundary_figure(
        table.model.observations(0)[:, 0].astype(float),
        table.tables.actions,
        env.strike,
        env.start,
        env.maturity / env.steps,
        f"Exercise boundary of {_name(run)}",
    )


def outcomes(directory: Path | None, values: Values) -> "Figure":
    """Draw the distribution of a run's discounted return, with its mean, objective and −c₀*."""
    from rigor.report.figures.return_distributions import (
        distribution_figure,
        read_outcomes,
        reward_unit,
    )

    run, env = _run("outcomes", directory, "outcomes.npz")
    returns, probabilities = read_outcomes(run.path / "outcomes.npz")
    risk = run.built().risk
    objective = float(risk.oce(returns, probabilities)[0])
    marks = {"mean": float(probabilities @ returns), "objective": objective}
    stock = (run.result or {}).get("initial_stock_optimal")
    if risk.needs_stock and isinstance(stock, int | float) and math.isfinite(stock):
        marks["−c₀*"] = -float(stock)
    title = f"Discounted return of {_name(run)}"
    return distribution_figure(returns, probabilities, marks, reward_unit(env), title)


def put_consistency(directory: Path | None, values: Values) -> "Figure":
    """Draw learning curves on the put beside the values of exact agents."""
    from rigor.report.data.runs import is_put
    from rigor.report.figures.sweep_figures import consistency

    assert directory is not None
    return consistency(directory, is_put, "american_put")


def lander_consistency(directory: Path | None, values: Values) -> "Figure":
    """Draw learning curves on the windy lunar lander."""
    from rigor.report.data.runs import is_lander
    from rigor.report.figures.sweep_figures import consistency

    assert directory is not None
    return consistency(directory, is_lander, "windy_lunar_lander")


def preference_reversal(directory: Path | None, values: Values) -> "Figure":
    """Draw the exact probabilities of the two goals, and those of learned runs if given."""
    from rigor.envs.wealth import SCALINGS
    from rigor.report.data.runs import find, load
    from rigor.report.figures.goal_probabilities import learned_rows, solve
    from rigor.report.figures.preference_reversal import reversal_figure

    scaling = values.get("scaling", "volatility")
    if scaling not in SCALINGS:
        raise UserError(f"scaling={scaling}: choose {' or '.join(SCALINGS)}")
    learned = []
    if directory:
        learned = learned_rows([load(path) for path in find([directory])], scaling)
        if not learned:
            raise UserError(
                f"{directory}: holds no finished learned run of the paper's wealth problems with "
                f"risk=mean or risk=cvar and env.scaling={scaling}"
            )
    return reversal_figure(solve(scaling), learned, f"Two goals, {scaling} scaling")


def improvement(directory: Path | None, values: Values) -> "Figure":
    """Draw the comparison of every two agents, or with the agents of a baseline."""
    from rigor.report.figures.sweep_figures import improvement_bars

    assert directory is not None
    baseline = values.get("baseline")
    if baseline is None:
        return improvement_bars(directory)
    key, _, value = baseline.partition("=")
    if not key or not value:
        raise UserError(f"baseline={baseline}: must be KEY=VALUE, such as variant=time_aware")
    return improvement_bars(directory, (key, value))


def improvement_time_aware(directory: Path | None, values: Values) -> "Figure":
    """Draw the improvement over the time-aware agent."""
    return improvement(directory, {"baseline": "variant=time_aware"})


def atari_curves(directory: Path | None, values: Values) -> "Figure":
    """Draw the learning curves of all Atari games of a sweep."""
    from rigor.report.figures import sweep_figures

    assert directory is not None
    return sweep_figures.atari_curves(directory)


def _run(
    figure: str, directory: Path | None, file: str, kind: type = object, option: str = ""
) -> tuple["Run", Any]:
    """Return a run and its environment.

    Raises:
      UserError: the directory is no run, or the run has another environment, or lacks the file.
    """
    from rigor.report.data import runs
    from rigor.report.data.load import load

    assert directory is not None
    run = load(directory)
    env = run.built().env
    if not isinstance(env, kind):
        found = runs.load(directory).choices["env"]
        raise UserError(
            f"{directory}: figure {figure} needs env={option}, and this run has env={found}"
        )
    if not (directory / file).is_file():
        raise UserError(
            f"{directory}: figure {figure} needs the file {file}, which only a finished run of an "
            "exact agent has, such as agent=backward_induction"
        )
    return run, env


def _name(run: "Run") -> str:
    from rigor.runs.directory import RunDirectory

    return RunDirectory(run.path).name()


FIGURES = {
    "put_consistency": CatalogueEntry(
        "learning the put, and exact values", put_consistency, "SWEEP", number="1a"
    ),
    "lander_consistency": CatalogueEntry(
        "learning the windy lunar lander", lander_consistency, "SWEEP", number="1b"
    ),
    "utilities": CatalogueEntry(
        "the utility f of every risk", utilities, keys=("risk.",), number="2"
    ),
    "preference_reversal": CatalogueEntry(
        "P of both goals of wealth, exact",
        preference_reversal,
        "[SWEEP]",
        keys=("scaling",),
        number="3ab",
    ),
    "improvement": CatalogueEntry(
        "agents compared, game by game", improvement, "SWEEP", keys=("baseline",), number="4"
    ),
    "discounts": CatalogueEntry(
        "every d_t; paper: hyperbolic.k=0.01", discounts, keys=("steps", "discount."), number="5"
    ),
    "improvement_time_aware": CatalogueEntry(
        "over the time-aware agent", improvement_time_aware, "SWEEP", number="6"
    ),
    "atari_curves": CatalogueEntry(
        "learning curves of all games", atari_curves, "SWEEP", number="7"
    ),
    "policy": CatalogueEntry("an exact agent's portfolios and goals", policy, "RUN_DIR"),
    "boundary": CatalogueEntry("when an exact agent exercises the put", boundary, "RUN_DIR"),
    "outcomes": CatalogueEntry("an exact agent's return distribution", outcomes, "RUN_DIR"),
}
