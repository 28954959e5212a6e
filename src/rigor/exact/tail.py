"""What an infinite horizon asks of a discount: a tail that ends up exponential."""

import numpy as np

from rigor.errors import UserError
from rigor.maths.discount import Discount

TABLE = 1024  # decisions tabulated first in search of where a discount has become negligible
LONGEST = 1 << 22  # decisions after which that search is given up


def tail_factor(discount: Discount, horizon: int) -> float:
    """Return γ_tail = d_{T'+1}/d_{T'}, refusing discounts without an exponential tail."""
    if horizon < 0:
        raise UserError(f"agent.horizon={horizon}: decisions planned before the tail, 0 or more")
    name = type(discount).__name__
    gamma = float(discount.step_factor(horizon))
    if discount.tail_factor >= 1.0 or gamma >= 1.0:
        shown = getattr(discount, "gamma", None)
        what = f"discount={name}" if shown is None else f"discount={name} discount.gamma={shown}"
        raise UserError(
            f"{what}: one-step factors reach 1, so an infinite horizon has no stationary tail; cap "
            f"them with discount=capped discount.gamma_tail=.98 (discount@discount.base chooses "
            f"what is capped)"
        )
    return gamma


class Far:
    """Where a discount and its planned tail d̃ have become negligible.

    Beyond its table a one-step factor lies between the table's last and its limit.
    """

    def __init__(self, discount: Discount, horizon: int, gamma: float) -> None:
        self.discount, self.horizon, self.gamma = discount, horizon, gamma
        self.at_horizon = float(discount.factor(horizon))
        self._tabulate(max(TABLE, 2 * horizon))
        while self.beyond(-1) > 1e-12 and len(self.d) < LONGEST:
            self._tabulate(2 * len(self.d))
        after = np.abs(self.d - self.planned(len(self.d) - horizon))[horizon + 1 :]
        rest = self.beyond(-1) + self.planned_beyond(len(self.d) - horizon)
        exact = bool((self.steps[horizon:] == gamma).all()) and discount.tail_factor == gamma
        self.mismatch = 0.0 if exact else float(after.sum()) + rest

    def _tabulate(self, size: int) -> None:
        t = np.arange(size)
        self.d, self.steps = self.discount.factor(t), self.discount.step_factor(t)
        later = np.maximum.accumulate(self.steps[::-1])[::-1]
        self.worst = np.maximum(later, self.discount.tail_factor)

    def planned(self, n_tail: int) -> np.ndarray:
        """Return d̃_t of t < T' + n_tail."""
        tail = self.at_horizon * np.power(self.gamma, np.arange(n_tail, dtype=np.float64))
        return np.concatenate([self.d[: self.horizon], tail])

    def planned_beyond(self, n_tail: int) -> float:
        """Return Σ d̃_t over t >= T' + n_tail."""
        return float(self.at_horizon * np.power(self.gamma, float(n_tail)) / (1.0 - self.gamma))

    def beyond(self, t: int) -> float:
        """Return a bound of Σ_{k>=t} d_k."""
        return float(self.d[t] / (1.0 - self.worst[t]))

    def n_tail(self, enough: float) -> int:
        """Return K >= 1 with Σ_{t>=T'+K} d̃_t <= enough."""
        n = 1
        while self.planned_beyond(n) > enough:
            n += 1
        return n

    def n_true(self, enough: float) -> tuple[int, float]:
        """Return decisions, more than T', beyond which Σ d_t <= enough, and that sum's bound."""
        few = self.d / (1.0 - self.worst) <= enough
        n = max(int(few.argmax()) if few.any() else len(self.d) - 1, self.horizon + 1)
        return n, self.beyond(n)
