"""The interface between the exact solvers and a problem: a finite model with known transitions.

A model has decisions at t = 0 ... T − 1, finitely many points (the states of a tabular problem, the
cells of a grid) and finitely many actions. At each decision either the agent earns one of a few
rewards and the episode continues, or the action ends the episode with a terminal payoff. The
solvers keep track of the return so far; a model knows only transitions and rewards.
"""

from typing import Any, Protocol

import numpy as np

from rigor.errors import UserError
from rigor.maths.utility import Utility, facts_of

FLOAT64_EXPONENT = 600.0
"""The `largest_exponent` of float64 arithmetic, with room for sums."""

TRANSFORM_EXPONENT = 25.0
"""The `largest_exponent` of a Fourier transform: e^−25 beside values of 1 has an error of 1e-5."""


class OccupancyMeasures(Protocol):
    """The probabilities with which a policy visits points and takes actions."""

    @property
    def mean_score(self) -> float:
        """The expected undiscounted return."""

    def of_points(self, t: int) -> np.ndarray:
        """Return P(point) at decision t, [n]; the sum is the probability of not having ended."""

    def of_actions(self, t: int) -> np.ndarray:
        """Return P(action, point) at decision t, [A, n]."""


class Model(Protocol):
    """A decision problem with n points, A actions and T decisions.

    Attributes:
      n_points: n. n_actions: A. n_decisions: T; decisions are taken at t = 0 ... T − 1.
      initial: distribution of the first point, float64 [n].
      largest_exponent: optional, see the function of that name.
    """

    n_points: int
    n_actions: int
    n_decisions: int
    initial: np.ndarray

    def rewards(self, t: int) -> np.ndarray:
        """Return the R distinct rewards that decision t can earn without ending, float64 [R]."""
        ...

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | point, action], [A, L, n]: linear in `value`.

        Args:
          t: the decision.
          value: of every reward and next point, [R, L, n], for L functions at once.
        """
        ...

    def push_forward(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of reward and next point, [R, L, n]: the adjoint of `expect`.

        Σ probability · expect(t, value) = Σ push_forward(t, probability) · value for every value.

        Args:
          t: the decision.
          probability: of every action and point, [A, L, n]; 0 where the action ends the episode.
        """
        ...

    def terminal_payoff(self, t: int) -> np.ndarray | None:
        """Return the payoff of every action that ends the episode at t, [A, n].

        It is NaN where the episode continues, and `expect` applies there. None if no action ends
        the episode. Every episode ends after the last decision.
        """
        ...

    def observations(self, t: int) -> np.ndarray:
        """Return the environment's observation at every point, [n, *shape]."""
        ...

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the point of every observation, int64 [E]; the nearest point of a grid."""
        ...

    def statistics(self, occupancy: OccupancyMeasures) -> dict[str, Any]:
        """Return problem-specific statistics of a policy, for `result.json`."""
        ...


def largest_exponent(model: Model) -> float:
    """Return the largest |β|·(range of returns) at which E exp(βx) is accurate.

    A model may have an attribute of this name. It needs one if `expect` rounds in proportion to the
    largest value, as a Fourier transform does, instead of in proportion to each value.
    """
    return getattr(model, "largest_exponent", FLOAT64_EXPONENT)


def refuse_overflow(
    utility: Utility, lowest: float, highest: float, largest: float = FLOAT64_EXPONENT
) -> None:
    """Raise UserError if exp(βx) of the entropic utility spans too many orders of magnitude.

    Args:
      utility: the risk measure's utility. lowest, highest: range of the discounted return.
      largest: the largest accurate exponent.
    """
    rate = facts_of(utility).exponential_rate
    reach = max(abs(lowest), abs(highest), highest - lowest)
    if rate is not None and abs(rate) * reach > largest:
        raise UserError(
            f"risk.beta={rate}: exp(beta x) spans too much for discounted returns from "
            f"{lowest:.4g} to {highest:.4g}; risk.beta={-0.99 * largest / reach:.3g} works"
        )
