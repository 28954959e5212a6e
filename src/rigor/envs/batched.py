"""Thousands of episodes of one small problem, stepped at once in numpy.

A problem implements `Dynamics`, a set of pure functions of arrays. `advance` takes one step, both
for the batch here and for the Gymnasium environments of `rigor.envs.gymnasium_forms`.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from rigor.envs.problem import Problem
from rigor.envs.vector import Step, check_actions


class Dynamics(Protocol):
    """A problem with discrete actions whose state is one number (and t).

    Attributes:
      n_actions: number of actions A. observation_shape: shape of one observation, float32.
      max_time: agent steps after which every episode is over, terminated or truncated.
      problem: facts that the problem knows of itself.
    """

    @property
    def problem(self) -> Problem | None: ...  # noqa: D102
    @property
    def n_actions(self) -> int: ...  # noqa: D102
    @property
    def observation_shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def max_time(self) -> int: ...  # noqa: D102

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states in which n new episodes begin, [n]."""
        ...

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample the noise of one step of n episodes, [n, ...]."""
        ...

    def stratified_noise(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Sample stratified noise, k times for each of n episodes, [n · k, ...]."""
        ...

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the states [n] that observations [n, *observation_shape] show."""
        ...

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the next state, the reward and whether the episode terminated, [n] each.

        Args:
          t: agent steps since the start, int64 [n]. state: [n]. action: int64 [n].
          noise: a sample of `draw`, [n, ...].
        """
        ...

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return the observation of a state at t, float32 [n, *observation_shape]."""
        ...


def stratified_uniforms(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return k uniform numbers for each of n rows, one in each k-th of (0, 1), [n · k].

    They come in pairs u and 1 − u (except the middle one of an odd k), so that a linear function
    of symmetric noise averages to its expectation exactly.
    """
    within = rng.random((n, (k + 1) // 2))
    mirrored = 1.0 - within[:, : k // 2][:, ::-1]
    parts = np.arange(k) + np.concatenate([within, mirrored], axis=1)
    return np.clip(parts.ravel() / k, 1e-12, 1 - 1e-12)


class Moved(NamedTuple):
    """The result of one step, [n] each: the next t and state, the reward, and the two ends."""

    t: np.ndarray
    state: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def advance(
    dynamics: Dynamics,
    t: np.ndarray,
    state: np.ndarray,
    action: np.ndarray,
    rng: np.random.Generator,
) -> Moved:
    """Sample the noise of n episodes and take one step in each.

    Args:
      dynamics: of the problem. t: agent steps, int64 [n]. state: [n]. action: int64 [n].
      rng: generator of the noise.
    """
    noise = dynamics.draw(len(t), rng)
    state, reward, terminated = dynamics.move(t, state, action, noise)
    truncated = ~terminated & (t + 1 >= dynamics.max_time)
    return Moved(t + 1, state, reward, terminated, truncated)


def sample_next_states(
    dynamics: Dynamics,
    observation: np.ndarray,
    t: np.ndarray,
    action: np.ndarray,
    k: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return k successors of each transition, by stratified noise.

    Args:
      dynamics: of the problem.
      observation: [n, *shape], at t, int64 [n]. action: int64 [n].
      k: successors of each transition. rng: generator of the noise.

    Returns:
      The next observations [n · k, *shape], rewards and whether it terminated [n · k].
    """
    state, t, action = (
        np.repeat(array, k, axis=0) for array in (dynamics.recover(observation), t, action)
    )
    noise = dynamics.stratified_noise(len(observation), k, rng)
    state, reward, terminated = dynamics.move(t, state, action, noise)
    return dynamics.observe(t + 1, state), reward, terminated


class Batched:
    """E copies of one problem as a `VectorEnv`: one generator, no loop over the copies.

    In every call the running copies use the generator first, in their order, then the copies that
    start a new episode. Hence a single copy uses it in the same order as the Gymnasium form.
    """

    def __init__(self, dynamics: Dynamics, n_envs: int) -> None:
        self._dynamics = dynamics
        self._rng: np.random.Generator | None = None
        self._t = np.zeros(n_envs, dtype=np.int64)
        self._state = np.zeros(n_envs)
        self._ended = np.zeros(n_envs, dtype=bool)
        self.n_envs = n_envs
        self.n_actions = dynamics.n_actions
        self.observation_shape = dynamics.observation_shape
        self.observation_dtype: np.dtype[Any] = np.dtype(np.float32)
        self.max_time = dynamics.max_time
        self.time_scale = float(dynamics.max_time)
        self.frame_stack = 1
        self.frames_per_step = 1
        self.problem: Problem | None = dynamics.problem

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed and start an episode in each copy; return the observations [E, ...]."""
        self._rng = np.random.default_rng(seed)
        self._t = np.zeros(self.n_envs, dtype=np.int64)
        self._state = self._dynamics.begin(self.n_envs, self._rng)
        self._ended = np.zeros(self.n_envs, dtype=bool)
        return self._dynamics.observe(self._t, self._state)

    def step(self, actions: np.ndarray) -> Step:
        """Step every copy, or reset it where its episode has ended; actions int64 [E].

        Raises:
          ValueError: an action out of range. RuntimeError: never reset.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        if self._rng is None:
            raise RuntimeError("step needs a reset or a restore before it")
        dummy = self._ended
        running, starting = np.flatnonzero(~dummy), np.flatnonzero(dummy)
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, dtype=bool)
        self._ended = np.zeros(self.n_envs, dtype=bool)
        if running.size:
            moved = advance(
                self._dynamics, self._t[running], self._state[running], actions[running], self._rng
            )
            self._t[running], self._state[running] = moved.t, moved.state
            reward[running], terminated[running] = moved.reward, moved.terminated
            self._ended[running] = moved.terminated | moved.truncated
        if starting.size:
            self._t[starting] = 0
            self._state[starting] = self._dynamics.begin(starting.size, self._rng)
        observation = self._dynamics.observe(self._t, self._state)
        return Step(observation, reward, terminated, self._ended.copy(), dummy)

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward as it is, float64."""
        return np.asarray(reward, dtype=np.float64)

    def state(self) -> dict[str, Any] | None:
        """Return the generator's state and three arrays [E]; None before the first reset."""
        if self._rng is None:
            return None
        return {
            "generator": copy.deepcopy(dict(self._rng.bit_generator.state)),
            "t": self._t.copy(),
            "state": self._state.copy(),
            "ended": self._ended.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> np.ndarray | None:
        """Continue from `state`; return the observations [E, ...], None if it does not fit."""
        if any(np.shape(state[key]) != (self.n_envs,) for key in ("t", "state", "ended")):
            return None
        rng = np.random.default_rng(0)
        if state["generator"]["bit_generator"] != rng.bit_generator.state["bit_generator"]:
            return None
        rng.bit_generator.state = state["generator"]
        self._rng = rng
        self._t, self._state = np.array(state["t"]), np.array(state["state"])
        self._ended = np.array(state["ended"])
        return self._dynamics.observe(self._t, self._state)

    def close(self) -> None:
        """Do nothing; there is nothing to free."""
