"""Memory at hand for one run: the machine's or the container's, shared by runs that run at once."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

SHARE = "RIGOR_MEMORY"
"""Environment variable: the bytes for one of several runs that a launcher starts at once. Each of
them would see the memory that the others have not filled yet as free."""

RUNS_ON_GPU = "RIGOR_RUNS_ON_GPU"
"""Environment variable: the number of runs at once that share a GPU."""

_GROUPS = Path("/sys/fs/cgroup")
_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def shares(n_runs: int, n_gpus: int) -> dict[str, str]:
    """Return the environment variables of each of `n_runs` processes that run at once."""
    return {
        SHARE: str(free_memory() // n_runs),
        RUNS_ON_GPU: str(-(-n_runs // max(1, n_gpus))),
    }


def free_memory() -> int:
    """Return the bytes that this run can still allocate, within all limits."""
    free = [psutil.virtual_memory().available, *_free_in_groups()]
    if SHARE in os.environ:
        free.append(int(os.environ[SHARE]))
    return min(free)


def runs_on_gpu() -> int:
    """Return the number of runs at once that share this run's GPU."""
    return int(os.environ.get(RUNS_ON_GPU, "1"))


def _free_in_groups() -> Iterator[int]:
    """Yield the free bytes of each control group that this process is in, where it has a limit.

    A container sees its own group as the root; SLURM makes nested groups for a job and its steps.
    """
    groups = {_GROUPS, _GROUPS / "memory"}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers in ("", "memory"):
                own = _GROUPS / controllers / name.lstrip("/")
                groups |= {own, *own.parents}
    for group in groups:
        for limit, used in _FILES:
            with suppress(OSError, ValueError):  # there is no such group, or its limit is "max"
                yield int((group / limit).read_text()) - int((group / used).read_text())


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage inside the block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
