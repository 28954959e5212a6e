"""The outer search: the initial stock c₀ = argmax_c {−c + max_a Q(s₀, 0, c, a)} (equation oce)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from omegaconf import MISSING

from rigor.maths.utility import Utility

if TYPE_CHECKING:
    import torch

# J is flat where the optimum is not unique; sums of float64 in units of the grid differ by less.
TIE_TOLERANCE = 1e-9


@dataclass
class Outer:
    """How the initial stock is searched for.

    Attributes:
      points: G, number of grid points, >= 2.
      every: updates of the network between two searches, >= 1.
      low: the smallest initial stock, reward units; None takes the returns' reach.
      high: the largest initial stock, likewise.
      batch: initial states kept and averaged over, >= 1.
      relabel: share of the replayed transitions that get another initial stock, in [0, 1].
      games: played by the greedy policy after each search, >= 0, from the c₀ found and from the one
        before; c₀ becomes the best one for the better returns, by the lower end of an interval. As
        OCE(Z) = sup_c {−c + E f(c + Z)}, neither policy is worth less from its own best, while a
        prediction too high at a wrong c₀ is found out. 0 trusts the predictions.
    """

    points: int = MISSING
    every: int = MISSING
    low: float | None = MISSING
    high: float | None = MISSING
    batch: int = MISSING
    relabel: float = MISSING
    games: int = MISSING

    def __post_init__(self) -> None:
        for name, least in (("points", 2), ("every", 1), ("batch", 1), ("games", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"outer.{name}={getattr(self, name)}: must be at least {least}")
        if not 0.0 <= self.relabel <= 1.0:
            raise ValueError(f"outer.relabel={self.relabel}: a share lies in [0, 1]")
        for name in ("low", "high"):
            value = getattr(self, name)
            if value is not None and not np.isfinite(value):
                raise ValueError(f"outer.{name}={value}: must be a finite number, or null")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"outer.low={self.low} must lie below outer.high={self.high}")


class InitialStock(NamedTuple):
    """The result of an outer search.

    Attributes:
      c0: the initial stock, reward units.
      value: J(c₀), the predicted objective.
      on_edge: whether c₀ is an end of the grid, so that the optimum may lie outside it.
    """

    c0: float
    value: float
    on_edge: bool


def initial_stock(utility: Utility, grid: "torch.Tensor", outcomes: "torch.Tensor") -> InitialStock:
    """Maximise J(c) = −c + mean_k max_a mean_j f(c + z_j) over the grid.

    Args:
      utility: the risk; where it does not need a stock the search may be skipped with c₀ = 0.
      grid: candidate initial stocks, ascending, [G], reward units.
      outcomes: z of K initial states at t = 0 (mass 1) at each candidate, [G, K, A, N].
    """
    if grid.ndim != 1 or outcomes.ndim != 4 or len(grid) != len(outcomes):
        raise ValueError(f"grid {tuple(grid.shape)} and outcomes {tuple(outcomes.shape)} disagree")
    grid = grid.double()
    totals = grid[:, None, None, None] + outcomes.double()
    return best(grid, utility.f(totals).mean(dim=-1).amax(dim=-1).mean(dim=-1) - grid)


def best(grid: "torch.Tensor", j: "torch.Tensor") -> InitialStock:
    """Return the maximiser of J [G] on a grid of initial stocks, ascending, float64 [G].

    Of several the c nearest 0 is taken (erratum E5), the lower of two equally near.
    """
    import torch

    tolerance = TIE_TOLERANCE * max(1.0, float(grid.abs().max()))
    tied = j >= j.max() - tolerance
    chosen = int(torch.where(tied, grid.abs(), torch.inf).argmin())
    return InitialStock(float(grid[chosen]), float(j[chosen]), chosen in (0, len(grid) - 1))
