"""A sweep: its directory, its manifest, its table and its pictures."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rigor.errors import RunFailed, UserError
from rigor.launch.job import Job, leave
from rigor.tracking.disk import disk_errors
from rigor.tracking.lock import Lock
from rigor.tracking.rundir import RunDirectory, atomic_write


class SweepFailed(RunFailed):
    """Some runs of a sweep failed; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def sweep_directory(jobs: list[Job]) -> Path:
    """Return `out/sweeps/<name>`: the choices that all jobs share, and a hash of their hashes."""
    shared = [
        value.rpartition("/")[2]
        for group, value in jobs[0].choices.items()
        if all(one.choices.get(group) == value for one in jobs)
    ]
    digest = hashlib.sha256("".join(sorted(one.digest for one in jobs)).encode()).hexdigest()
    name = "-".join([*shared, f"{len(jobs)}runs", digest[:8]])
    return jobs[0].path.parent / "sweeps" / name


def refuse_twins(jobs: list[Job], overrides: list[list[str]]) -> None:
    """Refuse two jobs that would be the same run, naming both."""
    seen: dict[str, int] = {}
    for number, one in enumerate(jobs):
        if one.digest in seen:
            first = overrides[seen[one.digest]]
            raise UserError(
                f"jobs {seen[one.digest]} ({' '.join(first)}) and {number} "
                f"({' '.join(overrides[number])}) are the same run; sweep over something that "
                "changes the result"
            )
        seen[one.digest] = number


@dataclass
class Submission:
    """One array of tasks that was handed to SLURM.

    name: of its jobs. job: SLURM's number of it, None until it has answered.
    tasks: the runs of each task, by their place in the manifest.
    """

    name: str
    job: str | None
    tasks: list[list[int]]


@dataclass
class Manifest:
    """What belongs to a sweep.

    runs: run directories. launcher: what started it, `name` and its parameters.
    overrides, hashes: of each run. submissions: to SLURM, oldest first.
    """

    runs: list[Path]
    launcher: dict[str, Any]
    overrides: list[list[str]]
    hashes: list[str]
    submissions: list[Submission] = field(default_factory=list)

    def write(self, directory: Path) -> None:
        """Write the manifest into the sweep's directory."""
        # places are told from the manifest's own: `out` may be moved, and read from anywhere
        content = asdict(self) | {"runs": [os.path.relpath(run, directory) for run in self.runs]}
        atomic_write(directory / "manifest.json", json.dumps(content, indent=1))


def new_manifest(
    jobs: list[Job], overrides: list[list[str]], launcher: dict[str, Any], directory: Path
) -> Manifest:
    """Write which runs belong to a sweep, and what launches it; earlier submissions stay."""
    paths, hashes = [one.path for one in jobs], [one.digest for one in jobs]
    manifest = Manifest(paths, launcher, overrides, hashes)
    with suppress(UserError):
        manifest.submissions = _renumbered(read_manifest(directory), hashes)
    manifest.write(directory)
    return manifest


def _renumbered(before: Manifest, hashes: list[str]) -> list[Submission]:
    """Return a manifest's submissions by the places of runs in another order of their hashes.

    A run that has no place any more leaves its task, which keeps its own number in SLURM's array.
    """
    place = {digest: number for number, digest in enumerate(hashes)}
    return [
        replace(
            entry,
            tasks=[
                [place[before.hashes[i]] for i in task if before.hashes[i] in place]
                for task in entry.tasks
            ],
        )
        for entry in before.submissions
    ]


