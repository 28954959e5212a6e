"""Thousands of episodes of one small problem, stepped at once in numpy.

A problem is what `Dynamics` asks for: pure functions of arrays. `advance` is one step of them, for
the batch here and for the single Gymnasium copies of `rigor.envs.single` alike.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from rigor.envs.vector import Step, check_actions


class Dynamics(Protocol):
    """A problem with discrete actions whose state is one number (and t).

    Attributes:
      n_actions: A. observation_shape: of one observation, float32.
      max_time: agent steps after which every episode is over, terminated or truncated.
      reward_bound: largest absolute reward.
    """

    @property
    def n_actions(self) -> int: ...  # noqa: D102
    @property
    def observation_shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def max_time(self) -> int: ...  # noqa: D102
    @property
    def reward_bound(self) -> float: ...  # noqa: D102

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the states in which n new episodes begin, [n]."""
        ...

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw all that chance does in one step of n episodes, [n, ...]."""
        ...

    def strata(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Draw chance k times for each of n episodes, evenly over its law, [n · k, ...]."""
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
          noise: what `draw` drew, [n, ...].
        """
        ...

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return what is seen in a state at t, float32 [n, *observation_shape]."""
        ...


def even(n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return k uniform numbers for each of n, one from each k-th of (0, 1), [n · k].

    Each has a mirror image, u and 1 − u (but the middle one of an odd k), so that what is linear in
    a symmetric noise averages to its expectation exactly.
    """
    within = rng.random((n, (k + 1) // 2))
    mirrored = 1.0 - within[:, : k // 2][:, ::-1]
    parts = np.arange(k) + np.concatenate([within, mirrored], axis=1)
    return np.clip(parts.ravel() / k, 1e-12, 1 - 1e-12)


class Moved(NamedTuple):
    """Where one step led, [n] each: t and state, reward (float64), and the two ends (bool)."""

    t: np.ndarray
    state: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def advance(
    problem: Dynamics,
    t: np.ndarray,
    state: np.ndarray,
    action: np.ndarray,
    rng: np.random.Generator,
) -> Moved:
    """Draw the noise of n episodes and take one step in each.

    Args:
      problem: whose step. t: agent steps, int64 [n]. state: [n]. action: int64 [n].
      rng: the noise comes from it.
    """
    noise = problem.draw(len(t), rng)
    state, reward, terminated = problem.move(t, state, action, noise)
    truncated = ~terminated & (t + 1 >= problem.max_time)
    return Moved(t + 1, state, reward, terminated, truncated)


class Batched:
    """E copies of one problem as a `VectorEnv`: one generator, no loop over the copies.

    In every call the running copies draw first, in their order, then those that start anew; so a
    single copy draws as the Gymnasium form does.
    """

    def __init__(self, problem: Dynamics, n_envs: int) -> None:
        self._problem = problem
        self._rng: np.random.Generator | None = None
        self._t = np.zeros(n_envs, dtype=np.int64)
        self._state = np.zeros(n_envs)
        self._ended = np.zeros(n_envs, dtype=bool)
        self.n_envs = n_envs
        self.n_actions = problem.n_actions
        self.observation_shape = problem.observation_shape
        self.observation_dtype: np.dtype[Any] = np.dtype(np.float32)
        self.max_time = problem.max_time
        self.time_scale = float(problem.max_time)
        self.frame_stack = 1
        self.reward_bound: float | None = problem.reward_bound
        # what a network may know of a problem that says so
        self.coordinates = getattr(problem, "coordinates", None)
        self.action_basis = getattr(problem, "action_basis", None)

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed, and start an episode in each copy; return the observations [E, ...]."""
        self._rng = np.random.default_rng(seed)
        self._t = np.zeros(self.n_envs, dtype=np.int64)
        self._state = self._problem.begin(self.n_envs, self._rng)
        self._ended = np.zeros(self.n_envs, dtype=bool)
        return self._problem.observe(self._t, self._state)

    def step(self, actions: np.ndarray) -> Step:
        """Step every copy, or reset it where its episode has ended; actions int64 [E].

        Raises:
          ValueError: an action out of range. RuntimeError: never reset.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        if self._rng is None:
            raise RuntimeError("step needs a reset or a restore before it")
        dummy = self._ended
        going, starting = np.flatnonzero(~dummy), np.flatnonzero(dummy)
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, dtype=bool)
        self._ended = np.zeros(self.n_envs, dtype=bool)
        if going.size:
            moved = advance(
                self._problem, self._t[going], self._state[going], actions[going], self._rng
            )
            self._t[going], self._state[going] = moved.t, moved.state
            reward[going], terminated[going] = moved.reward, moved.terminated
            self._ended[going] = moved.terminated | moved.truncated
        if starting.size:
            self._t[starting] = 0
            self._state[starting] = self._problem.begin(starting.size, self._rng)
        observation = self._problem.observe(self._t, self._state)
        return Step(observation, reward, terminated, self._ended.copy(), dummy)

    def branch(
        self,
        observation: np.ndarray,
        t: np.ndarray,
        action: np.ndarray,
        k: int,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return k ways in which a step may go on from each observation, evenly over its chance.

        Args:
          observation: [n, *shape], of episodes at t, int64 [n]. action: int64 [n].
          k: next states of each. rng: of the chance.

        Returns:
          The next observations [n · k, *shape], rewards and whether it terminated [n · k].
        """
        state, t, action = (
            np.repeat(one, k, axis=0) for one in (self._problem.recover(observation), t, action)
        )
        noise = self._problem.strata(len(observation), k, rng)
        state, reward, terminated = self._problem.move(t, state, action, noise)
        return self._problem.observe(t + 1, state), reward, terminated

    def learned_reward(self, reward: np.ndarray) -> np.ndarray:
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
        """Continue from `state`; return the observations [E, ...], None for other copies."""
        if any(np.shape(state[key]) != (self.n_envs,) for key in ("t", "state", "ended")):
            return None
        rng = np.random.default_rng(0)
        if state["generator"]["bit_generator"] != rng.bit_generator.state["bit_generator"]:
            return None
        rng.bit_generator.state = state["generator"]
        self._rng = rng
        self._t, self._state = np.array(state["t"]), np.array(state["state"])
        self._ended = np.array(state["ended"])
        return self._problem.observe(self._t, self._state)

    def close(self) -> None:
        """Hold nothing, so free nothing."""
