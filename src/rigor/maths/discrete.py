"""Discrete laws: outcomes and their probabilities, the worst tail's mean and its quantiles."""

import numpy as np


def distribution(
    outcomes: np.ndarray, probabilities: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return outcomes [n] and probabilities [n] of a discrete law, impossible outcomes left out."""
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
    """Return the mean of the worst `tau` of a discrete law; its last atom counts in part."""
    order = np.argsort(x, kind="stable")
    reached = np.minimum(np.cumsum(p[order]), tau)
    taken = np.diff(reached, prepend=0.0)
    return float(taken @ x[order] / taken.sum())


def quantile_maximiser(x: np.ndarray, p: np.ndarray, tau: float) -> float:
    """Return the c nearest 0 for which −c is a τ-quantile: P(X < −c) <= τ <= P(X <= −c)."""
    order = np.argsort(x, kind="stable")
    x, reached = x[order], np.cumsum(p[order])
    rounding = 1e-12  # sums of probabilities such as ten times .1 must meet tau = 1
    lowest = x[np.argmax(reached >= min(tau, reached[-1]) - rounding)]
    beyond = reached > tau + rounding
    highest = x[np.argmax(beyond)] if beyond.any() else np.inf
    return -float(np.clip(0.0, lowest, highest))
