"""A model with fixed actions at some decisions, so that backward induction evaluates a policy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigor.envs.model import Model, OccupancyMeasures, largest_exponent


@dataclass
class FixedDecisions:
    """A model in which every action of some decisions has the effect of one prescribed action.

    Arrays have A actions, n points of the model and L functions that are handled together.

    Attributes:
      model: the problem.
      n_decisions: number of decisions, which may differ from the problem's.
      fixed: returns the prescribed actions [n] at decision t, or None to leave the choice free.
    """

    model: Model
    n_decisions: int
    fixed: Callable[[int], np.ndarray | None]

    def __post_init__(self) -> None:
        self.n_points, self.n_actions = self.model.n_points, self.model.n_actions
        self.initial = self.model.initial
        self.largest_exponent = largest_exponent(self.model)

    def rewards(self, t: int) -> np.ndarray:
        """Return the distinct rewards, [R]."""
        return self.model.rewards(t)

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | point, action], [A, L, n], equal for all actions where fixed."""
        q, actions = self.model.expect(t, value), self.fixed(t)
        return q if actions is None else self._for_all(q, actions)

    def push_forward(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of reward and next point, [R, L, n].

        Args:
          t: decision. probability: of action and point, [A, L, n].
        """
        actions = self.fixed(t)
        if actions is not None:
            chosen = np.arange(self.n_actions)[:, None, None] == actions
            probability = chosen * probability.sum(axis=0)
        return self.model.push_forward(t, probability)

    def terminal_payoff(self, t: int) -> np.ndarray | None:
        """Return the payoffs [A, n], equal for all actions where fixed, or None."""
        payoff, actions = self.model.terminal_payoff(t), self.fixed(t)
        if payoff is None or actions is None:
            return payoff
        return self._for_all(payoff[:, None], actions)[:, 0]

    def observations(self, t: int) -> np.ndarray:
        """Return the observation at every point."""
        return self.model.observations(t)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the points of observations, int64 [E]."""
        return self.model.locate(observations)

    def statistics(self, occupancy: OccupancyMeasures) -> dict[str, Any]:
        """Return the problem's statistics."""
        return self.model.statistics(occupancy)

    def _for_all(self, q: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return [A, L, n]: the values of the prescribed action, copied to every action."""
        row = np.take_along_axis(q, actions[None, None].astype(np.int64), 0)  # [1, L, n]
        return np.broadcast_to(row, q.shape)
