"""Replay: a ring of rows in memory that stores every frame once.

A row holds one step of E environments: the observations before the step, and its results. The
observation after the step is in the next row. So the final observation of an episode has a row of
its own, that of the autoreset, from which no batch starts.
"""

import gc
import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rigor.errors import UserError
from rigor.learning.engine import upload
from rigor.learning.frames import stack_places
from rigor.runs.memory import SHARE, free_memory, runs_on_gpu

Columns = dict[str, np.ndarray]


@dataclass
class Batch:
    """B transitions as the replay stores them. Observations carry their stacks; rewards are raw.

    A transition spans at most n steps; it is shorter where an episode ended or the newest row is.
    K sampled next states of each transition lie side by side in [B · K]; K = 1 for those that
    happened.

    observation: [B, *shape], observation_next: [B · K, *shape], on the device of the replay's
    frames. The rest is numpy.
    t: int64 [B], agent steps since the reset. stock: S_t, float64 [B]. stock_start: S_0 of the
    episode, float64 [B]. action: int64 [B], the first. reward, terminated: of each step, float64
    and bool [n, B · K]. length: steps that belong to the transition, int64 [B · K].
    """

    observation: Tensor
    observation_next: Tensor
    t: np.ndarray
    stock: np.ndarray
    stock_start: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    length: np.ndarray


class Transitions(NamedTuple):
    """A `Batch` as an update reads it: tensors, with next stocks and what the rewards contribute.

    observation: [B, *shape]. t: int64 [B]. stock: S_t, float64 [B]. action: int64 [B].
    observation_next: [B · K, *shape]. t_next: t + n, int64 [B · K]. stock_next: S_{t+n}, float64
    [B · K]. start, slope: of the targets start + slope · after, float32 [B · K, M].
    """

    observation: Tensor
    t: Tensor
    stock: Tensor
    action: Tensor
    observation_next: Tensor
    t_next: Tensor
    stock_next: Tensor
    start: Tensor
    slope: Tensor


@dataclass(frozen=True)
class Layout:
    """The columns of a row.

    n_envs: E. frame_shape, frame_dtype: one frame (one observation where stack is 1).
    stack: frames in an observation.
    """

    n_envs: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype
    stack: int

    def columns(self) -> dict[str, np.dtype]:
        """Return the dtype (with shape) of each column of one row."""
        scalars = {
            "t": "<i4",
            "stock": "<f8",
            "stock_start": "<f8",
            "action": "<i2",
            "reward": "<f8",
            "terminated": "?",
            "valid": "?",
        }
        frame = np.dtype((self.frame_dtype, (self.n_envs, *self.frame_shape)))
        return {"frame": frame} | {
            name: np.dtype((kind, (self.n_envs,))) for name, kind in scalars.items()
        }

    def row_bytes(self) -> int:
        """Return the size of one row in bytes."""
        return sum(dtype.itemsize for dtype in self.columns().values())


