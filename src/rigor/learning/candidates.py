"""Which initial stocks come into question, for the outer search and for relabelling."""

import numpy as np

from rigor.errors import UserError
from rigor.learning.ahead import Ahead
from rigor.learning.replay import Batch
from rigor.maths import stock
from rigor.maths.outer import Outer


class Candidates:
    """A range of initial stocks, in learned reward units.

    c₀ is minus a quantile of the return: the range is that of the returns where the environment
    declares them, else what rewards as large as the largest can sum up to.

    Args:
      spec: what the config says of the search. mass: d̃_t, float64 [times].
      ahead: what the environment declares. reward_bound: largest |learned reward| by its word, or
        None; then the largest that was seen counts.
    """

    def __init__(
        self, spec: Outer, mass: np.ndarray, ahead: Ahead | None, reward_bound: float | None
    ) -> None:
        self._spec, self._mass, self._ahead = spec, mass, ahead
        self.reward_bound = reward_bound or 0.0
        self._first = self._between(reward_bound or 1.0)
        self.scale = max(map(abs, self._first)) or 1.0  # a network's unit of the stock

    def check(self) -> None:
        """Refuse a range that is empty before anything was seen.

        Raises:
          UserError: no stock lies between its ends.
        """
        low, high = self._first
        if low >= high:
            raise UserError(
                f"outer.low={low:g} with outer.high={high:g}: no initial stock lies between; set "
                "both (null takes the largest discounted sum of rewards known at the start)"
            )

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest by what is known by now."""
        return self._between(self.reward_bound)

    def grid(self) -> np.ndarray:
        """Return the candidates of a search, ascending, float64 [G].

        Equally spaced ones, and minus each of the totals where they are few: there CVaR's utility
        bends, and there its best c lies.
        """
        low, high = self.range()
        even = stock.grid(low, high, self._spec.points)
        if self._ahead is None or self._ahead.totals is None:
            return even
        exact = -self._ahead.totals[0]
        return np.union1d(even, exact[(low <= exact) & (exact <= high)])

    def see(self, reward: np.ndarray) -> None:
        """Widen the range to the learned rewards [E] that came in."""
        self.reward_bound = max(self.reward_bound, float(np.abs(reward).max()))

    def relabel(self, batch: Batch, rng: np.random.Generator) -> None:
        """Give a share of the transitions another initial stock, drawn from the range.

        Valid because the stock is a deterministic function of the rewards.
        """
        n = len(batch.stock)
        chosen = rng.random(n) < self._spec.relabel
        start = np.where(chosen, rng.uniform(*self.range(), n), batch.stock_start)
        batch.stock = stock.relabel(batch.stock, batch.stock_start, start)
        batch.stock_start = start

    def _between(self, reward_bound: float) -> tuple[float, float]:
        spec, ahead, low, high = self._spec, self._ahead, 0.0, 0.0
        if ahead is not None:
            low, high = -float(ahead.high[0]), 0.0 - float(ahead.low[0])
        if low >= high:
            low, high = stock.default_range(self._mass, reward_bound)
        return (low if spec.low is None else spec.low, high if spec.high is None else spec.high)
