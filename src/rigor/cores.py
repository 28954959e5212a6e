"""The cores at hand for one run: the machine's or the task's, shared by runs that run at once."""

import os

SHARE = "RIGOR_CORES"
"""Environment variable: the cores of one of several runs that a launcher starts at once."""


def cores() -> int:
    """Return the number of cores that this process and its children may use.

    A cluster that does not bind its tasks to cores tells a task its number only.
    """
    bound = hasattr(os, "sched_getaffinity")
    there = len(os.sched_getaffinity(0)) if bound else os.cpu_count() or 1
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return max(1, min(there, int(given))) if given.isdigit() else there


def share(n_runs: int) -> dict[str, str]:
    """Return the environment variable of each of `n_runs` processes that run at once."""
    return {SHARE: str(max(1, cores() // n_runs))}


def cores_of_run() -> int:
    """Return the number of cores that this run may use."""
    return int(os.environ.get(SHARE) or cores())
