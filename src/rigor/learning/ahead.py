"""What rewards can still add to a return, where an environment says so."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ahead:
    """Sums of discounted rewards from t on, in units of the stock, at each t that a mass has.

    low, high: the smallest and the largest, float64 [times]; 0 once no decision is left.
    totals: all of them where they are few, the same number J at each t, float64 [times, J].
    """

    low: np.ndarray
    high: np.ndarray
    totals: np.ndarray | None


def ahead(env: Any, mass: np.ndarray) -> Ahead | None:
    """Return what an environment declares of its returns, None where it declares nothing.

    Args:
      env: the config's environment; `returns` gives the smallest and the largest sum for the d_t
        of every decision, `totals` all sums.
      mass: d̃_t, float64 [times].
    """
    n = getattr(env, "n_decisions", None)
    if n is None or not hasattr(env, "returns"):
        return None
    factors = np.where(np.tri(n, k=-1, dtype=bool), 0.0, mass[:n])  # [t, k]: none of before t
    low, high = np.zeros((2, len(mass)))
    low[:n], high[:n] = np.transpose([env.returns(one) for one in factors])
    if not hasattr(env, "totals"):
        return Ahead(low, high, None)
    sums = np.array([env.totals(one) for one in factors])  # [n, J]
    return Ahead(low, high, np.pad(sums, ((0, len(mass) - n), (0, 0))))
