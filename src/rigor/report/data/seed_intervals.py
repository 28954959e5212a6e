"""Intervals over the few seeds of one environment, which the bootstrap makes too narrow.

A percentile bootstrap of two runs each finds a difference between equal agents in 34 % of cases,
with three in 18 % and with five in 12 % (normal scores); Welch's interval does in 3 to 4 %. So one
environment has Student's and Welch's intervals, as Colas et al. (*A hitchhiker's guide to
statistical comparisons of reinforcement learning algorithms*, 2019) advise. A probability of
improvement has Wilson's interval: a bootstrap of runs that do not overlap has no width at all.
Aggregates over games keep the bootstrap of `rigor.report.data.scores`.
"""

import math

import numpy as np
from scipy import stats

from rigor.report.data.scores import CONFIDENCE, BootstrapInterval

_TAIL = (1.0 + CONFIDENCE) / 2.0


def mean_interval(values: np.ndarray) -> BootstrapInterval:
    """Return the mean over the last axis with Student's interval, [...].

    There is no interval (nan) of one value or of equal values: they do not show how much others
    would differ.

    Args:
      values: of the seeds, [..., k], k >= 1.
    """
    values = np.asarray(values, dtype=float)
    mean, k = values.mean(axis=-1), values.shape[-1]
    if k < 2:
        return BootstrapInterval(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    half = stats.t.ppf(_TAIL, k - 1) * values.std(axis=-1, ddof=1) / math.sqrt(k)
    half = np.where(np.ptp(values, axis=-1) > 0.0, half, np.nan)
    return BootstrapInterval(mean, mean - half, mean + half)


def difference(
    x: np.ndarray, y: np.ndarray, x_exact: bool = False, y_exact: bool = False
) -> BootstrapInterval:
    """Return x̄ − ȳ with Welch's interval, nan if it cannot be told.

    One value shows no variation, and neither do two samples of equal values.

    Args:
      x, y: values of the seeds, [k] and [l]. x_exact, y_exact: whether a value is known exactly and
        has no variation, such as that of an exact agent.
    """
    parts = [
        (float(np.var(values, ddof=1)) / len(values), len(values) - 1)
        for values, exact in ((x, x_exact), (y, y_exact))
        if not exact and len(values) > 1
    ]
    value = float(np.mean(x) - np.mean(y))
    variance = sum(part for part, _ in parts)
    lacks_seeds = len(parts) < 2 - x_exact - y_exact
    if lacks_seeds or variance == 0.0:
        return BootstrapInterval(np.array(value), np.array(np.nan), np.array(np.nan))
    freedom = variance**2 / sum(part**2 / n for part, n in parts)
    half = math.sqrt(variance) * float(stats.t.ppf(_TAIL, freedom))
    return BootstrapInterval(np.array(value), np.array(value - half), np.array(value + half))


def fraction(value: float, trials: int) -> BootstrapInterval:
    """Return a fraction of independent trials with Wilson's interval.

    For a probability of improvement the trials are the smaller number of seeds of each game, summed
    over games: its variance is at most that of so many independent comparisons.
    """
    z = float(stats.norm.ppf(_TAIL))
    centre = (value + z * z / (2 * trials)) / (1 + z * z / trials)
    half = math.sqrt(value * (1 - value) / trials + (z / (2 * trials)) ** 2)
    half *= z / (1 + z * z / trials)
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return BootstrapInterval(np.array(value), np.array(low), np.array(high))
