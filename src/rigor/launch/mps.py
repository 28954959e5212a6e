"""NVIDIA's Multi-Process Service (MPS), by which processes use one GPU at the same time.

Without it the GPU switches between them. With it they are not isolated: a fault of one, such as an
access to memory that is not its own, ends all that share the GPU.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rigor.errors import UserError

_CONTROL = "nvidia-cuda-mps-control"


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
    this user.

    Raises:
      UserError: the service is missing, or does not start.
    """
    if not asked:
        yield
        return
    check()
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        for name in ("PIPE", "LOG"):
            (Path(folder) / name).mkdir()
            os.environ[f"CUDA_MPS_{name}_DIRECTORY"] = f"{folder}/{name}"
        try:
            _control("-d")
            try:
                yield
            finally:
                _control(words="quit\n")
        finally:
            for name in ("PIPE", "LOG"):
                key = f"CUDA_MPS_{name}_DIRECTORY"
                os.environ.pop(key)
                if key in before:
                    os.environ[key] = before[key]


def _control(*arguments: str, words: str = "") -> None:
    done = subprocess.run(
        [_CONTROL, *arguments], input=words, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = " ".join((done.stderr or done.stdout).split())
        raise UserError(
            f"hydra.launcher.mps=true: {_CONTROL} ends with code {done.returncode} ({reason}); "
            "hydra.launcher.mps=false works without it"
        )
