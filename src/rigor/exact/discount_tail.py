"""The exponential tail of a discount, which the infinite-horizon solver requires."""

import numpy as np

from rigor.errors import UserError
from rigor.maths.discount import Discount

INITIAL_SIZE = 1024  # decisions tabulated at first
MAX_SIZE = 1 << 22  # decisions tabulated at most
NEGLIGIBLE = 1e-12  # sum of the discounts beyond the table below which it is long enough


def tail_factor(discount: Discount, horizon: int) -> float:
    """Return γ_tail = d_{T'+1}/d_{T'}.

    Raises:
      UserError: T' = `horizon` is negative, or the discount has no exponential tail.
    """
    if horizon < 0:
        raise UserError(f"agent.horizon={horizon}: decisions planned before the tail, 0 or more")
    gamma = float(discount.step_factor(horizon))
    if discount.tail_factor >= 1.0 or gamma >= 1.0:
        raise UserError(
            "discount: its one-step factors reach 1, so an infinite horizon has no stationary "
            "tail; use discount=capped discount.gamma_tail=.98 (discount@discount.base chooses the "
            "discount to cap)"
        )
    return gamma


class TailBound:
    """Bounds on the sums of a discount d_t, and of its planned version d̃_t, beyond a time.

    d̃_t = d_t for t <= T', and it decays by `gamma` a step afterwards. Beyond the table, a one-step
    factor of d_t lies between the table's last factor and the limit.

    Attributes:
      at_horizon: d_{T'}.
      mismatch: a bound of Σ_t |d_t − d̃_t|.
    """

    def __init__(self, discount: Discount, horizon: int, gamma: float) -> None:
        self.discount, self.horizon, self.gamma = discount, horizon, gamma
        self.at_horizon = float(discount.factor(horizon))
        self._tabulate(max(INITIAL_SIZE, 2 * horizon))
        while self.beyond(-1) > NEGLIGIBLE and len(self.d) < MAX_SIZE:
            self._tabulate(2 * len(self.d))
        after = np.abs(self.d - self.planned(len(self.d) - horizon))[horizon + 1 :]
        rest = self.beyond(-1) + self.planned_beyond(len(self.d) - horizon)
        exact = bool((self.steps[horizon:] == gamma).all()) and discount.tail_factor == gamma
        self.mismatch = 0.0 if exact else float(after.sum()) + rest

    def _tabulate(self, size: int) -> None:
        t = np.arange(size)
        self.d, self.steps = self.discount.factor(t), self.discount.step_factor(t)
        largest_later = np.maximum.accumulate(self.steps[::-1])[::-1]
        self.largest_step = np.maximum(largest_later, self.discount.tail_factor)

    def planned(self, n_tail: int) -> np.ndarray:
        """Return d̃_t of t < T' + n_tail."""
        tail = self.at_horizon * np.power(self.gamma, np.arange(n_tail, dtype=np.float64))
        return np.concatenate([self.d[: self.horizon], tail])

    def planned_beyond(self, n_tail: int) -> float:
        """Return Σ d̃_t over t >= T' + n_tail."""
        return float(self.at_horizon * np.power(self.gamma, float(n_tail)) / (1.0 - self.gamma))

    def beyond(self, t: int) -> float:
        """Return a bound of Σ_{k>=t} d_k."""
        return float(self.d[t] / (1.0 - self.largest_step[t]))

    def n_tail(self, tolerance: float) -> int:
        """Return the smallest K >= 1 with Σ_{t>=T'+K} d̃_t <= tolerance."""
        n = 1
        while self.planned_beyond(n) > tolerance:
            n += 1
        return n

    def n_true(self, tolerance: float) -> tuple[int, float]:
        """Return n > T' with Σ_{t>=n} d_t <= tolerance if the table has one, and a bound of it."""
        negligible = self.d / (1.0 - self.largest_step) <= tolerance
        n = int(negligible.argmax()) if negligible.any() else len(self.d) - 1
        n = max(n, self.horizon + 1)
        return n, self.beyond(n)
