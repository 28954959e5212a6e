"""Checkpoints: plain data and arrays, written atomically as a directory.

A tree of dicts, lists, numbers, strings, tensors and numpy arrays is written as `state.json`, in
which arrays are references, and `arrays.safetensors`, which holds the arrays. Loading executes no
code.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rigor.errors import UserError
from rigor.runs.disk import disk_errors

KEEP = 2
_ARRAYS, _STATE, _DIGESTS = "arrays.safetensors", "state.json", "digests.json"
_REASON = 200  # characters of an error in a message
_TENSOR, _ARRAY = "__tensor__", "__array__"


class CorruptCheckpoint(Exception):
    """A checkpoint cannot be read; the message gives the reason."""


class Writer:
    """Writes checkpoints in the background, one at a time.

    A checkpoint of a large network takes half a second to hash and to reach the disk. The state is
    copied before the training goes on.

    Args:
      directory: of the run's checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def start(self, steps: int, state: dict[str, Any]) -> None:
        """Copy the state and start to write it; call `wait` first.

        Args:
          steps: agent steps. state: a tree of plain data.
        """
        arrays: dict[str, torch.Tensor] = {}
        text = json.dumps(_pack(state, arrays))

        def write() -> None:
            with disk_errors(self._directory):
                _write(self._directory, steps, text, arrays)

        self._writing = self._thread.submit(write)

    def wait(self) -> None:
        """Wait until the disk has the checkpoint that is being written.

        Raises:
          UserError: the disk is full, or fails; the checkpoints before it remain.
        """
        if self._writing is not None:
            self._writing.result()

    def close(self) -> None:
        """End the thread after what it is writing."""
        self._thread.shutdown()


def save(directory: Path, steps: int, state: dict[str, Any]) -> Path:
    """Write the checkpoint of agent step `steps` and drop all but the newest `KEEP`.

    Args:
      directory: of the run's checkpoints. steps: agent steps. state: a tree of plain data.

    Returns:
      The checkpoint's directory.
    """
    arrays: dict[str, torch.Tensor] = {}
    return _write(directory, steps, json.dumps(_pack(state, arrays)), arrays)


def _write(directory: Path, steps: int, text: str, arrays: dict[str, torch.Tensor]) -> Path:
    """Write a packed tree; see `save`."""
    final = directory / f"step_{steps:012d}"
    partial = directory / f".partial_{steps:012d}"
    for left in directory.glob(".partial_*"):  # from a session that was killed while it saved
        shutil.rmtree(left)
    partial.mkdir(parents=True)
    (partial / _STATE).write_text(text)
    _write_arrays(partial / _ARRAYS, arrays)
    shutil.copymode(partial / _STATE, partial / _ARRAYS)  # safetensors lets only the owner read
    (partial / _DIGESTS).write_text(json.dumps(_digests(partial)))
    for path in [*partial.iterdir(), partial]:
        _sync(path)
    if final.exists():  # saved again at this step; removing the old one may take long
        final.rename(directory / f".partial_{steps:012d}_replaced")
    partial.rename(final)
    _sync(directory)
    for old in [*directory.glob(".partial_*"), *checkpoints(directory)[:-KEEP]]:
        shutil.rmtree(old)
    return final


def _write_arrays(path: Path, arrays: dict[str, torch.Tensor]) -> None:
    """Write arrays from where they lie: a copy of them would be the peak of a run's memory.

    Raises:
      OSError: the disk is full, or fails.
    """
    try:
        save_file(arrays, path)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def checkpoints(directory: Path) -> list[Path]:
    """Return the checkpoints in `directory`, oldest first."""
    return sorted(directory.glob("step_*")) if directory.exists() else []


def newest(directory: Path) -> dict[str, Any] | None:
    """Return the newest checkpoint that can be read, None if there is none.

    A running run removes old checkpoints meanwhile, so those written since are tried too.
    """
    tried: set[Path] = set()
    while untried := [path for path in checkpoints(directory) if path not in tried]:
        tried.add(untried[-1])
        try:
            return load(untried[-1])
        except CorruptCheckpoint:
            continue
    return None


def discard(path: Path) -> None:
    """Remove a checkpoint that cannot be read."""
    shutil.rmtree(path, ignore_errors=True)


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
      CorruptCheckpoint: a file is missing, cut or changed.
      OSError: the disk failed, which says nothing about the checkpoint.
    """
    try:
        if json.loads((path / _DIGESTS).read_text()) != _digests(path):
            raise CorruptCheckpoint(f"{path}: its contents have changed")
        return _unpack(json.loads((path / _STATE).read_text()), load_file(path / _ARRAYS))
    except (FileNotFoundError, ValueError, SafetensorError) as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Turn the errors of restoring a checkpoint that is not this run's into a `UserError`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:_REASON]
        raise UserError(
            f"{path}: not a checkpoint of this run's agent and environment, or of another version "
            f"of rigor ({type(error).__name__}: {reason}); put the run's own back, or move the "
            "directory of the run away to train from the start"
        ) from error


def _pack(node: Any, arrays: dict[str, torch.Tensor]) -> Any:
    """Replace the arrays of a tree by references and collect them, numbered, in `arrays`."""
    if isinstance(node, dict):
        return {key: _pack(value, arrays) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_pack(value, arrays) for value in node]
    name = str(len(arrays))
    if isinstance(node, torch.Tensor):
        arrays[name] = node.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(node, np.ndarray):
        arrays[name] = torch.from_numpy(node.copy(order="C"))
        return {_ARRAY: name}
    if isinstance(node, np.generic):
        return node.item()
    return node


def _unpack(node: Any, arrays: dict[str, torch.Tensor]) -> Any:
    """Put the arrays back into the tree."""
    if isinstance(node, dict):
        if _TENSOR in node:
            return arrays[node[_TENSOR]]
        if _ARRAY in node:
            return arrays[node[_ARRAY]].numpy()
        return {key: _unpack(value, arrays) for key, value in node.items()}
    if isinstance(node, list):
        return [_unpack(value, arrays) for value in node]
    return node


def _digests(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of a checkpoint's two files."""
    digests = {}
    for name in (_ARRAYS, _STATE):
        with open(directory / name, "rb") as file:
            digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
