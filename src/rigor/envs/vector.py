"""The protocol of every environment: E copies stepped together.

An episode ends in two calls. The call that ends it returns the final observation with
`episode_end`. The next call ignores that copy's action and returns the first observation of a new
episode with `dummy`. Gymnasium calls this next-step autoreset. A dummy step is not a transition: it
does not enter the replay, and neither counts as an agent step nor moves the clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rigor.envs.problem import Problem
from rigor.errors import UserError

LARGEST_REWARD = 1e30
"""The largest size of a raw reward: sums and squares of more would overflow."""


@dataclass
class Step:
    """The result of `VectorEnv.step` for each of the E copies.

    Attributes:
      observation: the next observation, [E, *observation_shape].
      reward: raw reward, float64 [E]; 0 on a dummy step.
      terminated: whether to cut the bootstrap, bool [E]: the environment ended the episode, or a
        life was lost and `life_loss` is `terminal` or `reset`.
      episode_end: whether the episode ended by termination or truncation, bool [E]. The clock t,
        the stock and the stack of frames restart at the observation of the next (dummy) step.
      dummy: whether this call was the autoreset of an ended episode, bool [E].
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
      n_actions: number of actions, which are 0 ... n_actions − 1.
      observation_shape: shape of one observation; images and stacks of frames are channel-first.
      observation_dtype: uint8 for images, float32 otherwise.
      max_time: largest t of an observation, in agent steps since the reset.
      time_scale: agent steps by which the networks divide t.
      frame_stack: number of frames in an observation, the newest last; 1 if it is not a stack. The
        frame of j steps before is zero exactly if j > t.
      frames_per_step: emulator frames of one agent step; 1 without an emulator.
      problem: facts that the environment knows of itself, None if it knows none.
    """

    n_envs: int
    n_actions: int
    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    max_time: int
    time_scale: float
    frame_stack: int
    frames_per_step: int
    problem: Problem | None

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed every copy, start a new episode in each; return the observations [E, ...]."""
        ...

    def step(self, actions: np.ndarray) -> Step:
        """Take one agent step in every copy; actions int64 [E]. Refuses an unknown action."""
        ...

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward that the learner gets for a raw reward, float64, any shape."""
        ...

    def state(self) -> dict[str, Any] | None:
        """Return numbers and arrays from which `restore` continues; None if that is impossible."""
        ...

    def restore(self, state: Mapping[str, Any]) -> np.ndarray | None:
        """Continue from `state`; return the observations [E, ...], or None if that failed.

        After None the copies cannot be stepped; call `reset`.
        """
        ...

    def close(self) -> None:
        """Free the resources of the copies."""
        ...


class VideoEnv(VectorEnv, Protocol):
    """One copy (E = 1) that draws itself; returned by `video_env()` of its schema.

    Attributes:
      frames_per_second: the natural speed of a video with one frame per agent step.
      action_names: a word for each action.
    """

    frames_per_second: float
    action_names: list[str]

    def frame(self) -> np.ndarray:
        """Return the current frame, uint8 [height, width, 3]."""
        ...


def copy_seeds(seed: np.random.SeedSequence, n_envs: int) -> np.ndarray:
    """Return one seed for each copy, int64 [E] in [0, 2^31), the range that C code accepts."""
    return (seed.generate_state(n_envs) >> 1).astype(np.int64)


def as_batch(
    shape: tuple[int, ...], observation: Any, t: Any, stock: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations [E, *shape], times int64 [E] and stocks float64 [E] of a policy's user.

    Args:
      shape: of one observation. observation: one of them, or E. t, stock: [E] or one number.

    Raises:
      UserError: a shape does not fit, a number is not finite, or t is not whole agent steps.
    """
    observation = _numbers("observation", observation)
    batch = observation[None] if observation.shape == shape else observation
    if batch.shape[1:] != shape or batch.ndim != len(shape) + 1:
        raise UserError(
            f"observation of shape {observation.shape}: must be {shape}, or {('E', *shape)} for "
            "a batch of E observations".replace("'", "")
        )
    times, stocks = whole_times(t), _numbers("stock", stock).astype(np.float64)
    for name, values in (("t", times), ("stock", stocks)):
        if values.shape not in ((), (1,), (len(batch),)):
            raise UserError(
                f"{name} of shape {values.shape}: must be one number, or ({len(batch)},) as there "
                f"are {len(batch)} observations"
            )
    n = len(batch)  # copies, as torch wants arrays that can be written
    return batch, np.broadcast_to(times, n).copy(), np.broadcast_to(stocks, n).copy()


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return an observation or a stock of a policy's user as an array.

    Raises:
      UserError: it holds something other than finite numbers, to which no action belongs.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise UserError(f"{name}: no array ({error})") from error
    if array.dtype.kind not in "buif":
        raise UserError(f"{name} of {array.dtype}: must hold numbers")
    if not (finite := np.isfinite(array)).all():
        raise UserError(f"{name}: holds {array[~finite].flat[0]}; must hold finite numbers")
    return array


def whole_times(t: Any) -> np.ndarray:
    """Return times as int64, any shape; they may be whole floats.

    Raises:
      UserError: a time is no whole number, or is negative.
    """
    times = np.asarray(t)
    whole = times.astype(np.int64) if times.dtype.kind in "iuf" else None
    if whole is None or (whole != times).any() or (whole < 0).any():
        raise UserError(f"t={t}: must be whole agent steps since the reset, 0 or more")
    return whole


def check_step(name: str, t: np.ndarray, step: Step) -> None:
    """Refuse rewards and observations from which nothing can be learned.

    Args:
      name: the environment as the user typed it, such as `env.id=Mine-v0`.
      t: agent steps before the step, int64 [E].

    Raises:
      UserError: naming the environment, the step of the episode and the value.
    """
    wrong = ~(np.abs(step.reward) <= LARGEST_REWARD)  # also of nan
    if wrong.any():
        i = np.flatnonzero(wrong)[0]
        raise UserError(
            f"{name}: the reward of step {t[i] + 1} of an episode is {step.reward[i]:g}; rewards "
            f"must be finite, of size {LARGEST_REWARD:g} at most: correct the environment"
        )
    check_observation(name, np.where(step.dummy, 0, t + 1), step.observation)


def check_observation(name: str, t: np.ndarray, observation: np.ndarray) -> None:
    """Refuse observations [E, *shape] at t, int64 [E], that are not finite.

    Raises:
      UserError: naming the environment, the step of the episode and the value.
    """
    if observation.dtype.kind != "f" or np.isfinite(observation).all():
        return
    i, *place = np.argwhere(~np.isfinite(observation))[0]
    when = f"after step {t[i]} of an episode" if t[i] else "at the start of an episode"
    index = ", ".join(map(str, place))
    raise UserError(
        f"{name}: the observation {when} is {observation[i][tuple(place)]} at index [{index}]; "
        "observations must be finite, as float32 too: correct the environment"
    )


def check_actions(actions: np.ndarray, n_envs: int, n_actions: int) -> None:
    """Raise ValueError unless actions is an integer array [E] within 0 ... n_actions − 1."""
    if actions.shape != (n_envs,) or not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(
            f"actions must be integers of shape ({n_envs},), got {actions.dtype} {actions.shape}"
        )
    if actions.min() < 0 or actions.max() >= n_actions:
        raise ValueError(f"actions must lie in 0...{n_actions - 1}, got {actions.tolist()}")
