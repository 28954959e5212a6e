"""A sweep on this machine: a pool of workers, and what is shown of it."""

from collections.abc import Sequence
from pathlib import Path

from rigor.launch.board import Display
from rigor.launch.pool import cores, run_pool
from rigor.tracking.rundir import RunDirectory


def run_here(name: str, paths: Sequence[Path], n_jobs: int | None) -> list[Exception | None]:
    """Run queued runs, `n_jobs` at a time (None: one for each core), and return how each ended.

    Raises:
      Stopped: a signal came; every worker has ended.
    """
    with Display(paths, name) as display:

        def told(path: Path, error: Exception | None) -> None:
            run = RunDirectory(path)
            state = run.state()
            reason = f": {error}" if error else ""
            if error and str(run.log_path) not in reason:
                reason += f"; see {run.log_path}"
            display.say(f"{state}: {path.name}{reason}")

        return run_pool(paths, n_jobs or cores(), told, display.look)
