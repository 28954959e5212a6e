"""The GPUs of this machine, found without torch."""

import os
import re
import shutil
import subprocess
from importlib import metadata
from itertools import takewhile

_NAME = re.compile(r"\d+$|GPU-|MIG-")
_LINE = re.compile(r"\s*(GPU|MIG) .*\(UUID: ([^)]+)\)")


def visible_gpus() -> list[str]:
    """Return the names by which CUDA_VISIBLE_DEVICES calls the GPUs that a process may use.

    They are those of the variable or, if it is not set, the numbers of all GPUs; in the place of a
    GPU in several parts (MIG) the names of its parts.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        names = (name.strip() for name in named.split(","))
        return list(takewhile(_NAME.match, names))  # as CUDA reads it: -1 ends the list
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listed(done.stdout) if done.returncode == 0 else []


def listed(lines: str) -> list[str]:
    """Return the names of the GPUs that `nvidia-smi -L` lists."""
    parts: list[list[str]] = []  # of each GPU
    for line in lines.splitlines():
        if found := _LINE.match(line):
            kind, name = found.groups()
            if kind == "GPU":
                parts.append([])
            elif parts:
                parts[-1].append(name)
    return [name for number, names in enumerate(parts) for name in names or [str(number)]]


def torch_is_for_cpus() -> bool:
    """Tell whether the installed torch is a build without CUDA, by its version."""
    return metadata.version("torch").endswith("+cpu")
