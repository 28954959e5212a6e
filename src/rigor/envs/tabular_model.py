"""The exact model of a finite Markov decision process."""

from typing import Any, Protocol

import numpy as np

from rigor.envs.model import OccupancyMeasures
from rigor.envs.tabular_files import TransitionTables


class TabularParameters(Protocol):
    """The part of a tabular environment that its model reads."""

    @property
    def n_decisions(self) -> int | None:
        """N, or None for an infinite horizon."""

    def tables(self) -> TransitionTables:
        """Return the probabilities and rewards."""

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the observations of states [n] at times t [n]."""


class TabularModel:
    """States, actions and rewards whose transition probabilities do not depend on t.

    Attributes:
      atoms: the distinct rewards, float64 [R].
      kernel: P(reward, next state | state, action), [S, A, R, S].
    """

    def __init__(self, spec: TabularParameters, n_decisions: int | None = None) -> None:
        """Tabulate the kernel.

        Args:
          spec: the problem.
          n_decisions: replaces the problem's own number; required for an infinite horizon.
        """
        tables = spec.tables()
        states, actions, _ = tables.P.shape
        self.spec, self.n_points, self.n_actions = spec, states, actions
        decisions = spec.n_decisions if n_decisions is None else n_decisions
        if decisions is None:
            raise ValueError("env.horizon=inf: a model needs a number of decisions")
        self.n_decisions: int = decisions
        self.initial = tables.initial
        over = tables.terminal
        joint = tables.P[..., None] * tables.reward_probability  # [S, A, S, K]
        joint[over] = 0.0
        possible = joint > 0.0
        earned = tables.reward[possible]
        self.atoms = np.unique(np.append(earned, 0.0) if over.any() else earned)
        self.kernel = np.zeros((states, actions, len(self.atoms), states))
        s, a, s_next, _ = possible.nonzero()
        place = (s, a, np.searchsorted(self.atoms, earned), s_next)
        np.add.at(self.kernel, place, joint[possible])
        # a terminal state leads to itself and earns nothing
        self.kernel[over, :, np.searchsorted(self.atoms, 0.0), over.nonzero()[0]] = 1.0

    def rewards(self, t: int) -> np.ndarray:
        """Return the distinct rewards, [R]."""
        return self.atoms

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | state, action], [A, L, S], of `value` [R, L, S]."""
        return np.einsum("sarn,rln->als", self.kernel, value, optimize=True)

    def push_forward(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of reward and next state, [R, L, S], from [A, L, S]."""
        return np.einsum("sarn,als->rln", self.kernel, probability, optimize=True)

    def terminal_payoff(self, t: int) -> np.ndarray | None:
        """Return None: a terminal state leads to itself and earns nothing."""
        return None

    def observations(self, t: int) -> np.ndarray:
        """Return the one-hot states, followed by t/N if the horizon is finite."""
        return self.spec.observe(np.full(self.n_points, t), np.arange(self.n_points))

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the states of observations, int64 [E]."""
        return observations[:, : self.n_points].argmax(axis=1)

    def statistics(self, occupancy: OccupancyMeasures) -> dict[str, Any]:
        """Return no statistics."""
        return {}
