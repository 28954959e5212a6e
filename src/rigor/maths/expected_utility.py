"""The normalised expected utility of the total outcome, and its recursion.

Let L_t and H_t be the smallest and the largest return-to-go: sums of discounted rewards that can
still be earned from t on. The expected utility of the total lies between its values at these two:

    E f(S_T) = f(S_t + L_t) + σ_t · range_t,  range_t = f(S_t + H_t) − f(S_t + L_t),  σ_t in [0, 1].

So a number in [0, 1], the normalised expected utility σ, is the value of a state and an action
under any f. With two goals it is much like the probability of reaching them. Its recursion has no
discount but the one in the stock. Where the utility range is 0 the outcome is determined, and σ is
not defined.
"""

from typing import Any, NamedTuple

import numpy as np

from rigor.maths.utility import Utility

# An outcome counts as determined where the utility range is below this fraction of the utilities
# that it lies between: rounding would decide there.
DETERMINED = 1e-9


class Recursion(NamedTuple):
    """σ_t = start + slope · σ_{t+1} of n transitions, and where σ_t is defined; [n] each."""

    start: np.ndarray
    slope: np.ndarray
    undetermined: np.ndarray


def utility_bounds(utility: Utility, stock: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return f(S + L) and f(S + H), the smallest and the largest utility still possible.

    Args:
      utility: the risk measure's f.
      stock: S, float64.
      low, high: L <= H, in units of the stock. All shapes broadcast; numpy or torch.
    """
    return utility.f(stock + low), utility.f(stock + high)


def recursion(
    utility: Utility,
    stock: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    stock_next: np.ndarray,
    bounds_next: tuple[np.ndarray, np.ndarray],
) -> Recursion:
    """Return how the normalised expected utility before a step follows from the one after it.

    Args:
      utility: the risk measure's f.
      stock, stock_next: S_t and S_{t+1}, float64 [n].
      bounds, bounds_next: (L_t, H_t) and (L_{t+1}, H_{t+1}), [n] each, in units of the stock; 0
        after the end of an episode.

    Returns:
      Start and slope; both are 0 where the outcome is determined at t.
    """
    if not utility.needs_stock:  # the stock can be any, and 0 leaves the utility range largest
        stock, stock_next = np.zeros_like(stock), stock_next - stock
    least, most = utility_bounds(utility, stock, *bounds)
    least_next, most_next = utility_bounds(utility, stock_next, *bounds_next)
    span = most - least
    size = np.max([np.abs(least), np.abs(most), np.abs(stock)], axis=0)
    undetermined = span > DETERMINED * size
    span = np.where(undetermined, span, 1.0)
    start = np.where(undetermined, (least_next - least) / span, 0.0)
    slope = np.where(undetermined, (most_next - least_next) / span, 0.0)
    return Recursion(start, slope, undetermined)
