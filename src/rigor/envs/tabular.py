"""Any finite Markov decision problem, from a file or built in, with any horizon.

`rigor.envs.tables` says which arrays a file (`env.path`) holds. The Gymnasium form is
`rigor.envs.single.TabularEnv`.
"""

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from omegaconf import MISSING

from rigor.envs import tables
from rigor.envs.batched import Batched, even
from rigor.envs.tables import Problem
from rigor.envs.vector import VectorEnv

if TYPE_CHECKING:
    from rigor.exact.model import Model

BUILTINS = ("chain", "random")


@dataclass
class Tabular:
    """A finite decision problem, with a finite or an infinite horizon.

    Attributes:
      path: of a file as `rigor.envs.tables` describes; null takes the builtin.
      content: digest of the file, so that another file is another run; null is not checked.
      builtin: `chain`, states in a row with a reward at their end, or `random`.
      states: S, actions: A, builtin_seed: of the builtin.
      horizon: N decisions at t = 0 ... N − 1, after which the episode terminates; or inf.
      max_steps: steps after which an episode is cut (truncated) where the horizon is inf.
      num_envs: copies stepped together.
    """

    path: str | None = MISSING
    content: str | None = MISSING
    builtin: str = MISSING
    states: int = MISSING
    actions: int = MISSING
    builtin_seed: int = MISSING
    horizon: int | float | str = MISSING
    max_steps: int = MISSING
    num_envs: int = MISSING

    def __post_init__(self) -> None:
        if self.builtin not in BUILTINS:
            raise ValueError(f"env.builtin={self.builtin}: choose {' or '.join(BUILTINS)}")
        for key in ("states", "actions", "max_steps", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")
        if self.builtin_seed < 0:
            raise ValueError(f"env.builtin_seed={self.builtin_seed}: must be 0 or more")
        if self.horizon not in ("inf", math.inf) and (
            not isinstance(self.horizon, int) or self.horizon < 1
        ):
            raise ValueError(f"env.horizon={self.horizon}: needs a whole number from 1 on, or inf")
        self.problem()

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation."""
        return Batched(self, n_envs)

    def model(self) -> "Model":
        """Return the exact model."""
        from rigor.exact.tabular import TabularModel

        return TabularModel(self)

    @property
    def n_decisions(self) -> int | None:
        """N decisions at t = 0 ... N − 1; None where the horizon is infinite."""
        return self.horizon if isinstance(self.horizon, int) else None

    def problem(self) -> Problem:
        """Return the problem in full; it is read or built once.

        Raises:
          ValueError: the file is unreadable or holds no problem; says which array is wrong where.
        """
        return self._problem

    @functools.cached_property
    def _problem(self) -> Problem:
        if self.path is not None:
            if self.content is not None and self.content != tables.digest(self.path):
                raise ValueError(
                    f"env.path={self.path}: the file has changed since env.content was written; "
                    "put the old one back, or let env.content follow it for a new run"
                )
            return tables.read(self.path)
        if self.builtin == "random":
            return tables.random(self.states, self.actions, self.builtin_seed)
        if self.states < 2 or self.actions != 2:
            key = "states" if self.states < 2 else "actions"
            raise ValueError(
                f"env.{key}={getattr(self, key)}: the chain has at least 2 states and exactly 2 "
                "actions; choose these, or env.builtin=random"
            )
        return tables.chain(self.states)

    # --- the dynamics, as `rigor.envs.batched.Dynamics` asks for them; the state is its number

    @property
    def n_states(self) -> int:
        """S."""
        return len(self.problem().initial)

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.problem().P.shape[1])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The state, one-hot; one number more for t where the horizon is finite."""
        return (self.n_states + (self.n_decisions is not None),)

    @property
    def max_time(self) -> int:
        """N, or `max_steps` where the horizon is infinite."""
        return self.n_decisions or self.max_steps

    @property
    def reward_bound(self) -> float:
        """The largest |reward| of those that can be earned."""
        p = self.problem()
        possible = (p.P[..., None] > 0) & (p.reward_probability > 0)
        return float(np.abs(p.reward[possible]).max())

    @functools.cached_property
    def _cumulative(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The running sums of `initial`, `P` and `reward_probability`."""
        p = self.problem()
        return _running(p.initial), _running(p.P), _running(p.reward_probability)

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the first states of n episodes, int64 [n]."""
        return _pick(np.broadcast_to(self._cumulative[0], (n, self.n_states)), rng.random(n))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw a uniform number for the next state and one for the reward, [n, 2]."""
        return rng.random((n, 2))

    def strata(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Draw k times for each of n steps, the next state evenly over its law, [n · k, 2]."""
        return np.stack([even(n, k, rng), rng.random(n * k)], axis=1)

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the states, int64 [n], of observations [n, S (+ 1)]."""
        return observation[:, : self.n_states].argmax(axis=1)

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pick the next state, then the reward of that transition.

        Args:
          t: steps, int64 [n]. state, action: their numbers, int64 [n]. noise: uniform, [n, 2].

        Returns:
          State, reward, and whether it was terminal or the last of N decisions, [n] each.
        """
        _, transitions, rewards = self._cumulative
        arrived = _pick(transitions[state, action], noise[:, 0])
        atom = _pick(rewards[state, action, arrived], noise[:, 1])
        reward = self.problem().reward[state, action, arrived, atom]
        over = self.problem().terminal[arrived]
        if self.n_decisions is not None:
            over = over | (t + 1 >= self.n_decisions)
        return arrived, reward, over

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the state one-hot, and t / N where the horizon is finite, float32 [n, S (+ 1)]."""
        seen = np.zeros((len(state), *self.observation_shape), dtype=np.float32)
        seen[np.arange(len(state)), state] = 1
        if self.n_decisions is not None:
            seen[:, -1] = t / self.n_decisions
        return seen


def _running(probability: np.ndarray) -> np.ndarray:
    """Return the running sums along the last axis, which end at exactly 1."""
    sums = np.cumsum(probability, axis=-1)
    return sums / sums[..., -1:]


def _pick(running: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return the outcome that a uniform number in [0, 1) stands for, int64 [n].

    Args:
      running: running sums of the probabilities, [n, outcomes]. uniform: [n].
    """
    return (running <= uniform[:, None]).sum(axis=1)
