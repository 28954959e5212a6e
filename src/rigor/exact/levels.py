"""What can have been earned so far: the values that the discounted sum of rewards can take.

The stock is S_t = c₀ + o_t with o_t = Σ_{k<t} d_k R_{k+1}. The offsets o_t do not depend on c₀, so
one enumeration serves every initial stock. Where there are more of them than allowed they are
replaced by an equally spaced grid, on which a reward's target is split between two neighbours.
"""

from dataclasses import dataclass

import numpy as np

from rigor.errors import UserError
from rigor.exact.model import Model

# Sums of the same rewards in another order differ by rounding only; they are one offset.
SAME = 1e-12


@dataclass
class Levels:
    """The reachable offsets of every decision, and where each reward leads.

    Attributes:
      offsets: of t = 0 ... T, each float64 [L_t, K], for K discounts at once, ascending in the
        first.
      index: of t = 0 ... T − 1, each int64 [R, L_t]: the next offset that a reward leads to; on a
        grid the one below it.
      share: likewise float64 [R, L_t]: how much goes to the offset above instead; None where exact.
    """

    offsets: list[np.ndarray]
    index: list[np.ndarray]
    share: list[np.ndarray | None]

    @property
    def gridded(self) -> bool:
        """Whether there were too many offsets somewhere, so that values are interpolated."""
        return any(share is not None for share in self.share)

    @property
    def most(self) -> int:
        """The largest number of offsets of one decision."""
        return max(len(offsets) for offsets in self.offsets[:-1])

    def gather(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return the value after every reward, [R, ..., L_t, n], of `value` [..., L_{t+1}, n]."""
        index, share = self.index[t], self.share[t]
        reached = np.moveaxis(value[..., index, :], -3, 0)
        if share is None:
            return reached
        above = np.moveaxis(value[..., np.minimum(index + 1, value.shape[-2] - 1), :], -3, 0)
        portion = share.reshape(len(share), *(1,) * (value.ndim - 2), -1, 1)
        return reached + portion * (above - reached)

    def scatter(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return the mass on the next offsets, [L_{t+1}, n], of `law` [R, L_t, n]: the adjoint."""
        index, share = self.index[t].ravel(), self.share[t]
        rows = law.reshape(-1, law.shape[-1])
        last = len(self.offsets[t + 1]) - 1
        spread = np.zeros((last + 1, law.shape[-1]))
        if share is None:
            np.add.at(spread, index, rows)
        else:
            above = share.reshape(-1, 1) * rows
            np.add.at(spread, index, rows - above)
            np.add.at(spread, np.minimum(index + 1, last), above)
        return spread


def reachable(model: Model, factors: np.ndarray, most: int) -> Levels:
    """Enumerate the offsets of a model's episodes.

    Args:
      model: the problem.
      factors: d_t of the T decisions under each of K discounts, [T, K].
      most: offsets of one decision above which they become a grid, which needs K = 1. The last
        decision's outcomes are never gridded: there the utility is exact.
    """
    n_decisions, n_clocks = factors.shape
    rewards = [np.asarray(model.rewards(t), np.float64) for t in range(n_decisions)]
    largest = sum(np.abs(d).max() * np.abs(r).max() for d, r in zip(factors, rewards, strict=True))
    resolution = SAME * max(float(largest), 1e-300)
    offsets: list[np.ndarray] = [np.zeros((1, n_clocks))]
    index: list[np.ndarray] = []
    share: list[np.ndarray | None] = []
    for t, (d, r) in enumerate(zip(factors, rewards, strict=True)):
        targets = offsets[-1][None] + r[:, None, None] * d  # [R, L, K]
        flat = targets.reshape(-1, n_clocks)
        keys = np.round(flat / resolution)
        _, first, inverse = np.unique(  # of one column sorting is much faster than of rows
            keys[:, 0] if n_clocks == 1 else keys, axis=0, return_index=True, return_inverse=True
        )
        if len(first) <= most or t == n_decisions - 1:
            offsets.append(flat[first])
            index.append(inverse.reshape(targets.shape[:2]))
            share.append(None)
            continue
        if n_clocks > 1:
            raise UserError(
                f"more than {most} totals under two discounts at once; raise exact.max_stocks"
            )
        grid = np.linspace(flat.min(), flat.max(), most)
        place = (targets[..., 0] - grid[0]) / (grid[1] - grid[0])
        below = np.clip(np.floor(place), 0, most - 2).astype(np.int64)
        offsets.append(grid[:, None])
        index.append(below)
        share.append(np.clip(place - below, 0.0, 1.0))
    return Levels(offsets, index, share)
