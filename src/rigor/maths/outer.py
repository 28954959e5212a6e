"""The outer search: the initial stock c₀ = argmax_c {−c + max_a Q(s₀, 0, c, a)} (equation oce)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rigor.maths.utility import Utility

if TYPE_CHECKING:
    import torch

TIE_TOLERANCE = 1e-9  # relative difference of J below which two stocks tie: float64 rounding


@dataclass
class Outer:
    """The settings of the search for the initial stock.

    Attributes:
      points: G, number of grid points, >= 2.
      every: updates of the network between two searches, >= 1.
      low: the smallest initial stock, reward units; None derives it from the returns seen, or from
        the bounds of the problem.
      high: the largest initial stock, likewise.
      batch: initial states over which J is averaged, >= 1.
      relabel: fraction of replayed transitions that get another initial stock, in [0, 1].
      rollouts: number of episodes that the greedy policy plays after each search, >= 0, from the
        new c₀ and again from the previous c₀. The c₀ whose returns have the higher OCE, by the
        lower end of a confidence interval, is kept, and is replaced by the maximiser c of
        OCE(Z) = sup_c {−c + E f(c + Z)} for these returns Z. Rollouts reject a c₀ whose predicted
        value is too high. 0 relies on the predictions.
    """

    points: int
    every: int
    low: float | None
    high: float | None
    batch: int
    relabel: float
    rollouts: int

    def __post_init__(self) -> None:
        for name, least in (("points", 2), ("every", 1), ("batch", 1), ("rollouts", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"outer.{name}={getattr(self, name)}: must be at least {least}")
        if not 0.0 <= self.relabel <= 1.0:
            raise ValueError(f"outer.relabel={self.relabel}: a fraction lies in [0, 1]")
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
      on_edge: whether c₀ is an end of the grid; the optimum may then lie outside the grid.
    """

    c0: float
    value: float
    on_edge: bool


def objective(utility: Utility, grid: "torch.Tensor", outcomes: "torch.Tensor") -> "torch.Tensor":
    """Return J(c) = −c + mean_k max_a mean_j f(c + z_j) at every stock of a grid, float64 [G].

    Args:
      utility: the risk measure's utility.
      grid: candidate initial stocks, [G], reward units.
      outcomes: z of K initial states at t = 0 (discount 1) at each candidate, [G, K, A, N].
    """
    if grid.ndim != 1 or outcomes.ndim != 4 or len(grid) != len(outcomes):
        raise ValueError(f"grid {tuple(grid.shape)} and outcomes {tuple(outcomes.shape)} disagree")
    grid = grid.double()
    total = grid[:, None, None, None] + outcomes.double()
    return utility.f(total).mean(dim=-1).amax(dim=-1).mean(dim=-1) - grid


def refined(utility: Utility, outcomes: "torch.Tensor", grid: "torch.Tensor") -> np.ndarray:
    """Return the best c for the returns of each candidate's greedy policy, float64 [G].

    The policy that is greedy at c has some return Z at the initial states, and argmax_c' of
    −c' + E f(c' + Z) is a better candidate than c if the policy at c' is no worse.

    Args:
      utility: the risk measure's utility.
      outcomes: z of K initial states at t = 0 at each candidate, [G, K, A, N].
      grid: candidate initial stocks, [G], reward units.
    """
    z = outcomes.double()
    values = utility.f(grid.double()[:, None, None, None] + z).mean(dim=-1)  # [G, K, A]
    action = values.argmax(dim=-1)[..., None, None].expand(-1, -1, 1, z.shape[3])
    returns = z.gather(2, action).flatten(1).cpu().numpy()  # [G, K · N]
    return np.array([utility.oce(row)[1] for row in returns])


def best(grid: "torch.Tensor", j: "torch.Tensor") -> InitialStock:
    """Return the maximiser of J [G] on a grid of initial stocks, ascending, float64 [G].

    Ties go to the c nearest 0 (erratum E5), then to the lower c.
    """
    import torch

    tolerance = TIE_TOLERANCE * max(float(grid.abs().max()), abs(float(j.max())))
    tied = j >= j.max() - tolerance
    chosen = int(torch.where(tied, grid.abs(), torch.inf).argmin())
    return InitialStock(float(grid[chosen]), float(j[chosen]), chosen in (0, len(grid) - 1))
