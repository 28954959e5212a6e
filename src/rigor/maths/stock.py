"""The stock S_t = d̃_t C_t: the initial stock plus the discounted rewards so far, in reward units.

The agent carries S_t instead of the paper's C_t, whose recursion C_{t+1} = (C_t + R_{t+1})/d̂_t
divides by factors that fall to 0. The discount always follows the running clock. Arrays are numpy
or torch.
"""

from typing import Any

import numpy as np

Array = Any  # a numpy array or a torch tensor; this module never imports torch


def next_stock(stock: Array, discount: Array, reward: Array) -> Array:
    """Return S_{t+1} = S_t + d̃_t R_{t+1}, [B].

    Args:
      stock: S_t, float64 [B].
      discount: d̃_t at the step that earns the reward, float64 [B].
      reward: R_{t+1}, [B].
    """
    return stock + discount * reward


def relabel(stock: Array, initial: Array, new_initial: Array) -> Array:
    """Return the S_t to which the same rewards lead from another initial stock, [B].

    S_t − S_0 is a function of the rewards alone: S'_t = S_t + (S'_0 − S_0).

    Args:
      stock: S_t, float64 [B].
      initial: the S_0 it started from, [B].
      new_initial: the S'_0 to start from, [B].
    """
    return stock + (new_initial - initial)


def grid(low: float, high: float, points: int) -> np.ndarray:
    """Return `points` evenly spaced initial stocks from `low` to `high`, float64 [G].

    The paper's "201 equal intervals" on [−4000, 0] are 201 points with spacing 20 (erratum E23).
    """
    return np.linspace(low, high, points)
