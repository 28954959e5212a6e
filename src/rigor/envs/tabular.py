"""Any finite Markov decision problem, from a file or built in, with any horizon.

See `rigor.envs.tabular_files` for the arrays of a file (`env.path`). The Gymnasium form is
`rigor.envs.gymnasium_forms.TabularEnv`.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np

from rigor.envs import tabular_files
from rigor.envs.batched import Batched, sample_next_states, stratified_uniforms
from rigor.envs.model import Model
from rigor.envs.problem import Problem
from rigor.envs.tabular_files import TransitionTables
from rigor.envs.vector import VectorEnv

FIXED_ACTIONS = {"chain": 2, "cliff": 4, "ladder": 2}
BUILTINS = (*FIXED_ACTIONS, "inventory", "random")


@dataclass
class Tabular:
    """A finite decision problem, with a finite or an infinite horizon.

    Attributes:
      path: a file as described in `rigor.envs.tabular_files`; null uses the builtin.
      content: digest of the file, so that another file is another run; null is not checked.
      builtin: `chain`, `cliff`, `ladder`, `inventory` or `random`; see `rigor.envs.tabular_files`.
      states: number of states S of the builtin; columns of the cliff. actions: its number of
        actions A, which the chain and the ladder (2) and the cliff (4) fix.
      builtin_seed: seed of the random builtin.
      horizon: N decisions at t = 0 ... N − 1, after which the episode terminates; or inf.
      max_steps: steps after which an episode is truncated if the horizon is inf.
      num_envs: copies stepped together.
    """

    path: str | None
    content: str | None
    builtin: str
    states: int
    actions: int | None
    builtin_seed: int
    horizon: int | float | str
    max_steps: int
    num_envs: int

    def __post_init__(self) -> None:
        if self.builtin not in BUILTINS:
            raise ValueError(f"env.builtin={self.builtin}: choose {' or '.join(BUILTINS)}")
        for key in ("states", "actions", "max_steps", "num_envs"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ValueError(f"env.{key}={value}: must be 1 or more")
        if self.builtin_seed < 0:
            raise ValueError(f"env.builtin_seed={self.builtin_seed}: must be 0 or more")
        if isinstance(self.horizon, float) and self.horizon.is_integer():  # 1e2
            self.horizon = int(self.horizon)
        if self.horizon not in ("inf", math.inf) and (
            not isinstance(self.horizon, int) or self.horizon < 1
        ):
            raise ValueError(f"env.horizon={self.horizon}: needs a whole number from 1 on, or inf")
        self.tables()

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation."""
        return Batched(self, n_envs)

    @property
    def problem(self) -> Problem:
        """The facts that the tables give."""
        return Problem(
            n_decisions=self.n_decisions,
            next_states=functools.partial(sample_next_states, self),
            model=self._model,
        )

    def _model(self) -> Model:
        from rigor.envs.tabular_model import TabularModel

        return TabularModel(self)

    @property
    def n_decisions(self) -> int | None:
        """N, the decisions at t = 0 ... N − 1; None if the horizon is infinite."""
        return self.horizon if isinstance(self.horizon, int) else None

    def tables(self) -> TransitionTables:
        """Return the tables, which are read or built once.

        Raises:
          ValueError: the file is unreadable, or one of its arrays is wrong.
        """
        return self._tables

    @functools.cached_property
    def _tables(self) -> TransitionTables:
        if self.path is not None:
            if self.content is not None and self.content != tabular_files.digest(self.path):
                raise ValueError(
                    f"env.path={self.path}: the file has changed since env.content was written; "
                    "put the old one back, or let env.content follow it for a new run"
                )
            return tabular_files.read(self.path)
        n_actions = self.actions or FIXED_ACTIONS.get(self.builtin, 2)
        if self.builtin == "random":
            return tabular_files.random(self.states, n_actions, self.builtin_seed)
        if self.builtin == "inventory":
            return tabular_files.inventory(self.states, n_actions)
        if n_actions != (fixed := FIXED_ACTIONS[self.builtin]):
            raise ValueError(
                f"env.actions={n_actions}: env.builtin={self.builtin} has exactly {fixed} actions; "
                "leave env.actions out, or use env.builtin=random"
            )
        make = {
            "chain": tabular_files.chain,
            "cliff": tabular_files.cliff,
            "ladder": tabular_files.ladder,
        }
        return make[self.builtin](self.states)

    # --- `rigor.envs.batched.Dynamics`; the state is its number

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return len(self.tables().initial)

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return int(self.tables().P.shape[1])

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: the state one-hot, and t if the horizon is finite."""
        return (self.n_states + (self.n_decisions is not None),)

    @property
    def max_time(self) -> int:
        """N, or `max_steps` if the horizon is infinite."""
        return self.n_decisions or self.max_steps

    @property
    def reward_bound(self) -> float:
        """The largest |reward| that has a positive probability."""
        p = self.tables()
        possible = (p.P[..., None] > 0) & (p.reward_probability > 0)
        return float(np.abs(p.reward[possible]).max())

    @functools.cached_property
    def _cumulative(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cumulative sums of `initial`, `P` and `reward_probability`."""
        p = self.tables()
        return _cumulated(p.initial), _cumulated(p.P), _cumulated(p.reward_probability)

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample the first states of n episodes, int64 [n]."""
        return _pick(np.broadcast_to(self._cumulative[0], (n, self.n_states)), rng.random(n))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample a uniform number for the next state and one for the reward, [n, 2]."""
        return rng.random((n, 2))

    def stratified_noise(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Sample k times for each of n steps, stratified for the next state, [n · k, 2]."""
        return np.stack([stratified_uniforms(n, k, rng), rng.random(n * k)], axis=1)

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the states, int64 [n], of observations [n, S (+ 1)]."""
        return observation[:, : self.n_states].argmax(axis=1)

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Take the next state from the noise, then the reward of that transition.

        Args:
          t: steps, int64 [n]. state, action: their numbers, int64 [n]. noise: uniform, [n, 2].

        Returns:
          Next state, reward, and whether the state is terminal or the decision the last, [n] each.
        """
        _, transitions, rewards = self._cumulative
        arrived = _pick(transitions[state, action], noise[:, 0])
        atom = _pick(rewards[state, action, arrived], noise[:, 1])
        reward = self.tables().reward[state, action, arrived, atom]
        over = self.tables().terminal[arrived]
        if self.n_decisions is not None:
            over = over | (t + 1 >= self.n_decisions)
        return arrived, reward, over

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the state one-hot, and t / N if the horizon is finite, float32 [n, S (+ 1)]."""
        observation = np.zeros((len(state), *self.observation_shape), dtype=np.float32)
        observation[np.arange(len(state)), state] = 1
        if self.n_decisions is not None:
            observation[:, -1] = t / self.n_decisions
        return observation


def _cumulated(probability: np.ndarray) -> np.ndarray:
    """Return the cumulative sums along the last axis, which end at exactly 1."""
    sums = np.cumsum(probability, axis=-1)
    return sums / sums[..., -1:]


def _pick(cumulative: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return the outcome at a uniform number in [0, 1), int64 [n].

    Args:
      cumulative: cumulative sums of the probabilities, [n, outcomes]. uniform: [n].
    """
    return (cumulative <= uniform[:, None]).sum(axis=1)
