"""Manifest of a sweep: its runs, how they were launched, and its submissions to SLURM."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rigor.errors import UserError
from rigor.runs.disk import atomic_write
from rigor.runs.job import Job


@dataclass
class Submission:
    """One array of tasks that was submitted to SLURM.

    name: of its jobs. job: SLURM's job number, None until SLURM has answered.
    tasks: the runs of each task, as indices into the manifest.
    """

    name: str
    job: str | None
    tasks: list[list[int]]


@dataclass
class Manifest:
    """The members of a sweep.

    runs: run directories. launcher: the launcher, as its `name` and its parameters.
    overrides, hashes: of each run. submissions: to SLURM, oldest first.
    """

    runs: list[Path]
    launcher: dict[str, Any]
    overrides: list[list[str]]
    hashes: list[str]
    submissions: list[Submission] = field(default_factory=list)

    @property
    def on_slurm(self) -> bool:
        """Whether the sweep was submitted to a cluster."""
        return bool(self.launcher["name"] == "slurm")

    def write(self, directory: Path) -> None:
        """Write the manifest into the sweep's directory."""
        # paths are relative to the manifest, because `out` may be moved and read from anywhere
        content = asdict(self) | {"runs": [os.path.relpath(run, directory) for run in self.runs]}
        atomic_write(directory / "manifest.json", json.dumps(content, indent=1))


def new_manifest(
    jobs: list[Job], overrides: list[list[str]], launcher: dict[str, Any], directory: Path
) -> Manifest:
    """Write and return the manifest of some jobs; earlier submissions of the sweep are kept."""
    paths, hashes = [job.path for job in jobs], [job.digest for job in jobs]
    manifest = Manifest(paths, launcher, overrides, hashes)
    with suppress(UserError):
        manifest.submissions = _renumbered(read_manifest(directory), hashes)
    manifest.write(directory)
    return manifest


def _renumbered(before: Manifest, hashes: list[str]) -> list[Submission]:
    """Return a manifest's submissions with the indices that the runs have in `hashes`.

    A run that is not in `hashes` is removed from its task; tasks keep their numbers in SLURM's
    arrays.
    """
    place = {digest: number for number, digest in enumerate(hashes)}
    return [
        replace(
            submission,
            tasks=[
                [place[before.hashes[i]] for i in task if before.hashes[i] in place]
                for task in submission.tasks
            ],
        )
        for submission in before.submissions
    ]


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest in a sweep's directory.

    Raises:
      UserError: the directory is not a sweep's.
    """
    try:
        found = json.loads((directory / "manifest.json").read_bytes())
        _refuse_other_types(found)
        return Manifest(
            [Path(os.path.normpath(directory / run)) for run in found["runs"]],
            found["launcher"],
            found["overrides"],
            found["hashes"],
            [Submission(**submission) for submission in found["submissions"]],
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{directory}: not a sweep's directory (no readable manifest.json); name "
            "OUT/sweeps/NAME, where OUT is the out=OUT of rigor-train"
        ) from error


def _refuse_other_types(found: dict[str, Any]) -> None:
    """Raise a TypeError or a KeyError for contents that no sweep has written."""
    runs, launcher = found["runs"], found["launcher"]
    lists = [runs, found["overrides"], found["hashes"], found["submissions"]]
    tasks = [submission["tasks"] for submission in found["submissions"]]
    numbers = [number for task in tasks for members in task for number in members]
    if not all(isinstance(one, list) for one in (*lists, *tasks)):
        raise TypeError("a list is missing")
    if not isinstance(launcher, dict) or not isinstance(launcher["name"], str):
        raise TypeError("the launcher has no name")
    if not all(isinstance(run, str) for run in runs):
        raise TypeError("a run is no path")
    if not all(type(number) is int and 0 <= number < len(runs) for number in numbers):
        raise TypeError("a task has no such run")
