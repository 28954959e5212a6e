"""The optimum of a problem: the best initial stock, the best policy and its return distribution.

The outer problem is max over c₀ of J(c₀) = −c₀ + max_π E f(c₀ + G). J is a maximum over policies of
functions of c₀ that are concave with slopes between −1 and L − 1 (erratum E16), where L is the
steepest slope of the utility. So two evaluated stocks a < b bound J between them:
J(c) <= min(J(a) + (L − 1)(c − a), J(b) + (b − c)). If the utility's slope changes by at most K per
unit, so does the slope of every policy's J, and J(c) <= chord(c) + K (c − a)(b − c)/2 as well.
Intervals whose bound is below the best value found are not searched.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rigor.envs.model import Model
from rigor.exact.backward_induction import PolicyTables, StockAugmentedProblem
from rigor.exact.reachable_stocks import ReachableStocks, reachable_stocks
from rigor.exact.return_distribution import PolicyOutcome, decision_rule, evaluate_policy
from rigor.maths.utility import Utility, facts_of, is_mean, steepest_slope

ALTERNATIONS = 50  # largest number of alternations of best policy and best stock
TIE_TOLERANCE = 1e-12  # relative difference of J below which two stocks tie: rounding
BATCH = 16  # stocks solved at a time
MAX_SOLVED = 400  # stocks solved in a search among candidates
MAX_INTERVAL = 96  # stocks solved in a search of an interval


@dataclass
class Optimum:
    """The optimum over all policies and initial stocks.

    Attributes:
      value: the OCE of the optimal policy's discounted return.
      c0: the optimal initial stock; 0 for the mean (erratum E5), minus the certainty equivalent for
        the entropic risk.
      tables: the optimal policy. outcome: its return distribution.
      search_gap: a bound of the value gained by an initial stock that was not searched.
      stock_error: a bound of how much a grid of stocks makes the value too low; 0 if all reachable
        stocks were enumerated.
      reachable: the offsets on which the outcome was computed.
    """

    value: float
    c0: float
    tables: PolicyTables
    outcome: PolicyOutcome
    search_gap: float
    stock_error: float
    reachable: ReachableStocks


def optimum(
    model: Model,
    factors: np.ndarray,
    utility: Utility,
    max_stocks: int,
    progress: Callable[[int], None] = lambda solved: None,
) -> Optimum:
    """Return the optimum over all policies and all initial stocks.

    If the utility is piecewise linear with its kink at 0 and the stocks can be enumerated, c₀* is
    minus an outcome and the search is exact. Otherwise a coarse-to-fine search is followed by
    alternation between the best policy for a stock and the best stock for a policy, in which the
    value never decreases.

    Args:
      model: the problem.
      factors: d_t of the T decisions, [T].
      utility: the risk measure's utility.
      max_stocks: number of stocks of a decision above which a grid replaces them.
      progress: called with the number of initial stocks solved since its last call.

    Raises:
      UserError: the utility overflows.
    """
    problem = StockAugmentedProblem(model, factors, utility, max_stocks, progress)
    reachable = problem.reachable or reachable_stocks(model, factors[:, None], max_stocks)
    c0, search_gap = best_initial_stock(problem)
    value, tables = problem.policy(c0)
    outcome = evaluate_policy(model, factors, reachable, decision_rule(tables, reachable))
    if problem.reachable is not None:
        for _ in range(ALTERNATIONS):
            better, stock = utility.oce(outcome.returns, outcome.probabilities)
            if better <= value + 1e-10 * max(1.0, abs(value)):
                break
            c0 = stock
            value, tables = problem.policy(c0)
            outcome = evaluate_policy(model, factors, reachable, decision_rule(tables, reachable))
    elif not is_mean(utility):
        c0 = -value
    stock_error = 0.0
    if problem.reachable is not None:
        stock_error = grid_error(utility, _steepest(problem), problem.reachable)
    return Optimum(value, c0, tables, outcome, search_gap, stock_error, reachable)


def grid_error(utility: Utility, steepest: float, reachable: ReachableStocks) -> float:
    """Return a bound of how much a grid of stocks makes the optimal OCE too low; 0 without a grid.

    A grid adds noise n to the stock, Var n <= v. The best policy x of the problem itself does not
    look at n, so E[n | x] = 0, and with f concave and its slopes in [a, b], the grid's optimum is
    at most E f(c + x) − E f(c + x + n) <= (b − a) E|n|/2 <= (b − a) √v/2 below it. If the slope
    changes by at most K per unit, it is also at most K v/2 below. (It can be above: actions that
    follow n earn at most (b − a) √v/2.)

    Args:
      utility: f. steepest: b. reachable: offsets of the grid.
    """
    facts, variance = facts_of(utility), reachable.added_variance
    if variance == 0.0:  # at a kink the curvature is infinite
        return 0.0
    flattest = 0.0 if facts.kink_slopes is None else facts.kink_slopes[0]
    by_slope = (steepest - flattest) / 2.0 * float(np.sqrt(variance))
    return min(by_slope, facts.curvature / 2.0 * variance)


def _steepest(problem: StockAugmentedProblem) -> float:
    """Return L, or the slope of f at the lowest c₀ + G where f has no constant L."""
    return steepest_slope(problem.utility, problem.lowest - problem.highest)


def best_initial_stock(problem: StockAugmentedProblem) -> tuple[float, float]:
    """Return c₀ and a bound of the gain in J of any other initial stock."""
    if problem.reachable is None:
        return 0.0, 0.0
    utility, low, high = problem.utility, -problem.highest, -problem.lowest
    facts, n_decisions = facts_of(utility), problem.model.n_decisions
    no_payoffs = all(problem.model.terminal_payoff(t) is None for t in range(n_decisions))
    enumerated = no_payoffs and facts.kink_slopes is not None and not problem.reachable.gridded
    result = maximise(
        problem.objective,
        low,
        high,
        _steepest(problem),
        facts.curvature,
        (1e-12 if enumerated else 1e-6) * max(high - low, 1e-300),
        -problem.reachable.offsets[-1][:, 0] if enumerated else None,
    )
    return result.c0, result.search_gap


def best_grid_stock(problem: StockAugmentedProblem, grid: np.ndarray) -> tuple[float, float, bool]:
    """Return the best c₀ of a grid, its J, and whether it is an end of the grid.

    Ties go to the stock nearest 0 (erratum E5).
    """
    values = problem.objective(grid)
    tied = values >= values.max() - TIE_TOLERANCE * float(np.abs(values).max())
    best = int(np.where(tied, np.abs(grid), np.inf).argmin())
    return float(grid[best]), float(values[best]), best in (0, len(grid) - 1)


def objective_of(utility: Utility, outcome: PolicyOutcome) -> float:
    """Return the OCE of an outcome's discounted return."""
    return utility.oce(outcome.returns, outcome.probabilities)[0]