def rows_for(capacity: int, layout: Layout) -> int:
    """Return the rows for `capacity` transitions, and one that completes the newest of them."""
    return -(-capacity // layout.n_envs) + 1


def place_frames(
    capacity: int, steps: int, layout: Layout, device: torch.device, free: int | None = None
) -> torch.device:
    """Return the device of the frames: the GPU where they fit, else the machine's memory.

    Args:
      capacity: transitions. steps: agent steps of the run, beyond which a ring is not filled.
      layout: of a row. device: where the networks live.
      free: bytes of the machine's memory at hand for this run; asks the system when None.

    Raises:
      UserError: neither is large enough; nothing has been allocated. The message has the memory
        needed, the memory free and the largest capacity that fits.
    """
    if device.type == "cuda":
        frames = rows_for(capacity, layout) * layout.columns()["frame"].itemsize
        gc.collect()  # a run before this one in the same process may have left its memory
        torch.cuda.empty_cache()
        free_on_gpu, all_of_gpu = torch.cuda.mem_get_info(device)
        # The other half is for the networks.
        if frames < 0.5 * min(free_on_gpu, all_of_gpu / runs_on_gpu()):
            return device
    free = free_memory() if free is None else free
    needed = rows_for(min(capacity, steps), layout) * layout.row_bytes()
    if needed > 0.9 * free:
        fits = max(0, int(0.9 * free / layout.row_bytes()) - 1) * layout.n_envs
        for_one = " for each of the runs at once" if SHARE in os.environ else ""
        raise UserError(
            f"train.replay_capacity={capacity}: needs {needed / 1e9:.2f} GB of memory and "
            f"{free / 1e9:.2f} GB are free{for_one}; train.replay_capacity={fits} fits"
        )
    return torch.device("cpu")


class Replay:
    """A ring of rows in memory, sampled uniformly over transitions.

    Args:
      capacity: transitions kept (rounded up to whole rows).
      layout: of a row.
      device: of the frames; the other columns are in the machine's memory.
    """

    def __init__(self, capacity: int, layout: Layout, device: torch.device | str = "cpu") -> None:
        self.layout = layout
        self.n_rows = rows_for(capacity, layout)
        self.added = 0
        columns = layout.columns()
        frame = columns.pop("frame")
        # [rows * E + 1, *frame]: one flat gather serves every environment, and the last frame is
        # always zero. The system allocates the pages of np.zeros when they are written, so a short
        # run stays small.
        shape = (self.n_rows * layout.n_envs + 1, *layout.frame_shape)
        if torch.device(device).type == "cpu":
            self.frames = torch.from_numpy(np.zeros(shape, frame.base))
        else:
            kind = torch.from_numpy(np.empty(0, frame.base)).dtype
            self.frames = torch.zeros(shape, dtype=kind, device=device)
        self.columns: Columns = {
            name: np.zeros((self.n_rows, *dtype.shape), dtype.base)
            for name, dtype in columns.items()
        }
        if self.frames.device.type == "cpu":
            self.columns["frame"] = self.frames[:-1].numpy().reshape(self.n_rows, *frame.shape)

    def add(self, observation: np.ndarray, **columns: np.ndarray) -> None:
        """Write one row: observations [E, *shape] and the other columns [E] of `Layout.columns`."""
        row = self.added % self.n_rows
        frame = observation[:, -1] if self.layout.stack > 1 else observation
        self.put("frame", row, frame[None])
        for name, values in columns.items():
            self.columns[name][row] = values
        self.added += 1

    def sample(self, batch_size: int, rng: np.random.Generator, n_step: int = 1) -> Batch:
        """Draw transitions uniformly, with replacement, among the complete ones.

        A transition is complete if the next row is written and the ring still holds its frames.

        Args:
          batch_size: B. rng: for the draw. n_step: most steps of a transition.
        """
        columns, stack = self.columns, self.layout.stack
        oldest = max(0, self.added - self.n_rows)
        first = oldest + (stack - 1 if oldest else 0)
        rows, envs = self._draw(batch_size, rng, first)
        while not (fine := columns["valid"][rows % self.n_rows, envs]).all():
            again = np.flatnonzero(~fine)
            rows[again], envs[again] = self._draw(len(again), rng, first)
        at = rows % self.n_rows
        scalars = {
            name: columns[name][at, envs] for name in ("t", "stock", "stock_start", "action")
        }
        scalars["t"] = scalars["t"].astype(np.int64)
        scalars["action"] = scalars["action"].astype(np.int64)
        # a row that is not valid ends its episode: an autoreset, or a resumption
        steps = rows + np.arange(n_step)[:, None]  # [n, B]
        belongs = (steps < self.added - 1) & columns["valid"][steps % self.n_rows, envs]
        belongs = np.logical_and.accumulate(belongs)
        length = belongs.sum(0)
        observation, observation_next = self._gather(rows, envs, scalars["t"], length)
        return Batch(
            observation,
            observation_next,
            **scalars,
            reward=np.where(belongs, columns["reward"][steps % self.n_rows, envs], 0.0),
            terminated=belongs & columns["terminated"][steps % self.n_rows, envs],
            length=length,
        )

    def rows(self, name: str, start: int, n: int) -> np.ndarray:
        """Return n rows of a column: a view of the machine's memory, or a copy of a GPU's."""
        if name in self.columns:
            return self.columns[name][start : start + n]
        n_envs = self.layout.n_envs
        frames = self.frames[start * n_envs : (start + n) * n_envs]
        return frames.cpu().numpy().reshape(n, n_envs, *self.layout.frame_shape)

    def put(self, name: str, start: int, values: np.ndarray) -> None:
        """Write n rows [n, E, ...] of a column, beginning at row `start`."""
        if name in self.columns:
            self.columns[name][start : start + len(values)] = values
            return
        n_envs = self.layout.n_envs
        frames = torch.from_numpy(np.ascontiguousarray(values)).flatten(0, 1)
        self.frames[start * n_envs : (start + len(values)) * n_envs].copy_(
            frames.pin_memory(), non_blocking=True
        )

    def _draw(self, n: int, rng: np.random.Generator, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw n places in rows [first, newest) and environments."""
        return rng.integers(first, self.added - 1, n), rng.integers(0, self.layout.n_envs, n)

    def _gather(
        self, rows: np.ndarray, envs: np.ndarray, t: np.ndarray, length: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return the stacks at rows and at rows + length; frames before the reset are zero."""
        stack, n_envs = self.layout.stack, self.layout.n_envs
        ages = np.tile(np.arange(stack - 1, -1, -1), (len(rows), 2))  # steps back, [B, 2 · stack]
        ages[:, stack:] -= length[:, None]
        # a frame exists if age <= t, in the next stack too, whose later frames have negative ages
        places = stack_places(rows * n_envs + envs, t, ages, n_envs, self.n_rows * n_envs)
        index = upload(torch.from_numpy(places.ravel()), self.frames.device)
        frames = self.frames.index_select(0, index).unflatten(0, places.shape)
        if stack == 1:
            return frames[:, 0], frames[:, 1]
        return frames[:, :stack], frames[:, stack:]