def read_manifest(directory: Path) -> Manifest:
    """Return what a sweep's directory says.

    Raises:
      UserError: it is no sweep's directory.
    """
    try:
        found = json.loads((directory / "manifest.json").read_bytes())
        return Manifest(
            [Path(os.path.normpath(directory / run)) for run in found["runs"]],
            found["launcher"],
            found["overrides"],
            found["hashes"],
            [Submission(**entry) for entry in found["submissions"]],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{directory}: not a sweep's directory (no readable manifest.json); those are "
            "OUT/sweeps/NAME, with out=OUT of rigor-train"
        ) from error


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Keep other processes from working on the sweep inside the block.

    Raises:
      UserError: one does, or the place is not writable.
    """
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    lock = Lock(directory)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def at_work(
    jobs: list[Job], overrides: list[list[str]], launcher: dict[str, Any]
) -> Iterator[Path]:
    """Queue a sweep, give its directory to the block that runs it, and show what has become of it.

    Raises:
      UserError: somebody works on it already, or a directory refuses.
    """
    directory = sweep_directory(jobs)
    with claimed(directory):
        new_manifest(jobs, overrides, launcher, directory)
        queue(jobs, directory.name)
        try:
            yield directory
        finally:
            # however it ended, a stop by the user included: what there is is shown
            summarise([one.path for one in jobs], directory)


def queue(jobs: list[Job], sweep: str) -> None:
    """Queue every run that is neither done nor running: its directory then has all a worker needs.

    Raises:
      UserError: a directory holds another config's run, or cannot be written.
    """
    for one in jobs:
        run = RunDirectory(one.path)
        if not run.is_done(one.steps) and run.is_locked() is not True:
            leave(one, sweep)


def summarise(paths: list[Path], directory: Path) -> None:
    """Print the table of some runs, and write it and their pictures into `directory`."""
    from rich.console import Console

    from rigor.report.tables import collect_rows, sweep_table, table_text

    rows = collect_rows(paths)
    atomic_write(directory / "table.txt", table_text(rows, width=120))
    console = Console(soft_wrap=False)
    console.print(sweep_table(rows, width=min(console.width, 160)))
    pictures, problems = _draw(paths, directory)
    lines = [*problems, f"results: {directory}", *(f"picture: {one}" for one in pictures)]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def report(jobs: list[Job]) -> None:
    """Write the sweep's report into its directory and say where, once a run is done."""
    from rigor.report.page import write_report

    if not any(RunDirectory(one.path).is_done(one.steps) for one in jobs):
        return
    directory = sweep_directory(jobs)
    try:
        page = write_report([directory], directory / "report").page
    except Exception as error:  # whatever it is, the runs are done, and what became of them counts
        print(f"no report: {error or type(error).__name__}")
        return
    print(f"report: {page}")


def _draw(paths: list[Path], directory: Path) -> tuple[list[Path], list[str]]:
    """Draw the outcomes of exact agents and the learning curves of the others.

    Returns:
      The pictures, and what could not be read: one run's broken file hides nobody else's curve.
    """
    from rigor.report.figures import learning_curves
    from rigor.report.labels import curve_labels
    from rigor.report.outcomes import outcomes_of_runs, read_outcomes
    from rigor.tracking.metrics import read

    curves, laws, problems = [], [], []
    for label, path in zip(curve_labels(paths), paths, strict=True):
        outcomes = path / "outcomes.npz"
        try:
            if outcomes.is_file():
                laws.append((label, *read_outcomes(outcomes)))
            else:
                curves.append((label, read(path / "metrics.csv")))
        except UserError as error:
            problems.append(str(error))
    pictures = []
    if laws:
        pictures.append(outcomes_of_runs(laws, directory / "outcomes.png"))
    if not laws or any("steps" in metrics and metrics["steps"].max() > 0 for _, metrics in curves):
        pictures.append(learning_curves(curves, directory / "learning_curves.png"))
    return pictures, problems


def raise_failures(ended: Sequence[Exception | None]) -> None:
    """Raise when any run failed: code 2 if all failures were the user's, else 1."""
    errors = [error for error in ended if error is not None]
    if errors:
        ours = [error for error in errors if not isinstance(error, UserError)]
        first = (ours or errors)[0]
        message = f"{len(errors)} of {len(ended)} runs failed, the first with: {first}"
        raise SweepFailed(message, 1 if ours else 2)
