"""A sweep on this machine: several worker processes and a display of their progress."""

from collections.abc import Sequence
from pathlib import Path

from rigor.cores import cores
from rigor.launch import sweep
from rigor.launch.display import Display
from rigor.launch.mps import processes_share_gpus
from rigor.launch.pool import run_pool
from rigor.launch.status import StatusReader
from rigor.runs.directory import RunDirectory, shown
from rigor.runs.gpus import torch_is_for_cpus, visible_gpus
from rigor.runs.job import Job


def launch(
    jobs: list[Job], overrides: list[list[str]], n_jobs: int | None, mps: bool = False
) -> None:
    """Run a sweep to its end, `n_jobs` runs at a time.

    None means one for each core or, on a machine with GPUs, one for each GPU, where memory and
    speed of several on one depend on the networks. `mps` lets several on one GPU use it at the same
    time.

    Raises:
      Stopped: a signal came, and every worker has ended. SweepFailed: some runs failed.
    """
    if n_jobs is None and all(job.config.device == "cpu" for job in jobs):
        n_jobs = cores()
    launcher = {"name": "local", "n_jobs": n_jobs, "mps": mps}
    with sweep.prepared(jobs, overrides, launcher) as directory:
        # a finished run may have been started without a sweep; then it has no job.json
        left = [job.path for job in jobs if not RunDirectory(job.path).is_done(job.steps)]
        if n_done := len(jobs) - len(left):
            print(f"{n_done} of {len(jobs)} runs are done, skipped", flush=True)
        ended = run_queued(directory.name, left, n_jobs, mps)
    every = [*[None] * n_done, *ended]
    sweep.remove_refused(jobs, directory, every)
    sweep.raise_failures(every)


def run_queued(
    name: str, paths: Sequence[Path], n_jobs: int | None, mps: bool = False
) -> list[Exception | None]:
    """Run queued runs of a sweep; return the error of each, None for a run that is done.

    Raises:
      Stopped: a signal came, and every worker has ended.
    """
    with processes_share_gpus(mps), Display(StatusReader(paths).read, name) as display:

        def print_end(path: Path, error: Exception | None) -> None:
            run = RunDirectory(path)
            reason = f": {error}" if error else ""
            if error and str(run.log_path) not in reason:
                reason += f"; see {run.log_path}"
            display.print_line(f"{shown(run.state())}: {path.name}{reason}")

        return run_pool(paths, n_jobs or _default_jobs(), print_end, display.update)


def _default_jobs() -> int:
    gpus = [] if torch_is_for_cpus() else visible_gpus()
    return min(cores(), len(gpus)) if gpus else cores()
