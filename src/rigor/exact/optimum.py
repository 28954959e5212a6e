"""The optimum of a problem: the best initial stock, the best policy and its outcome."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rigor.exact.levels import Levels, reachable
from rigor.exact.model import Model
from rigor.exact.outcome import Outcome, follow, tabulated
from rigor.exact.search import curvature, kinked_at_zero, maximise, steepest_slope
from rigor.exact.solve import Problem, Tables
from rigor.maths.utility import Entropic, Mean, Utility

POLISHES = 50  # rounds of best policy for a stock, best stock for a policy


@dataclass
class Optimum:
    """The best that any policy can do.

    Attributes:
      value: the OCE of its discounted return.
      c0: the initial stock that goes with it; 0 for the mean (erratum E5), minus the certainty
        equivalent for the entropic risk.
      tables: the policy. outcome: what it leads to.
      missed: what the value may be larger by for a stock that was not looked at.
      stock_error: how much the value moved when the grid of stocks got twice as fine; 0 where every
        reachable stock was enumerated.
      levels: the offsets that the outcome was computed on.
    """

    value: float
    c0: float
    tables: Tables
    outcome: Outcome
    missed: float
    stock_error: float
    levels: Levels


def optimum(
    model: Model,
    factors: np.ndarray,
    utility: Utility,
    max_stocks: int,
    tell: Callable[[int], None] = lambda solved: None,
) -> Optimum:
    """Return the optimum over all policies and all initial stocks.

    Where the utility is piecewise linear and rewards are few, c₀* is minus an outcome and the
    search is exact; elsewhere it is coarse to fine, then polished: the best policy for a stock and
    the best stock for a policy, in turn, each step no worse than the one before.

    Args:
      model: the problem.
      factors: d_t of the T decisions, [T].
      utility: the risk.
      max_stocks: stocks of one decision above which they become a grid.
      tell: called with how many initial stocks have been solved for since the last call.

    Raises:
      UserError: the utility overflows.
    """
    problem = Problem(model, factors, utility, max_stocks, tell)
    levels = problem.levels or reachable(model, factors[:, None], max_stocks)
    c0, missed = best_stock(problem)
    value, tables = problem.policy(c0)
    outcome = follow(model, factors, levels, tabulated(tables, levels))
    if problem.needs_stock:
        for _ in range(POLISHES):
            better, stock = utility.oce(outcome.returns, outcome.probabilities)
            if better <= value + 1e-10 * max(1.0, abs(value)):
                break
            c0 = stock
            value, tables = problem.policy(c0)
            outcome = follow(model, factors, levels, tabulated(tables, levels))
    elif isinstance(utility, Entropic):
        c0 = -value
    stock_error = 0.0
    if problem.levels is not None and problem.levels.gridded:
        coarse = Problem(model, factors, utility, max_stocks // 2 + 1)
        stock_error = abs(value - float(coarse.objective(np.array([c0]))[0]))
    return Optimum(value, c0, tables, outcome, missed, stock_error, levels)


def best_stock(problem: Problem) -> tuple[float, float]:
    """Return c₀ and what J may be larger by elsewhere."""
    if not problem.needs_stock:
        return 0.0, 0.0
    utility, low, high = problem.utility, -problem.highest, -problem.lowest
    assert problem.levels is not None
    stopless = all(problem.model.stops(t) is None for t in range(problem.model.n_decisions))
    enumerated = stopless and kinked_at_zero(utility) and not problem.levels.gridded
    found = maximise(
        problem.objective,
        low,
        high,
        steepest_slope(utility, low + problem.lowest),
        curvature(utility),
        (1e-12 if enumerated else 1e-6) * max(high - low, 1e-300),
        -problem.levels.offsets[-1][:, 0] if enumerated else None,
    )
    return found.c0, found.missed


def grid_stock(problem: Problem, grid: np.ndarray) -> tuple[float, float, bool]:
    """Return c₀ on a grid, J there, and whether it is an end of the grid, so that it may miss c₀*.

    Ties go to the stock nearest 0 (erratum E5).
    """
    values = problem.objective(grid)
    tied = values >= values.max() - 1e-12 * max(1.0, float(np.abs(values).max()))
    best = int(np.where(tied, np.abs(grid), np.inf).argmin())
    return float(grid[best]), float(values[best]), best in (0, len(grid) - 1)


def objective_of(utility: Utility, outcome: Outcome) -> float:
    """Return the OCE of an outcome's discounted return."""
    if isinstance(utility, Mean):
        return float(outcome.probabilities @ outcome.returns)
    return utility.oce(outcome.returns, outcome.probabilities)[0]
