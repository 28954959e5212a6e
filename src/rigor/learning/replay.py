"""Replay: every frame once, in lockstep rows over the environments, and its file.

A row holds, for each of E environments, what was observed *before* a step and what the step gave.
The observation after the step is the next row's; so the final observation of an episode stands in
a row of its own (the autoreset step), which no batch starts from.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor

from rigor.errors import UserError
from rigor.learning.checkpoint import CorruptCheckpoint

Columns = dict[str, np.ndarray]

_CHUNK = 2048  # rows that go between a GPU and the file at a time


@dataclass
class Batch:
    """Transitions. Observations carry their stacks; rewards are raw.

    What follows an action may be there K times, one for each branch: [B · K], the branches of a
    transition side by side.

    observation: [B, *shape], observation_next: [B · K, *shape], where the replay's frames are. The
    rest is numpy.
    t: int64 [B], agent steps since the reset. stock: S_t, float64 [B]. stock_start: S_0 of the
    episode, float64 [B]. action: int64 [B]. reward: float64 [B · K]. terminated: bool [B · K].
    """

    observation: Tensor
    observation_next: Tensor
    t: np.ndarray
    stock: np.ndarray
    stock_start: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray


@dataclass(frozen=True)
class Layout:
    """What a row holds.

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
    """Return the rows that hold `capacity` transitions, and the one that completes the newest."""
    return -(-capacity // layout.n_envs) + 1


def place_frames(
    capacity: int, steps: int, layout: Layout, device: torch.device, free: int | None = None
) -> torch.device:
    """Return where the frames go: to the GPU where they fit, else to the machine's memory.

    Args:
      capacity: transitions. steps: agent steps of the run, beyond which a ring is not filled.
      layout: of a row. device: where the networks live.
      free: bytes of the machine's memory at hand; asks the system when None.

    Raises:
      UserError: neither holds them; nothing has been allocated. Names what is needed, what there
        is and the largest capacity that fits.
    """
    if device.type == "cuda":
        frames = rows_for(capacity, layout) * layout.columns()["frame"].itemsize
        # half is left to the networks, and to other runs that share the GPU
        if frames < 0.5 * torch.cuda.mem_get_info(device)[0]:
            return device
    free = _free_memory() if free is None else free
    needed = rows_for(min(capacity, steps), layout) * layout.row_bytes()
    if needed > 0.9 * free:
        fits = max(0, int(0.9 * free / layout.row_bytes()) - 1) * layout.n_envs
        raise UserError(
            f"train.replay_capacity={capacity}: needs {needed / 1e9:.2f} GB of memory and "
            f"{free / 1e9:.2f} GB are free; train.replay_capacity={fits} fits"
        )
    return torch.device("cpu")


def _free_memory() -> int:
    """Return the bytes that this process may still take: the machine's, or its container's."""
    free = [psutil.virtual_memory().available]
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            free.append(int((group / limit).read_text()) - int((group / used).read_text()))
    return min(free)


class Replay:
    """A ring of rows in memory, sampled uniformly over transitions.

    Args:
      capacity: transitions kept (rounded up to whole rows).
      layout: of a row.
      device: where the frames are; the other columns are the machine's.
    """

    def __init__(self, capacity: int, layout: Layout, device: torch.device | str = "cpu") -> None:
        self.layout = layout
        self.n_rows = rows_for(capacity, layout)
        self.added = 0
        columns = layout.columns()
        frame = columns.pop("frame")
        self._nowhere = self.n_rows * layout.n_envs  # the place of a frame that is always zero
        shape = (self._nowhere + 1, *layout.frame_shape)
        # [rows * E + 1, *frame]: one flat gather serves every environment. np.zeros takes pages
        # from the system as they are written: a short run stays small.
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

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """Draw transitions uniformly, with replacement, among those that are whole.

        Whole: the row after it is written, and the frames of its stack are still there.
        """
        columns, stack = self.columns, self.layout.stack
        oldest = max(0, self.added - self.n_rows)
        first = oldest + (stack - 1 if oldest else 0)
        rows, envs = self._draw(batch_size, rng, first)
        while not (fine := columns["valid"][rows % self.n_rows, envs]).all():
            again = np.flatnonzero(~fine)
            rows[again], envs[again] = self._draw(len(again), rng, first)
        at = rows % self.n_rows
        observation, observation_next = self._gather(rows, envs, columns["t"][at, envs])
        scalars = {
            name: columns[name][at, envs]
            for name in ("t", "stock", "stock_start", "action", "reward", "terminated")
        }
        scalars["t"] = scalars["t"].astype(np.int64)
        scalars["action"] = scalars["action"].astype(np.int64)
        return Batch(observation, observation_next, **scalars)

    def rows(self, name: str, start: int, n: int) -> np.ndarray:
        """Return n rows of a column: the machine's own memory, or a copy of a GPU's."""
        if name in self.columns:
            return self.columns[name][start : start + n]
        n_envs = self.layout.n_envs
        frames = self.frames[start * n_envs : (start + n) * n_envs]
        return frames.cpu().numpy().reshape(n, n_envs, *self.layout.frame_shape)

    def put(self, name: str, start: int, values: np.ndarray) -> None:
        """Write n rows [n, E, ...] of a column from row `start` on."""
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

    def _gather(self, rows: np.ndarray, envs: np.ndarray, t: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the stacks at rows and at rows + 1; frames before the reset are zero."""
        stack, n_envs = self.layout.stack, self.layout.n_envs
        ages = np.arange(stack - 1, -2, -1)  # steps back, of each frame of both stacks
        places = ((rows[:, None] - ages) % self.n_rows) * n_envs + envs[:, None]  # [B, stack + 1]
        # the frame `age` steps back exists from t = age on, in this stack and in the next alike
        places[ages > t[:, None]] = self._nowhere
        index = torch.from_numpy(places.ravel()).to(self.frames.device, non_blocking=True)
        frames = self.frames.index_select(0, index).unflatten(0, places.shape)
        if stack == 1:
            return frames[:, 0], frames[:, 1]
        return frames[:, :-1], frames[:, 1:]


class ReplayFile:
    """The ring on disk: rows are written once, in slack that no kept checkpoint needs.

    Args:
      path: of the file.
      replay: whose rows it holds.
      slack: rows beyond the ring; as many as are added while checkpoints are kept.
    """

    def __init__(self, path: Path, replay: Replay, slack: int) -> None:
        self.path, self.replay = path, replay
        self.n_rows = replay.n_rows + slack
        self.written = 0
        self._starts, self.size = self._segments()

    def write(self) -> None:
        """Bring the file up to the newest row, and to the disk."""
        replay = self.replay
        begin = max(self.written, replay.added - replay.n_rows)
        with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
            for name in replay.layout.columns():
                for row, source, n in self._runs(begin, replay.added):
                    file.seek(self._offset(name, row))
                    file.write(np.ascontiguousarray(replay.rows(name, source, n)).data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
        self.written = replay.added

    def read(self, added: int) -> None:
        """Fill the replay with the rows that it held when `added` rows had been added.

        Raises:
          CorruptCheckpoint: the file is missing or too short.
        """
        replay = self.replay
        begin = max(0, added - replay.n_rows)
        if not self.path.exists():
            raise CorruptCheckpoint(f"{self.path}: missing")
        with open(self.path, "rb") as file:
            for name in replay.layout.columns():
                for row, target, n in self._runs(begin, added):
                    file.seek(self._offset(name, row))
                    # straight into the ring: a copy on the way could exceed the memory
                    rows = replay.rows(name, target, n)
                    if file.readinto(rows.data.cast("B")) != rows.nbytes:
                        raise CorruptCheckpoint(f"{self.path}: ends before row {added}")
                    if name not in replay.columns:
                        replay.put(name, target, rows)
        replay.added = self.written = added

    def _segments(self) -> tuple[dict[str, tuple[int, int]], int]:
        """Return (start, bytes a row) of each column's segment, and the size of the whole."""
        starts, at = {}, 0
        for name, dtype in self.replay.layout.columns().items():
            starts[name] = (at, dtype.itemsize)
            at += dtype.itemsize * self.n_rows
        return starts, at

    def _offset(self, name: str, row: int) -> int:
        start, size = self._starts[name]
        return start + row * size

    def _runs(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Split rows [begin, end) where either ring wraps: (row in file, row in memory, count)."""
        while begin < end:
            in_file, in_memory = begin % self.n_rows, begin % self.replay.n_rows
            n = min(end - begin, self.n_rows - in_file, self.replay.n_rows - in_memory, _CHUNK)
            yield in_file, in_memory, n
            begin += n
