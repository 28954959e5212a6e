"""Frames that are stored once, and the observations that are stacks of them."""

from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rigor.envs.vector import VectorEnv
from rigor.learning.engine import upload

Array = TypeVar("Array", np.ndarray, Tensor)


def frame_shape(env: VectorEnv) -> tuple[int, ...]:
    """Return the shape of one frame, which is an observation where there are no stacks."""
    return env.observation_shape[1:] if env.frame_stack > 1 else env.observation_shape


def stack_places(newest: Array, t: Array, age: Array, n_envs: int, n_places: int) -> Array:
    """Return the places of the frames of B stacks in a ring of rows of E frames, [B, S].

    A frame from before the reset gets the place behind the ring, that of a frame of zeros.

    Args:
      newest: of each stack's newest frame, row · E + copy, int64 [B]. t: agent steps since the
        reset there, int64 [B]. age: steps back from there, int64 [S] or [B, S]; negative for later
        frames. n_envs: E. n_places: of the ring.
    """
    places = (newest[:, None] - age * n_envs) % n_places
    shown = age <= t[:, None]
    return places * shown + n_places * ~shown


class RolloutFrames:
    """The observations of rows of E copies, on the device, with each frame once.

    Args:
      env: E copies, of which only the shapes are read. n_rows: rows. device: of the frames.
    """

    def __init__(self, env: VectorEnv, n_rows: int, device: torch.device) -> None:
        self._stack, self._n_envs, self._device = env.frame_stack, env.n_envs, device
        # the frames of the first row's stacks that are older than it come first
        self._n_places = (n_rows + env.frame_stack - 1) * env.n_envs
        kind = torch.from_numpy(np.empty(0, env.observation_dtype)).dtype
        shape = self._n_places + 1, *frame_shape(env)  # the last is always zero
        self._frames = torch.zeros(shape, dtype=kind, device=device)
        self._age = torch.arange(env.frame_stack - 1, -1, -1, device=device)

    def write(self, row: int, observation: np.ndarray) -> None:
        """Write the observations [E, *shape] of a row; rows are written in order, from 0 on."""
        if self._stack == 1:
            observation = observation[:, None]
        frames = observation if row == 0 else observation[:, -1:]  # [E, S, ...]
        first = (row + self._stack - frames.shape[1]) * self._n_envs
        seen = torch.from_numpy(np.ascontiguousarray(frames.swapaxes(0, 1))).flatten(0, 1)
        self._frames[first : first + len(seen)].copy_(upload(seen, self._device))

    def read(self, place: Tensor, t: Tensor) -> Tensor:
        """Return observations, [B, *shape].

        Args:
          place: row · E + copy of the observation, int64 [B]. t: its agent steps since the reset,
            int64 [B].
        """
        newest = place + (self._stack - 1) * self._n_envs
        places = stack_places(newest, t, self._age, self._n_envs, self._n_places)
        seen = self._frames.index_select(0, places.flatten()).unflatten(0, places.shape)
        return seen if self._stack > 1 else seen[:, 0]
