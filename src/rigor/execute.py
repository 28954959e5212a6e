"""One run from its directory to its status: what `rigor-train` does once a job is accepted."""

import signal
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch.job import Job
from rigor.tracking.rundir import RunDirectory


class Stop:
    """Remembers the signal that asked the run to stop; the loop reads it at a safe point.

    patient: whether every signal waits for that point; otherwise the second one of a kind ends the
      process in the ordinary way.
    """

    def __init__(self, patient: bool) -> None:
        self.signal: int | None = None
        self._patient = patient

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self.signal = self.signal or number
        if self._patient:
            return
        ordinary = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, ordinary)


def run(job: Job, sweep: str | None, patient: bool = False) -> float:
    """Run a job to its end, or skip it when it is done; return its objective.

    Args:
      patient: see `Stop`; for a process that hears of one stop from several sides.

    Raises:
      UserError, RunFailed, Stopped: as `execute`.
    """
    directory = RunDirectory(job.path)
    if directory.is_done(job.steps):
        print(f"{job.path}: done, skipped", flush=True)
        return float((directory.result() or {}).get("objective", "nan"))
    return execute(job, sweep, patient)


def execute(job: Job, sweep: str | None, patient: bool = False) -> float:
    """Run a job to its end in its directory and return the objective.

    Raises:
      UserError: the directory, memory or disk refuses. RunFailed: our fault.
      Stopped: asked to stop; the directory resumes.
    """
    with (
        RunDirectory.open(job.path, job.plain, job.digest) as run,
        _signals(patient) as stop,
        ExitStack() as after,  # W&B and the environment end after the status is written
    ):
        run.write_status("running", steps_total=job.steps)
        try:
            # torch and the environments are imported here, once nothing can be refused any more
            if job.config.learns:
                from rigor.learning.run import work
            else:
                from rigor.exact.run import work
            objective = work(job, run, sweep, lambda: stop.signal, after)
        except Stopped as stopped:
            run.write_status("preempted", error=f"stopped by {signal.Signals(stopped.signal).name}")
            raise
        except UserError as error:
            _tell_failure(run, str(error), f"failed: {error}", error)
            raise
        except KeyboardInterrupt:
            run.write_status("preempted", error="interrupted before it could save itself")
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            _tell_failure(run, text, traceback.format_exc(), error)
            raise RunFailed(f"{text}; the traceback is in {run.log_path}") from error
        if stop.signal:  # it came when there was nothing left to stop; a sweep must hear of it
            raise Stopped(stop.signal)
        return objective


def _tell_failure(run: RunDirectory, error: str, log: str, raised: Exception) -> None:
    """Leave the reason and the status of a failed run; a full disk may refuse both."""
    # a launcher keeps the error until the sweep ends, and its frames hold the replay
    traceback.clear_frames(raised.__traceback__)
    with suppress(UserError):
        run.write_traceback(log)
        run.write_status("failed", error=error)


@contextmanager
def _signals(patient: bool) -> Iterator[Stop]:
    """Catch Ctrl-C and SIGTERM while a run is on, and put the old handlers back."""
    stop = Stop(patient)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
