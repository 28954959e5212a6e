"""Discrete distributions: validation, the mean of the worst tail, and quantiles."""

import numpy as np


def distribution(
    outcomes: np.ndarray, probabilities: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the outcomes [n] of positive probability and their probabilities [n]."""
    x = np.asarray(outcomes, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"outcomes must be a non-empty vector, not of shape {x.shape}")
    if probabilities is None:
        return x, np.full(x.size, 1.0 / x.size)
    p = np.asarray(probabilities, dtype=np.float64)
    if p.shape != x.shape or p.min() < 0.0 or abs(p.sum() - 1.0) > 1e-9:
        raise ValueError("probabilities must match the outcomes, be non-negative and sum to 1")
    return x[p > 0.0], p[p > 0.0]


def worst_mean(x: np.ndarray, p: np.ndarray, tau: float) -> float:
    """Return the mean of the worst fraction `tau`; the last atom counts in part."""
    order = np.argsort(x, kind="stable")
    cumulative = np.minimum(np.cumsum(p[order]), tau)
    weights = np.diff(cumulative, prepend=0.0)
    return float(weights @ x[order] / weights.sum())


def quantile_maximiser(x: np.ndarray, p: np.ndarray, tau: float) -> float:
    """Return the c nearest 0 for which −c is a τ-quantile: P(X < −c) <= τ <= P(X <= −c)."""
    order = np.argsort(x, kind="stable")
    x, cumulative = x[order], np.cumsum(p[order])
    rounding = 1e-12  # of sums such as ten times .1, which must reach tau = 1
    lowest = x[np.argmax(cumulative >= min(tau, cumulative[-1]) - rounding)]
    beyond = cumulative > tau + rounding
    highest = x[np.argmax(beyond)] if beyond.any() else np.inf
    return -float(np.clip(0.0, lowest, highest))
