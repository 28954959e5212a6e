"""Probabilities of reaching the two goals of `env=gbwm`, of exact optimal and learned policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigor.envs.wealth import Wealth
from rigor.envs.wealth_model import WealthModel
from rigor.exact.outer_search import optimum
from rigor.maths.discount import Discount, Exponential, Hyperbolic
from rigor.maths.utility import CVaR, Mean, Utility
from rigor.report.data import published
from rigor.report.data.runs import RunRecord
from rigor.report.data.seed_intervals import mean_interval
from rigor.report.figures.config_options import working_object

# γ at which the early and the late goal have the ratio of weights of k = .05, by T (erratum E28)
EQUIVALENT = {10: (1.25 / 1.5) ** (1 / 5), 30: (1.75 / 2.5) ** (1 / 15)}
GAMMAS = (0.9, 0.92, 0.94, 0.95, 0.96, EQUIVALENT[10], 0.97, EQUIVALENT[30], 0.98, 0.99, 1.0)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""k of the hyperbolic discounts."""

RISKS: dict[str, Utility] = {"mean": Mean(), "cvar": CVaR(0.1)}
SETTINGS = ((10, 1000), (10, 2000), (30, 1000), (30, 2000))
"""(T, u_T) of the paper's four problems."""

_STEP = 0.002  # of log wealth: three times as fast as .001, with P within .001 of its results
_STOCKS = 16  # above the 4 attainable returns of two goals


@dataclass
class GoalProbabilities:
    """P₁ and P₂ of one problem and risk measure.

    Attributes:
      exponential: for each of the n `GAMMAS`, [n, 2].
      hyperbolic: for each of the k `RATES`, [k, 2].
    """

    exponential: np.ndarray
    hyperbolic: np.ndarray

    def of(self, discount: str) -> np.ndarray:
        """Return P₁ and P₂ [2] of a discount in the notation of `published.wealth_table`."""
        name, _, value = discount.partition("=")
        if name == "gamma":
            return self.exponential[GAMMAS.index(float(value))]
        return self.hyperbolic[RATES.index(float(value))]


def goal_probabilities(
    problem: Wealth, risk: Utility, discounts: Sequence[Discount], step: float = _STEP
) -> np.ndarray:
    """Return P₁ and P₂, of the early and the late goal, of the optimal policies, [n, 2].

    Where several policies are optimal for CVaR, the policy with the largest mean is evaluated
    (erratum E29).

    Args:
      problem: with two goals. risk: the risk measure of the discounted utility.
      discounts: n of them. step: width of a cell of the grid in log wealth.
    """
    model = WealthModel(problem, step)
    times = np.arange(model.n_decisions)
    found = []
    for discount in discounts:
        best = optimum(model, discount.factor(times), risk, _STOCKS)
        statistics = model.statistics(best.outcome)
        found.append((statistics["p_early"], statistics["p_late"]))
    return np.array(found)


def solve(scaling: str) -> dict[tuple[str, int, int], GoalProbabilities]:
    """Return the probabilities for both risks and the paper's four problems, by (risk, T, u_T)."""
    discounts: list[Discount] = [*map(Exponential, GAMMAS), *map(Hyperbolic, RATES)]
    found = {}
    for periods, late_utility in SETTINGS:
        problem = papers_problem(periods, late_utility, scaling)
        for name, risk in RISKS.items():
            both = goal_probabilities(problem, risk, discounts)
            found[name, periods, late_utility] = GoalProbabilities(
                both[: len(GAMMAS)], both[len(GAMMAS) :]
            )
    return found


def papers_problem(periods: int, late_utility: float, scaling: str) -> Wealth:
    """Return the environment of `env=gbwm` with the paper's T and u_T."""
    changes = {"periods": periods, "late_utility": late_utility, "scaling": scaling}
    overrides = ["env=gbwm", *(f"env.{key}={value}" for key, value in changes.items())]
    # The sweeper of conf/train.yaml is a plugin of the command line.
    problem = working_object("train", "env", ["hydra/sweeper=basic", *overrides])
    assert isinstance(problem, Wealth)
    return problem


def learned_rows(runs: Sequence[RunRecord], scaling: str) -> list[dict[str, Any]]:
    """Return P₁ and P₂ of learned agents on the paper's problems, with intervals over seeds.

    Args:
      runs: of which only the learned ones count that have final numbers, and a problem of the
        paper with that scaling. At T = 10 both scalings are the same.
      scaling: of `env.scaling`.
    """
    groups: dict[tuple[str, int, int, str], list[RunRecord]] = {}
    for run in runs:
        key = published.wealth_key(run.choices, run.settings)
        if key is None or run.result.get("episodes", 0) == 0 or "p_early" not in run.result:
            continue
        periods, late_utility, risk, discount = key
        if periods == 10 or run.settings.get("env.scaling") == scaling:
            groups.setdefault((risk, periods, late_utility, discount), []).append(run)
    rows = []
    for (risk, periods, late_utility, discount), seeds in groups.items():
        row: dict[str, Any] = {"risk": risk, "periods": periods, "late_utility": late_utility}
        row |= {"discount": discount, "n": len(seeds)}
        for name in ("p_early", "p_late"):
            values = np.array([run.result[name] for run in seeds])
            mean = mean_interval(values)
            ends = np.clip([mean.low, mean.high], 0.0, 1.0)  # of a probability
            row[name] = (float(mean.value), *map(float, ends))
        rows.append(row)
    return rows
