"""NVIDIA's Multi-Process Service (MPS), by which processes use one GPU at the same time.

Without it the GPU switches between them. With it they are not isolated: a fault of one, such as an
access to memory that is not its own, ends all that share the GPU.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rigor.errors import UserError
from rigor.runs.gpus import visible_gpus

_CONTROL = "nvidia-cuda-mps-control"
_PATIENCE = 30.0  # seconds for an answer of the service


def check() -> None:
    """Refuse a machine without MPS.

    Raises:
      UserError: its command is missing.
    """
    if not shutil.which(_CONTROL):
        raise UserError(
            f"hydra.launcher.mps=true: {_CONTROL} not found on this machine (it is part of "
            "NVIDIA's driver for Linux); hydra.launcher.mps=false works without it"
        )


@contextmanager
def processes_share_gpus(asked: bool) -> Iterator[None]:
    """Run the service inside the block, for all processes started in it, if it is asked for.

    Its sockets are in a folder of its own, so that the blocks of two tasks do not meet. It runs as
    this user. Inside the block the GPUs are numbered from 0: the service sees those that
    CUDA_VISIBLE_DEVICES names, and its clients count within them.

    Raises:
      UserError: the service is missing, or does not start.
    """
    if not asked:
        yield
        return
    check()
    gpus = visible_gpus()
    if any(name.startswith("MIG") for name in gpus):
        raise UserError(
            f"hydra.launcher.mps=true: this machine's GPUs are in parts ({gpus[0]}, ...), each of "
            "which needs a service of its own; use hydra.launcher.mps=false"
        )
    # a server may still write its log when the folder goes; a socket's path has 107 bytes at most,
    # which a cluster's TMPDIR can exceed
    with tempfile.TemporaryDirectory(
        prefix="mps-", dir="/tmp", ignore_cleanup_errors=True
    ) as folder:
        places = {f"CUDA_MPS_{name}_DIRECTORY": f"{folder}/{name}" for name in ("PIPE", "LOG")}
        for place in places.values():
            Path(place).mkdir()
        numbers = ",".join(map(str, range(len(gpus))))
        # the service numbers GPUs as nvidia-smi and SLURM do
        with environment(places | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}):
            _start()
            try:
                with environment({"CUDA_VISIBLE_DEVICES": numbers} if gpus else {}):
                    yield
            finally:  # a service that has ended by itself is no failure of the runs
                _control(words="quit\n")


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, then restore the old ones."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start() -> None:
    done = _control("-d")
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())
        raise UserError(
            f"hydra.launcher.mps=true: {_CONTROL} ends with code {done.returncode} ({reason}); "
            "hydra.launcher.mps=false works without it"
        )


def _control(*arguments: str, words: str = "") -> subprocess.CompletedProcess[str]:
    """Return the control command's answer; a command that does not end has code 124."""
    command = [_CONTROL, *arguments]
    try:
        return subprocess.run(
            command, input=words, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer in {_PATIENCE:.0f} s")
