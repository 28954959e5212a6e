"""What the exact solvers ask of a problem: a finite model, seen through its expectations.

A problem has `n_decisions` decisions at t = 0 ... T − 1, a finite number of points (states of a
tabular model, cells of a grid) and of actions. What is earned is either one of a few rewards
(`rewards`), after which the episode goes on, or a payoff that ends it (`stops`). The solvers keep
track of what has been earned; a model only says where an action leads.
"""

from typing import Any, Protocol

import numpy as np

TRANSFORM_EXPONENT = 25.0
"""A `largest_exponent`: e^−25 is known to 1e-5 of itself beside values of 1."""


class Model(Protocol):
    """A decision problem on n points, A actions and T decisions.

    Attributes:
      n_points: n. n_actions: A. n_decisions: T; decisions are taken at t = 0 ... T − 1.
      initial: the law of the first point, float64 [n].
      largest_exponent: may be left out; what |β| times the range of returns may be at most where
        `expect` rounds in proportion to the largest value (a Fourier transform), not to each.
    """

    n_points: int
    n_actions: int
    n_decisions: int
    initial: np.ndarray

    def rewards(self, t: int) -> np.ndarray:
        """Return the R distinct rewards that can be earned at t without ending, float64 [R]."""
        ...

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | point, action], [A, L, n]: linear in `value`.

        Args:
          t: the decision.
          value: of every reward and next point, [R, L, n]; L is any number of functions at once.
        """
        ...

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where a law goes, [R, L, n]: the adjoint of `expect`.

        Σ law · expect(t, value) = Σ spread(t, law) · value for every value.

        Args:
          t: the decision.
          law: mass on every action and point, [A, L, n]; none where the action stops.
        """
        ...

    def stops(self, t: int) -> np.ndarray | None:
        """Return the payoff of every action that ends the episode at t, [A, n].

        NaN where the episode goes on, which leaves `expect` in charge; None if it always does.
        After the last decision everything ends, whether by a stop or not.
        """
        ...

    def observations(self, t: int) -> np.ndarray:
        """Return what an agent sees at every point, as the environment shows it, [n, *shape]."""
        ...

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the point of every observation, int64 [E]; the nearest one on a grid."""
        ...

    def numbers(self, laws: "Laws") -> dict[str, Any]:
        """Return the problem's own numbers under a policy, for `result.json`."""
        ...


class Laws(Protocol):
    """Where a policy leads, as `Model.numbers` sees it."""

    def occupied(self, t: int) -> np.ndarray:
        """Return the mass on every point at decision t, [n], of episodes that have not ended."""
        ...

    def taken(self, t: int) -> np.ndarray:
        """Return the mass on every action and point at decision t, [A, n]."""
        ...

    def undiscounted(self) -> float:
        """Return the mean undiscounted return."""
        ...
