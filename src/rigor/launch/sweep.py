"""A sweep from its directory to its results: naming, queueing, tables, figures, failures."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import RunFailed, UserError
from rigor.launch.manifest import new_manifest
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import atomic_write, disk_errors
from rigor.runs.job import Job, enqueue
from rigor.runs.lock import Lock

if TYPE_CHECKING:
    from rigor.report.figures.return_distributions import Outcome


class SweepFailed(RunFailed):
    """Some runs of a sweep failed; `code` is the exit code of the command."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def sweep_directory(jobs: list[Job]) -> Path:
    """Return `out/sweeps/NAME`; NAME has the options of all jobs and a hash of their hashes."""
    names = [job.names for job in jobs]
    shared = [
        name.rpartition("/")[2]
        for group, name in names[0].items()
        if all(other.get(group) == name for other in names)
    ]
    digest = hashlib.sha256("".join(sorted(job.digest for job in jobs)).encode()).hexdigest()
    name = "-".join([*shared, f"{len(jobs)}runs", digest[:8]])
    return jobs[0].path.parent / "sweeps" / name


def refuse_duplicates(jobs: list[Job], overrides: list[list[str]]) -> None:
    """Refuse two jobs that are the same run, naming both.

    Raises:
      UserError: two jobs have the same hash.
    """
    first: dict[str, int] = {}
    for number, job in enumerate(jobs):
        if (before := first.setdefault(job.digest, number)) != number:
            raise UserError(
                f"jobs {before} ({' '.join(overrides[before])}) and {number} "
                f"({' '.join(overrides[number])}) are the same run; sweep over a key that changes "
                "the result"
            )


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Hold the lock of a sweep's directory inside the block.

    Raises:
      UserError: another process holds the lock, or the directory is not writable.
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
def prepared(
    jobs: list[Job], overrides: list[list[str]], launcher: dict[str, Any]
) -> Iterator[Path]:
    """Queue a sweep, yield its directory to the block that runs it, and print the results.

    Raises:
      UserError: another process works on the sweep, or a directory is refused.
    """
    directory = sweep_directory(jobs)
    with claimed(directory):
        new_manifest(jobs, overrides, launcher, directory)
        enqueue_all(jobs, directory.name)
        try:
            yield directory
        finally:
            # also after Ctrl-C: partial results are results
            summarise([job.path for job in jobs], directory)


def enqueue_all(jobs: list[Job], sweep: str) -> None:
    """Write the directory of every run that is neither done nor running, for a worker.

    Raises:
      UserError: a directory holds a run of another config, or cannot be written.
    """
    for job in jobs:
        run = RunDirectory(job.path)
        working = run.is_locked() or run.state() == "running"  # perhaps on another machine
        if run.is_done(job.steps):
            run.refuse_another(job.plain, job.digest)  # config.yaml may have been edited since
        elif not working:
            enqueue(job, sweep)


def remove(directory: Path) -> None:
    """Remove a sweep's directory, and the folder of sweeps and `out` if nothing else is there."""
    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):
        directory.parent.rmdir()
        directory.parent.parent.rmdir()


def remove_refused(jobs: list[Job], directory: Path, ended: Sequence[Exception | None]) -> None:
    """Remove a sweep if every run of it was refused before its first step.

    Args:
      directory: of the sweep. ended: the error of each run, as for `raise_failures`.
    """
    runs = [RunDirectory(job.path) for job in jobs]
    refused = [isinstance(error, UserError) for error in ended]
    if not all(refused) or not all(run.is_unused() for run in runs):
        return
    for run in runs:
        shutil.rmtree(run.path, ignore_errors=True)
    remove(directory)
    print("no run of the sweep began, so its directories are removed", flush=True)


def summarise(paths: list[Path], directory: Path) -> None:
    """Print the table of some runs, and write it and their figures into `directory`."""
    from rich.console import Console

    from rigor.report.tables.sweep_table import collect_rows, sweep_table, table_text

    rows = collect_rows(paths)
    atomic_write(directory / "table.txt", table_text(rows, width=120))
    console = Console(soft_wrap=False)
    console.print(sweep_table(rows, width=min(console.width, 160)))
    figures, problems = _draw(paths, directory)
    lines = [*problems, f"results: {directory}", *(f"figure: {path}" for path in figures)]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def report(jobs: list[Job]) -> None:
    """Write the sweep's report into its directory and print its path, if any run is done."""
    from rigor.report.page.page import write_report

    if not any(RunDirectory(job.path).is_done(job.steps) for job in jobs):
        return
    directory = sweep_directory(jobs)
    try:
        page = write_report([directory], directory / "report").page
    except Exception as error:  # a bug in the report must not change the sweep's exit code
        print(f"no report: {error or type(error).__name__}")
        return
    print(f"report: {page}")


def _draw(paths: list[Path], directory: Path) -> tuple[list[Path], list[str]]:
    """Draw the return distributions of exact agents and the learning curves of the others.

    Returns:
      The paths of the figures, and messages about files that could not be read.
    """
    from rigor.report.data.labels import curve_labels
    from rigor.report.figures.learning_curves import learning_curves
    from rigor.report.figures.return_distributions import return_distributions
    from rigor.runs.metrics import read

    curves, distributions, problems = [], [], []
    for label, path in zip(curve_labels(paths), paths, strict=True):
        outcomes = path / "outcomes.npz"
        try:
            if outcomes.is_file():
                distributions.append(_outcome(label, path))
            else:
                curves.append((label, read(path / "metrics.csv")))
        except UserError as error:
            problems.append(str(error))
    figures = []
    if distributions:
        figures.append(return_distributions(distributions, directory / "outcomes.png"))
    has_steps = any("steps" in metrics and metrics["steps"].max() > 0 for _, metrics in curves)
    if has_steps or not distributions:
        figures.append(learning_curves(curves, directory / "learning_curves.png"))
    return figures, problems


def _outcome(label: str, path: Path) -> "Outcome":
    """Return the distribution of an exact run, with its objective and the name of its risk."""
    from rigor.report.data.runs import load
    from rigor.report.figures.return_distributions import Outcome, read_outcomes

    run = load(path)
    objective = run.result.get("objective_exact", run.result.get("objective"))
    risk = " ".join(
        [run.choices["risk"]]
        + [
            f"{key.removeprefix('risk.')}={value:g}"
            for key, value in run.settings.items()
            if key.startswith("risk.") and isinstance(value, int | float)
        ]
    )
    return Outcome(label, *read_outcomes(path / "outcomes.npz"), objective, f"objective ({risk})")


def raise_failures(ended: Sequence[Exception | None]) -> None:
    """Raise `SweepFailed` if any run failed.

    Args:
      ended: the error of each run, None for a run that is done. The exit code is 2 if all errors
        are the user's, else 1.
    """
    errors = [error for error in ended if error is not None]
    if errors:
        bugs = [error for error in errors if not isinstance(error, UserError)]
        first = (bugs or errors)[0]
        message = f"{len(errors)} of {len(ended)} runs failed, the first with: {first}"
        raise SweepFailed(message, 1 if bugs else 2)
