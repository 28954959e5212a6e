"""The outer search done exactly: max over c₀ of J(c₀), with a bound on what may be missed.

J is a maximum over policies of functions of c₀ that are concave with slopes between −1 and L − 1
(erratum E16), L the steepest slope of the utility. So two evaluated stocks a < b bound J between
them: J(c) <= min(J(a) + (L − 1)(c − a), J(b) + (b − c)). Where the utility's slope changes by at
most K per unit, so does that of every policy's J: J(c) <= chord(c) + K (c − a)(b − c)/2 as well.
Intervals that cannot hold the maximum are never looked into.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rigor.maths.utility import CVaR, MeanCVaR, MeanVariance, Utility

SAME = 1e-12  # share of J by which two stocks may differ and tie: rounding
BATCH = 16  # stocks solved at a time
MAX_SOLVED = 400  # stocks of one search among candidates
MAX_INTERVAL = 96  # stocks of one search of an interval, which a polish follows


@dataclass
class Found:
    """The result of a search.

    Attributes:
      c0: the best initial stock, the nearest to 0 of those that tie.
      value: J(c₀).
      missed: what J may be larger by elsewhere in the range; 0 where every candidate was ruled out.
      solved: how many stocks were solved for.
    """

    c0: float
    value: float
    missed: float
    solved: int


def kinked_at_zero(utility: Utility) -> bool:
    """Whether c₀* is minus an outcome: the utility is piecewise linear with its kink at 0."""
    return isinstance(utility, CVaR | MeanCVaR)


def steepest_slope(utility: Utility, lowest: float) -> float:
    """Return L: the slope of the concave utility at the lowest total that can be reached."""
    if utility.lipschitz is not None:
        return utility.lipschitz
    reach = max(abs(lowest), 1.0) * 1e-6
    ends = np.array([lowest - reach, lowest])
    return float(np.diff(utility.f(ends))[0] / reach)


def curvature(utility: Utility) -> float:
    """Return K, how fast the utility's slope can fall; infinite where it has a kink."""
    return 2.0 * utility.kappa if isinstance(utility, MeanVariance) else np.inf


def maximise(
    objective: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    slope: float,
    bend: float,
    tolerance: float,
    candidates: np.ndarray | None = None,
) -> Found:
    """Return the initial stock of the largest J in [low, high].

    Args:
      objective: J of stocks, [C] -> [C].
      low, high: the range of the initial stock, minus the range of the return.
      slope: L. bend: K.
      tolerance: differences of J that do not matter.
      candidates: stocks of which one is known to be the best; None for the whole interval.
    """
    if candidates is None:
        stocks = np.linspace(low, high, BATCH + 1) if high > low else np.array([low])
    else:
        candidates = np.unique(np.append(candidates, [low, high]))
        few = len(candidates) <= 4 * BATCH
        places = np.linspace(0, len(candidates) - 1, len(candidates) if few else BATCH + 1)
        stocks = candidates[np.unique(np.round(places).astype(np.int64))]
    values = objective(stocks)
    most = MAX_INTERVAL if candidates is None else MAX_SOLVED
    while True:
        asked, missed = _where(stocks, values, slope, bend, tolerance, candidates)
        if len(asked) == 0 or len(stocks) >= most:
            break
        stocks = np.concatenate([stocks, asked])
        values = np.concatenate([values, objective(asked)])
        order = np.argsort(stocks)
        stocks, values = stocks[order], values[order]
    tied = values >= values.max() - SAME * np.abs(values).max()
    best = int(np.where(tied, np.abs(stocks), np.inf).argmin())
    return Found(float(stocks[best]), float(values[best]), missed, len(stocks))


def _where(
    stocks: np.ndarray,
    values: np.ndarray,
    slope: float,
    bend: float,
    tolerance: float,
    candidates: np.ndarray | None,
) -> tuple[np.ndarray, float]:
    """Return the stocks to solve for next, the most promising first, and what may be missed."""
    if len(stocks) < 2:
        return np.array([]), 0.0
    a, b, at_a, at_b = stocks[:-1], stocks[1:], values[:-1], values[1:]
    meet = np.clip((at_b - at_a + b + (slope - 1.0) * a) / slope, a, b)  # where the bounds cross
    gain = np.minimum(at_a + (slope - 1.0) * (meet - a), at_b + (b - meet)) - values.max()
    if np.isfinite(bend):
        rise = (at_b - at_a) / (b - a)
        top = np.clip((a + b) / 2.0 + rise / bend, a, b)
        bound = at_a + rise * (top - a) + bend / 2.0 * (top - a) * (b - top) - values.max()
        meet, gain = np.where(bound < gain, top, meet), np.minimum(bound, gain)
    if candidates is not None:
        first, last = np.searchsorted(candidates, a, "right"), np.searchsorted(candidates, b)
        inside = np.clip(np.searchsorted(candidates, meet), first, np.maximum(last - 1, first))
        gain = np.where(last > first, gain, 0.0)
        meet = candidates[np.minimum(inside, len(candidates) - 1)]
    chosen = np.argsort(-gain, kind="stable")[:BATCH]
    chosen = chosen[gain[chosen] > tolerance]
    return np.sort(meet[chosen]), max(0.0, float(gain.max()))
