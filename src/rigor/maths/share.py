"""The expected utility of the total outcome, as a share of what is still possible.

With L_t and H_t the smallest and the largest sum of discounted rewards that may still come from t
on, the expected utility of the total lies between f(S_t + L_t) and f(S_t + H_t):

    E f(S_T) = f(S_t + L_t) + σ_t · room_t,  room_t = f(S_t + H_t) − f(S_t + L_t),  σ_t in [0, 1].

So one number in [0, 1] is what a state and an action are worth, whatever f; for two goals it is
much like the chance to reach them. It has a recursion of its own, with no discount in it but the
stock's. Where room is 0 the outcome is settled, and no share is defined.
"""

from typing import Any, NamedTuple

import numpy as np

from rigor.maths.utility import Utility

# The room below which, as a part of the utilities that it lies between, rounding would decide.
SETTLED = 1e-9


class Backup(NamedTuple):
    """σ_t = start + slope · σ_{t+1} of n transitions, and whether anything was open, [n] each."""

    start: np.ndarray
    slope: np.ndarray
    is_open: np.ndarray


def bounds(utility: Utility, stock: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return f(S + L) and f(S + H), the least and the most that the utility can still become.

    Args:
      utility: the risk. stock: S, float64. low, high: L <= H, in units of the stock. All of shapes
        that broadcast, numpy or torch.
    """
    return utility.f(stock + low), utility.f(stock + high)


def backup(
    utility: Utility,
    stock: np.ndarray,
    ahead: tuple[np.ndarray, np.ndarray],
    stock_next: np.ndarray,
    ahead_next: tuple[np.ndarray, np.ndarray],
) -> Backup:
    """Return how the share before a step follows from the one after it.

    Args:
      utility: the risk. stock, stock_next: S_t and S_{t+1}, float64 [n], units of the stock.
      ahead, ahead_next: (L_t, H_t) and (L_{t+1}, H_{t+1}), [n] each; zeros where the episode ended.

    Returns:
      start and slope; 0 and not open where nothing was left to decide at t.
    """
    if not utility.needs_stock:  # any will do, and a large one has little room
        stock, stock_next = np.zeros_like(stock), stock_next - stock
    least, most = bounds(utility, stock, *ahead)
    least_next, most_next = bounds(utility, stock_next, *ahead_next)
    room = most - least
    is_open = room > SETTLED * np.maximum(1.0, np.maximum(np.abs(least), np.abs(most)))
    room = np.where(is_open, room, 1.0)
    start = np.where(is_open, (least_next - least) / room, 0.0)
    slope = np.where(is_open, (most_next - least_next) / room, 0.0)
    return Backup(start, slope, is_open)
