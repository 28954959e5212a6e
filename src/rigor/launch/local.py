"""A sweep on this machine: a pool of workers, and what is shown of it."""

from collections.abc import Sequence
from pathlib import Path

from rigor.launch import sweep
from rigor.launch.board import Display, Watch
from rigor.launch.job import Job
from rigor.launch.pool import cores, run_pool
from rigor.tracking.rundir import RunDirectory


def launch(jobs: list[Job], overrides: list[list[str]], n_jobs: int | None) -> None:
    """Run a sweep, `n_jobs` runs at a time (None: one for each core), to its end.

    Raises:
      Stopped: a signal came; every worker has ended. SweepFailed: some runs failed.
    """
    with sweep.at_work(jobs, overrides, {"name": "local", "n_jobs": n_jobs}) as directory:
        # what is done may have been run alone, and then lacks what a worker reads
        left = [one.path for one in jobs if not RunDirectory(one.path).is_done(one.steps)]
        if n_done := len(jobs) - len(left):
            print(f"{n_done} of {len(jobs)} runs are done, skipped", flush=True)
        ended = run_here(directory.name, left, n_jobs)
    sweep.raise_failures([None] * n_done + ended)


def run_here(name: str, paths: Sequence[Path], n_jobs: int | None) -> list[Exception | None]:
    """Run queued runs of a sweep, and return how each ended.

    Raises:
      Stopped: a signal came; every worker has ended.
    """
    with Display(Watch(paths).read, name) as display:

        def told(path: Path, error: Exception | None) -> None:
            run = RunDirectory(path)
            reason = f": {error}" if error else ""
            if error and str(run.log_path) not in reason:
                reason += f"; see {run.log_path}"
            display.say(f"{run.state()}: {path.name}{reason}")

        return run_pool(paths, n_jobs or cores(), told, display.look)
