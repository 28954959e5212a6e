"""The stock S_t = d̃_t C_t: initial stock plus discounted rewards so far, in reward units.

Carried instead of the paper's C_t, whose recursion C_{t+1} = (C_t + R_{t+1})/d̂_t divides by factors
that fall to 0. The clock is always the running one. Arrays are numpy or torch.
"""

from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor; torch is never imported here


def next_stock(stock: Array, mass: Array, reward: Array) -> Array:
    """Return S_{t+1} = S_t + d̃_t R_{t+1}, [B].

    Args:
      stock: S_t, float64 [B].
      mass: d̃_t of the step at which the reward is earned, float64 [B].
      reward: R_{t+1}, [B].
    """
    return stock + mass * reward


def from_c(c: Array, mass: Array) -> Array:
    """Return S_t = d̃_t C_t, [B], from the paper's stock `c` = C_t [B] and `mass` = d̃_t [B]."""
    return mass * c


def relabel(stock: Array, initial: Array, new_initial: Array) -> Array:
    """Return the S_t that the same rewards would have led to from another initial stock, [B].

    S_t − S_0 is a function of the rewards alone: S'_t = S_t + (S'_0 − S_0).

    Args:
      stock: S_t, float64 [B].
      initial: the S_0 it started from, [B].
      new_initial: the S'_0 to start from, [B].
    """
    return stock + (new_initial - initial)


def grid(low: float, high: float, points: int) -> np.ndarray:
    """Return `points` equally spaced initial stocks from `low` to `high`, float64 [G].

    The paper's "201 equal intervals" on [−4000, 0] are 201 points, 20 apart (erratum E23).
    """
    return np.linspace(low, high, points)


def default_range(mass_table: np.ndarray, max_abs_reward: float) -> tuple[float, float]:
    """Return ±Σ_t d̃_t |r|max: no discounted return, so no useful c₀, lies outside.

    Args:
      mass_table: d̃_t of every step of the longest episode, [T].
      max_abs_reward: |r|max, the largest reward in absolute value.
    """
    bound = float(np.sum(mass_table)) * max_abs_reward
    return -bound, bound
