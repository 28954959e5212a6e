"""Execution of one accepted job in its directory, from the first status to the last."""

import math
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

from rigor.errors import STOPS, RunFailed, Stopped, UserError
from rigor.runs.directory import RunDirectory, TakenOver
from rigor.runs.job import Job
from rigor.runs.takeover import wait_until_alone


class StopRequest:
    """Holds the signal that asked the run to stop; the training loop reads it at a safe point.

    patient: whether all signals wait for that point; otherwise a second signal of the same kind
      has its usual effect at once.
    """

    def __init__(self, patient: bool) -> None:
        self.signal: int | None = None
        self._patient = patient

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Receive a signal."""
        self.signal = self.signal or number
        if self._patient:
            return
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, usual)


def run(job: Job, sweep: str | None, patient: bool = False) -> float:
    """Run a job to its end, or skip it if it is done; return its objective.

    Args:
      patient: see `StopRequest`; for a process that may get several signals for a single stop.

    Raises:
      UserError, RunFailed, Stopped: as `execute`.
    """
    directory = RunDirectory(job.path)
    wait_until_alone(directory, is_of_earlier_start)
    if directory.is_done(job.steps):
        directory.refuse_another(job.plain, job.digest)  # config.yaml may have been edited since
        print(f"{job.path}: done, skipped", flush=True)
        objective = (directory.result() or {}).get("objective")
        return float(objective) if isinstance(objective, int | float) else math.nan
    return execute(job, sweep, patient)


def execute(job: Job, sweep: str | None, patient: bool = False) -> float:
    """Run a job to its end in its directory and return the objective.

    Raises:
      UserError: the directory, the memory or the disk is refused, or a choice that cannot work;
        a new run's directory is then removed. RunFailed: a bug.
      Stopped: a signal came; the same command resumes the run.
    """
    with RunDirectory.open(job.path, job.plain, job.digest) as run:
        try:
            return _execute(job, run, sweep, patient)
        except TakenOver:  # the directory is another process's now
            raise
        except UserError:
            run.remove_unused()
            raise


def _execute(job: Job, run: RunDirectory, sweep: str | None, patient: bool) -> float:
    """Run a job in its locked directory, and write its status."""
    with (
        _signals(patient) as stop,
        ExitStack() as after,  # W&B and the environment close after the status is written
    ):
        run.write_status("running", steps_total=job.steps, task=task_id(), restarts=_restarts())
        try:
            # imported here, after all checks, because torch and the environments take seconds
            if job.config.learns:
                from rigor.learning.run import work
            else:
                from rigor.exact.run import work
            objective = work(job, run, sweep, lambda: stop.signal, after)
        except Stopped as stopped:
            run.write_status("preempted", error=f"stopped by {signal.Signals(stopped.signal).name}")
            raise
        except UserError as error:
            _write_failure(run, str(error), f"failed: {error}", error)
            raise
        except KeyboardInterrupt:
            run.write_status("preempted", error="interrupted before it could save itself")
            raise
        except (Exception, SystemExit) as error:  # a sys.exit(0) of an environment is no success
            text = f"{type(error).__name__}: {error}"
            _write_failure(run, text, traceback.format_exc(), error)
            raise RunFailed(f"{text}; the traceback is in {run.log_path}") from error
        if stop.signal:  # the run was done before it could stop; its sweep must stop too
            raise Stopped(stop.signal)
        return objective


def task_id() -> str | None:
    """Return SLURM's id of the task that this process belongs to, if any.

    The job number of an array would mean all its tasks.
    """
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def may_run_here(run: RunDirectory) -> bool:
    """Return whether no process holds a run's lock, or only one that it is taken from."""
    status = run.status() or {}
    taken = status.get("state") == "queued" and status.get("pid") is not None
    return run.is_locked() is not True or taken or is_of_earlier_start(status)


def is_of_earlier_start(status: Mapping[str, Any]) -> bool:
    """Return whether the process that a status names is of an earlier start of this SLURM task.

    SLURM requeues the task of a node that does not answer, whose processes may still be alive.
    """
    before = status.get("restarts") or 0
    return status.get("task") is not None and status["task"] == task_id() and before < _restarts()


def _restarts() -> int:
    """Return how often SLURM has started this process's task again."""
    return int(os.environ.get("SLURM_RESTART_COUNT") or 0)


def _write_failure(run: RunDirectory, error: str, log: str, raised: BaseException) -> None:
    """Write the reason and the status of a failed run, if the disk is not full."""
    # a launcher keeps the error until the sweep ends, and the frames would keep the replay
    traceback.clear_frames(raised.__traceback__)
    with suppress(UserError):
        run.write_traceback(log)
        run.write_status("failed", error=error)


@contextmanager
def _signals(patient: bool) -> Iterator[StopRequest]:
    """Handle the signals of `STOPS` inside the block, then restore the old handlers."""
    stop = StopRequest(patient)
    if threading.current_thread() is not threading.main_thread():  # which alone has handlers
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in STOPS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
