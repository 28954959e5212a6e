"""The protocol through which every environment is driven: E copies stepped together.

An episode ends in two calls. The step that ends it returns the final observation with
`episode_end`; the next call ignores that copy's action and returns the first observation of a new
episode with `dummy`. Gymnasium calls this next-step autoreset. A dummy step is no transition: it
enters no replay, counts as no agent step and moves no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


@dataclass
class Step:
    """What one call of `VectorEnv.step` tells about each of the E copies.

    Attributes:
      observation: what the agent acts on next, [E, *observation_shape].
      reward: raw reward, float64 [E]; 0 on a dummy step.
      terminated: the bootstrap is cut, bool [E]: the environment ended the episode, or a life was
        lost where `life_loss` is `terminal` or `reset`.
      episode_end: the episode ended by termination or truncation, bool [E]: the clock t, the stock
        and the stack of frames restart with the observation of the next (dummy) step.
      dummy: this call was the autoreset of an ended episode, bool [E].
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    episode_end: np.ndarray
    dummy: np.ndarray


class VectorEnv(Protocol):
    """E copies of one environment with discrete actions, under next-step autoreset.

    Attributes:
      n_envs: number of copies E.
      n_actions: number of actions; they are 0 ... n_actions − 1.
      observation_shape: shape of one observation; images and stacks of frames are channel-first.
      observation_dtype: uint8 for images, float32 otherwise.
      max_time: largest t that an observation can have, in agent steps since the reset.
      time_scale: agent steps by which the networks divide t.
      frame_stack: how many frames an observation holds, the newest last; 1 where it is no stack.
        The frame j steps back is zero exactly where j > t.
      reward_bound: largest absolute learned reward, None where it is not known.
    """

    n_envs: int
    n_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    max_time: int
    time_scale: float
    frame_stack: int
    reward_bound: float | None

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed every copy, start a new episode in each; return the observations [E, ...]."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Take one agent step in every copy; actions int64 [E]. Refuses an unknown action."""
        ...

    def learned_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward that the learner sees for a raw one, float64, any shape."""
        ...

    def state(self) -> dict[str, Any] | None:
        """Return what `restore` needs, numbers and arrays only; None if it cannot be copied."""
        ...

    def restore(self, state: Mapping[str, Any]) -> np.ndarray | None:
        """Continue from `state`; return the observations [E, ...], or None if that failed.

        After None the copies are in no usable state: call `reset`.
        """
        ...

    def close(self) -> None:
        """Free what the copies hold."""
        ...


class FilmedEnv(VectorEnv, Protocol):
    """One copy (E = 1) that can be looked at; what its schema's `filmed()` returns.

    Attributes:
      pictures_per_second: at which it looks natural, a picture an agent step.
      action_names: a word for each action.
    """

    pictures_per_second: float
    action_names: list[str]

    def picture(self) -> np.ndarray:
        """Return what is seen now, uint8 [height, width, 3]."""
        ...


def copy_seeds(seed: np.random.SeedSequence, n_envs: int) -> np.ndarray:
    """Draw one seed for each copy: int64 [E] in [0, 2^31), which C code takes as well."""
    return (seed.generate_state(n_envs) >> 1).astype(np.int64)


def check_actions(actions: np.ndarray, n_envs: int, n_actions: int) -> None:
    """Raise ValueError unless actions is an integer array [E] within 0 ... n_actions − 1."""
    if actions.shape != (n_envs,) or not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(
            f"actions must be integers of shape ({n_envs},), got {actions.dtype} {actions.shape}"
        )
    if actions.min() < 0 or actions.max() >= n_actions:
        raise ValueError(f"actions must lie in 0...{n_actions - 1}, got {actions.tolist()}")
