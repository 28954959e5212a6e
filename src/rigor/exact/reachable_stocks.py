"""Reachable stocks: all values that the discounted sum of past rewards can take.

The stock is S_t = c₀ + o_t with o_t = Σ_{k<t} d_k R_{k+1}. The offsets o_t do not depend on c₀, so
a single enumeration serves every initial stock. If there are more offsets than allowed, an equally
spaced grid replaces them, on which a reward leads to the two neighbours of its target.
"""

from dataclasses import dataclass

import numpy as np

from rigor.envs.model import Model
from rigor.errors import UserError

ROUNDING = 1e-12  # relative; sums of the same rewards in another order differ by less


@dataclass
class ReachableStocks:
    """The reachable offsets of every decision, and the transitions between them.

    Attributes:
      offsets: o_t at t = 0 ... T, each float64 [L_t, K] under K discounts at once, in ascending
        order of the first.
      index: of t = 0 ... T − 1, each int64 [R, L_t]: the next offset after each reward, or on a
        grid the one below it.
      above_weight: likewise float64 [R, L_t]: interpolation weight of the offset above; None where
        offsets are exact.
    """

    offsets: list[np.ndarray]
    index: list[np.ndarray]
    above_weight: list[np.ndarray | None]

    @property
    def gridded(self) -> bool:
        """Whether a grid replaces the offsets of some decision, so that values are interpolated."""
        return any(weight is not None for weight in self.above_weight)

    @property
    def added_variance(self) -> float:
        """A bound of the variance that splitting rewards between neighbours adds to a return."""
        added = 0.0
        for weight, offsets in zip(self.above_weight, self.offsets[1:], strict=True):
            if weight is not None:
                spacing = float(offsets[1, 0] - offsets[0, 0])
                added += float((weight * (1.0 - weight)).max()) * spacing**2
        return added

    @property
    def max_count(self) -> int:
        """The largest number of offsets of a decision."""
        return max(len(offsets) for offsets in self.offsets[:-1])

    def gather(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return the value after every reward, [R, ..., L_t, n], of `value` [..., L_{t+1}, n]."""
        index, weight = self.index[t], self.above_weight[t]
        below = np.moveaxis(value[..., index, :], -3, 0)
        if weight is None:
            return below
        above = np.moveaxis(value[..., np.minimum(index + 1, value.shape[-2] - 1), :], -3, 0)
        weight = weight.reshape(len(weight), *(1,) * (value.ndim - 2), -1, 1)
        return below + weight * (above - below)

    def scatter(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of the next offset, [L_{t+1}, n], from [R, L_t, n].

        This is the adjoint of `gather`.
        """
        index, weight = self.index[t].ravel(), self.above_weight[t]
        rows = probability.reshape(-1, probability.shape[-1])
        last = len(self.offsets[t + 1]) - 1
        out = np.zeros((last + 1, probability.shape[-1]))
        if weight is None:
            np.add.at(out, index, rows)
        else:
            above = weight.reshape(-1, 1) * rows
            np.add.at(out, index, rows - above)
            np.add.at(out, np.minimum(index + 1, last), above)
        return out


def reachable_stocks(model: Model, factors: np.ndarray, max_stocks: int) -> ReachableStocks:
    """Enumerate the reachable offsets of a model.

    Args:
      model: the problem.
      factors: d_t of the T decisions under each of K discounts, [T, K].
      max_stocks: number of offsets of a decision above which a grid replaces them; a grid requires
        K = 1. The outcomes after the last decision stay exact.

    Raises:
      UserError: two discounts at once lead to more than `max_stocks` offsets.
    """
    n_decisions, n_discounts = factors.shape
    rewards = [np.asarray(model.rewards(t), np.float64) for t in range(n_decisions)]
    largest = sum(np.abs(d).max() * np.abs(r).max() for d, r in zip(factors, rewards, strict=True))
    resolution = ROUNDING * max(float(largest), 1e-300)
    offsets: list[np.ndarray] = [np.zeros((1, n_discounts))]
    index: list[np.ndarray] = []
    above_weight: list[np.ndarray | None] = []
    for t, (d, r) in enumerate(zip(factors, rewards, strict=True)):
        targets = offsets[-1][None] + r[:, None, None] * d  # [R, L, K]
        flat = targets.reshape(-1, n_discounts)
        keys = np.round(flat / resolution)
        _, first, inverse = np.unique(  # sorting a column is much faster than sorting rows
            keys[:, 0] if n_discounts == 1 else keys, axis=0, return_index=True, return_inverse=True
        )
        if len(first) <= max_stocks or t == n_decisions - 1:
            offsets.append(flat[first])
            index.append(inverse.reshape(targets.shape[:2]))
            above_weight.append(None)
            continue
        if n_discounts > 1:
            raise UserError(
                f"exact.max_stocks={max_stocks}: the agent's discount and the true one lead to "
                f"more stocks ({len(first):,} at t = {t + 1} of {n_decisions}); raise "
                "exact.max_stocks, or use agent=singlehorizon, whose discount is the true one"
            )
        grid = np.linspace(flat.min(), flat.max(), max_stocks)
        place = (targets[..., 0] - grid[0]) / (grid[1] - grid[0])
        below = np.clip(np.floor(place), 0, max_stocks - 2).astype(np.int64)
        offsets.append(grid[:, None])
        index.append(below)
        above_weight.append(np.clip(place - below, 0.0, 1.0))
    return ReachableStocks(offsets, index, above_weight)