@dataclass
class SearchResult:
    """The result of a search for the initial stock.

    Attributes:
      c0: the best initial stock, the nearest to 0 of those that tie.
      value: J(c₀).
      search_gap: a bound of J(c) − J(c₀) for all other c in the range.
      solved: number of stocks for which J was computed.
    """

    c0: float
    value: float
    search_gap: float
    solved: int


def maximise(
    objective: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    slope: float,
    curvature: float,
    tolerance: float,
    candidates: np.ndarray | None = None,
) -> SearchResult:
    """Return the initial stock of the largest J in [low, high].

    Args:
      objective: J of stocks, [C] -> [C].
      low, high: the range of the initial stock, which is minus the range of the return.
      slope: L. curvature: K.
      tolerance: differences of J to ignore.
      candidates: stocks that contain a maximiser; None to search the whole interval.
    """
    if candidates is None:
        stocks = np.linspace(low, high, BATCH + 1) if high > low else np.array([low])
    else:
        candidates = np.unique(np.append(candidates, [low, high]))
        few = len(candidates) <= 4 * BATCH
        indices = np.linspace(0, len(candidates) - 1, len(candidates) if few else BATCH + 1)
        stocks = candidates[np.unique(np.round(indices).astype(np.int64))]
    values = objective(stocks)
    most = MAX_INTERVAL if candidates is None else MAX_SOLVED
    while True:
        new, gap = _most_promising(stocks, values, slope, curvature, tolerance, candidates)
        if len(new) == 0 or len(stocks) >= most:
            break
        stocks = np.concatenate([stocks, new])
        values = np.concatenate([values, objective(new)])
        order = np.argsort(stocks)
        stocks, values = stocks[order], values[order]
    tied = values >= values.max() - TIE_TOLERANCE * np.abs(values).max()
    best = int(np.where(tied, np.abs(stocks), np.inf).argmin())
    return SearchResult(float(stocks[best]), float(values[best]), gap, len(stocks))


def _most_promising(
    stocks: np.ndarray,
    values: np.ndarray,
    slope: float,
    curvature: float,
    tolerance: float,
    candidates: np.ndarray | None,
) -> tuple[np.ndarray, float]:
    """Return the stocks of the largest bounds between evaluated stocks, and the largest gap."""
    if len(stocks) < 2:
        return np.array([]), 0.0
    a, b, at_a, at_b = stocks[:-1], stocks[1:], values[:-1], values[1:]
    peak = np.clip((at_b - at_a + b + (slope - 1.0) * a) / slope, a, b)  # where the bounds cross
    gain = np.minimum(at_a + (slope - 1.0) * (peak - a), at_b + (b - peak)) - values.max()
    if np.isfinite(curvature):
        rise = (at_b - at_a) / (b - a)
        top = np.clip((a + b) / 2.0 + rise / curvature, a, b)
        bound = at_a + rise * (top - a) + curvature / 2.0 * (top - a) * (b - top) - values.max()
        peak, gain = np.where(bound < gain, top, peak), np.minimum(bound, gain)
    if candidates is not None:
        first, last = np.searchsorted(candidates, a, "right"), np.searchsorted(candidates, b)
        inside = np.clip(np.searchsorted(candidates, peak), first, np.maximum(last - 1, first))
        gain = np.where(last > first, gain, 0.0)
        peak = candidates[np.minimum(inside, len(candidates) - 1)]
    order = np.argsort(-gain, kind="stable")[:BATCH]
    order = order[gain[order] > tolerance]
    return np.sort(peak[order]), max(0.0, float(gain.max()))
