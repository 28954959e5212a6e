"""A model in which some decisions are already taken: a policy's value by the same induction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigor.exact.model import Laws, Model


@dataclass
class Decided:
    """Another model, with some of its decisions taken.

    Attributes:
      model: the problem. n_decisions: as many of them as are looked at.
      fixed: the actions [n] at decision t that stand for every action, or None.
    """

    model: Model
    n_decisions: int
    fixed: Callable[[int], np.ndarray | None]

    def __post_init__(self) -> None:
        self.n_points, self.n_actions = self.model.n_points, self.model.n_actions
        self.initial = self.model.initial
        if hasattr(self.model, "largest_exponent"):
            self.largest_exponent = self.model.largest_exponent

    def rewards(self, t: int) -> np.ndarray:
        """Return the distinct rewards, [R]."""
        return self.model.rewards(t)

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | point, action], that of the fixed action for all: [A, L, n]."""
        q, actions = self.model.expect(t, value), self.fixed(t)
        return q if actions is None else self._for_all(q, actions)

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where a law [A, L, n] goes under the fixed action, [R, L, n]."""
        actions = self.fixed(t)
        if actions is not None:
            played = np.arange(self.n_actions)[:, None, None] == actions
            law = played * law.sum(axis=0)
        return self.model.spread(t, law)

    def stops(self, t: int) -> np.ndarray | None:
        """Return the payoffs, that of the fixed action for all: [A, n], or None."""
        stops, actions = self.model.stops(t), self.fixed(t)
        if stops is None or actions is None:
            return stops
        return self._for_all(stops[:, None], actions)[:, 0]

    def observations(self, t: int) -> np.ndarray:
        """Return what the model shows."""
        return self.model.observations(t)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the points of observations, int64 [E]."""
        return self.model.locate(observations)

    def numbers(self, laws: Laws) -> dict[str, Any]:
        """Return the model's own numbers."""
        return self.model.numbers(laws)

    def _for_all(self, q: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return [A, L, n] with the fixed action's row of q in place of every one."""
        taken = np.take_along_axis(q, actions[None, None].astype(np.int64), 0)  # [1, L, n]
        return np.broadcast_to(taken, q.shape)
