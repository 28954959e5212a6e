"""What SLURM knows of a sweep: the second witness, beside the runs' own files."""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rigor.launch.board import Standing, Watch
from rigor.launch.sweep import Manifest, read_manifest

_AT_WORK = ("RUNNING", "COMPLETING")
"""SLURM's states of a task that has a node; one in any other state that is alive waits for one."""


def standings(directory: Path) -> Callable[[], list[Standing]]:
    """Return a function that reads where a sweep's runs stand, by their files and by SLURM."""
    watch = Watch([])

    def read() -> list[Standing]:
        manifest = read_manifest(directory)  # a retry, meanwhile, submits more
        watch.paths = manifest.runs
        there = queue(manifest)
        found = watch.read()
        return found if there is None else witnessed(found, there)

    return read


def queue(manifest: Manifest) -> dict[int, str] | None:
    """Return the state that SLURM gives the task of each run that it still has.

    None when SLURM does not answer. Of a run that was submitted twice the newest counts.
    """
    asked = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%F|%K|%T|%j"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    tasks: dict[tuple[str, int], str] = {}
    for line in done.stdout.splitlines():
        job, index, state, name = line.split("|", 3)
        number = int(index) if index.isdigit() else 0  # a single task is no array
        for key in (job, name):
            tasks[key, number] = state
    states: dict[int, str] = {}
    for entry in manifest.submissions:
        for number, members in enumerate(entry.tasks):
            if found := tasks.get((entry.job or entry.name, number)):
                states |= dict.fromkeys(members, found)
    return states


def witnessed(standings: Sequence[Standing], slurm: dict[int, str]) -> list[Standing]:
    """Return standings with SLURM as the second witness of what the runs' files say.

    A run is queued that has saved while SLURM still has its task, which is then about to be
    requeued, and so is one whose task waits, whatever became of its last process. One that is
    queued by its own word only is lost.
    """
    found = []
    for number, one in enumerate(standings):
        state = slurm.get(number)
        if state is None:
            if one.state == "queued":
                one = replace(one, state="lost", error="SLURM does not know it any more")
        elif one.state == "preempted" or (
            one.state in ("lost", "running") and state not in _AT_WORK
        ):
            one = replace(one, state="queued", error=None)
        found.append(one)
    return found


def cancel(manifest: Manifest, numbers: Sequence[int]) -> list[str]:
    """Cancel the tasks of some runs, and return the jobs that were told to end."""
    jobs = task_ids(manifest, numbers, queue(manifest) or {})
    if jobs:
        subprocess.run(["scancel", *jobs], check=True)
    return jobs


def task_ids(manifest: Manifest, numbers: Sequence[int], alive: dict[int, str]) -> list[str]:
    """Return how SLURM calls the tasks, that it still has, of some runs."""
    found = []
    for entry in manifest.submissions:
        for index, members in enumerate(entry.tasks):
            if entry.job and set(members) & set(numbers) & set(alive):
                found.append(f"{entry.job}_{index}" if len(entry.tasks) > 1 else entry.job)
    return found


def logs(directory: Path, manifest: Manifest, number: int) -> list[Path]:
    """Return what SLURM's tasks of a run have printed, oldest first."""
    found: list[Path] = []
    for entry in manifest.submissions:
        for index, members in enumerate(entry.tasks):
            if entry.job and number in members:
                task = f"{entry.job}_{index}" if len(entry.tasks) > 1 else entry.job
                found += sorted((directory / "slurm").glob(f"{task}_*_log.*"))
    return found
