"""A finite Markov decision process as an exact model."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.exact.model import Laws

if TYPE_CHECKING:
    from rigor.envs.tabular import Tabular


class TabularModel:
    """States, actions and reward atoms; transitions and rewards do not depend on t.

    Attributes:
      atoms: the distinct rewards, float64 [R].
      kernel: P(reward, next state | state, action), [S, A, R, S].
    """

    def __init__(self, spec: "Tabular", n_decisions: int | None = None) -> None:
        """Take a specification; `n_decisions` where its own horizon is infinite."""
        problem = spec.problem()
        states, actions, _ = problem.P.shape
        self.spec, self.n_points, self.n_actions = spec, states, actions
        decisions = spec.n_decisions if n_decisions is None else n_decisions
        if decisions is None:
            raise ValueError("env.horizon=inf: say how many decisions the model is to have")
        self.n_decisions: int = decisions
        self.initial = problem.initial
        over = problem.terminal
        joint = problem.P[..., None] * problem.reward_probability  # [S, A, S, K]
        joint[over] = 0.0
        possible = joint > 0.0
        earned = problem.reward[possible]
        self.atoms = np.unique(np.append(earned, 0.0) if over.any() else earned)
        self.kernel = np.zeros((states, actions, len(self.atoms), states))
        s, a, s_next, _ = possible.nonzero()
        place = (s, a, np.searchsorted(self.atoms, earned), s_next)
        np.add.at(self.kernel, place, joint[possible])
        # an episode that is over stays where it is and earns nothing
        self.kernel[over, :, np.searchsorted(self.atoms, 0.0), over.nonzero()[0]] = 1.0

    def rewards(self, t: int) -> np.ndarray:
        """Return the distinct rewards, [R]."""
        return self.atoms

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | state, action], [A, L, S], of `value` [R, L, S]."""
        return np.einsum("sarn,rln->als", self.kernel, value, optimize=True)

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where mass [A, L, S] goes, [R, L, S]."""
        return np.einsum("sarn,als->rln", self.kernel, law, optimize=True)

    def stops(self, t: int) -> np.ndarray | None:
        """Return None: an episode that is over stays where it is and earns nothing."""
        return None

    def observations(self, t: int) -> np.ndarray:
        """Return the one-hot states, with t/N behind where the horizon is finite."""
        return self.spec.observe(np.full(self.n_points, t), np.arange(self.n_points))

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the states of observations, int64 [E]."""
        return observations[:, : self.n_points].argmax(axis=1)

    def numbers(self, laws: Laws) -> dict[str, Any]:
        """Return nothing: a tabular problem has no numbers of its own."""
        return {}
