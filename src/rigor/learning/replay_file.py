"""The replay's file: a ring of rows on disk; each checkpoint writes the rows added since the last.

Rows are written with `write`, not through a memory map: a full disk then raises an error, while a
store into a mapped page would kill the process with SIGBUS.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rigor.learning.checkpoint import CorruptCheckpoint
from rigor.learning.replay import Replay

BLOCK = 128  # rows whose columns stand together
_CHUNK = 2048  # rows copied between a GPU and an older file at a time


class ReplayFile:
    """A replay's ring on disk, longer than the one in memory.

    Each row is written once. The file has `slack` more rows than the ring in memory, so that a new
    row never overwrites a row that a kept checkpoint needs. It consists of blocks of rows, in which
    each column stands by itself, so it grows with the rows and has no holes: a copy of a short run
    is as short as its rows.

    Attributes:
      block: rows of a block; older files, without blocks, have one block of `n_rows`.

    Args:
      path: of the file.
      replay: the ring in memory.
      slack: at least the rows that are added between the oldest kept checkpoint and now.
    """

    def __init__(self, path: Path, replay: Replay, slack: int) -> None:
        self.path, self.replay = path, replay
        self.n_rows = replay.n_rows + slack
        self.written = 0
        self.block = min(BLOCK, self.n_rows)
        self._starts, self._row_bytes = self._columns()

    def write(self) -> None:
        """Write the rows that are new since the last call, and wait until the disk has them."""
        replay = self.replay
        begin = max(self.written, replay.added - replay.n_rows)
        with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
            for name in replay.layout.columns():
                for row, source, n in self._contiguous(begin, replay.added):
                    file.seek(self._offset(name, row))
                    file.write(np.ascontiguousarray(replay.rows(name, source, n)).data.cast("B"))
            file.flush()
            os.fsync(file.fileno())
        self.written = replay.added

    def read(self, added: int) -> None:
        """Restore the replay as it was after `added` rows had been added.

        Raises:
          CorruptCheckpoint: the file is missing or too short.
        """
        replay = self.replay
        begin = max(0, added - replay.n_rows)
        if not self.path.exists():
            raise CorruptCheckpoint(f"{self.path}: missing")
        with open(self.path, "rb") as file:
            for name in replay.layout.columns():
                for row, target, n in self._contiguous(begin, added):
                    file.seek(self._offset(name, row))
                    # Read into the ring itself: a copy could exceed the memory.
                    rows = replay.rows(name, target, n)
                    if file.readinto(rows.data.cast("B")) != rows.nbytes:
                        raise CorruptCheckpoint(f"{self.path}: column {name} is cut")
                    if name not in replay.columns:  # frames on a GPU
                        replay.put(name, target, rows)
        replay.added = self.written = added

    def _columns(self) -> tuple[dict[str, tuple[int, int]], int]:
        """Return (first byte in a row, bytes) of each column, and the bytes of a row."""
        starts, at = {}, 0
        for name, dtype in self.replay.layout.columns().items():
            starts[name] = (at, dtype.itemsize)
            at += dtype.itemsize
        return starts, at

    def _offset(self, name: str, row: int) -> int:
        start, size = self._starts[name]
        block, row = divmod(row, self.block)
        return (block * self._row_bytes + start) * self.block + row * size

    def _contiguous(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Split rows [begin, end) into parts within a block: (row in file, row in memory, count).

        Either ring may wrap between two parts.
        """
        while begin < end:
            in_file, in_memory = begin % self.n_rows, begin % self.replay.n_rows
            left = min(self.n_rows - in_file, self.block - in_file % self.block)
            n = min(end - begin, left, self.replay.n_rows - in_memory, _CHUNK)
            yield in_file, in_memory, n
            begin += n
