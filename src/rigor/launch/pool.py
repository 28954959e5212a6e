"""A pool of worker processes on this machine, each executing one run in one thread."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, MappingProxyType

from rigor import cores
from rigor.errors import STOPS, RunFailed, Stopped, UserError
from rigor.launch.worker import ERROR_PREFIX, PARENT
from rigor.runs.directory import RunDirectory
from rigor.runs.gpus import visible_gpus
from rigor.runs.memory import shares

_POLL_EVERY = 0.1  # seconds between checks of the workers
_KILL_AFTER = 2.0  # seconds between a second signal and SIGKILL


@dataclass
class Worker:
    """A worker process and the directory of its run.

    log_start: byte of the run's log at which the worker's output begins.
    slot: number of the worker among those that run at once; it determines the GPU.
    """

    path: Path
    process: subprocess.Popen[bytes]
    log_start: int
    slot: int


def run_pool(
    paths: Sequence[Path],
    n_jobs: int,
    on_end: Callable[[Path, Exception | None], None] = lambda path, error: None,
    on_poll: Callable[[], None] = lambda: None,
    patient: bool = False,
) -> list[Exception | None]:
    """Run queued runs, `n_jobs` at a time; return the error of each, None for a run that is done.

    Args:
      paths: run directories, written by `rigor.runs.job.enqueue`.
      on_end: called when a run has ended. on_poll: called about ten times a second.
      patient: whether a second signal of one kind is ignored; otherwise it ends the workers at
        once. At the first one the workers get SIGTERM, save and end.

    Raises:
      Stopped: a signal came, and every worker has ended.
    """
    errors: list[Exception | None] = [None] * len(paths)
    waiting, running = list(enumerate(paths)), dict[int, Worker]()
    gpus = visible_gpus()
    at_once = min(n_jobs, len(paths))
    # measured here, before the first run starts: alone, each run would take all of it for its own
    parts = shares(at_once, len(gpus)) | cores.share(at_once) if at_once > 1 else {}
    with _collected(STOPS) as received:
        stopping = False
        while running or (waiting and not received):
            while waiting and len(running) < n_jobs and not received:
                number, path = waiting.pop(0)
                used = {worker.slot for worker in running.values()}
                slot = next(slot for slot in range(n_jobs) if slot not in used)
                try:
                    running[number] = start(path, slot, gpus, parts)
                except OSError as error:  # its directory is gone, or the system refuses a process
                    reason = (error.strerror or str(error)).lower()
                    errors[number] = UserError(f"{path}: no worker can start there ({reason})")
                    on_end(path, errors[number])
            on_poll()
            time.sleep(_POLL_EVERY)
            for number, worker in list(running.items()):
                if worker.process.poll() is not None:
                    del running[number]
                    errors[number] = error_of(worker)
                    on_end(worker.path, errors[number])
            if received and not stopping:
                stopping = True
                for worker in running.values():
                    worker.process.terminate()
            if not patient and len(received) > len(set(received)):
                _kill(list(running.values()))
                message = "ended at once; the same command resumes from the last checkpoints"
                raise Stopped(received[-1], message)
    if received:
        raise Stopped(received[0])
    return errors


def start(
    path: Path,
    slot: int = 0,
    gpus: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> Worker:
    """Start a worker with its standard error in the run's `train.log`.

    If there are several GPUs, the worker sees one of them, chosen by its slot.

    Args:
      path: the run's directory. slot: of the worker. gpus: all GPUs. more: environment variables.
    """
    log = RunDirectory(path).log_path
    environment = {**os.environ, PARENT: str(os.getpid()), **more}
    if len(gpus) > 1:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    with open(log, "ab") as errors:
        process = subprocess.Popen(
            # -P: else a queue.py in the working directory would hide Python's own module
            [sys.executable, "-P", "-m", "rigor.launch.worker", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its progress, which is in the log too
            stderr=errors,
            env=environment,
            process_group=0,  # so that Ctrl-C does not reach it twice
        )
        return Worker(path, process, errors.tell(), slot)


def error_of(worker: Worker) -> Exception | None:
    """Return the error of an ended worker, None if its run is done."""
    code = worker.process.returncode
    if code == 0:
        return None
    log = RunDirectory(worker.path).log_path
    if code < 0:
        return RunFailed(f"killed by {signal.Signals(-code).name}; see {log}")
    reason = _reason(log, worker.log_start) or f"its worker ended with code {code}; see {log}"
    return UserError(reason) if code == 2 else RunFailed(reason)


def _reason(log: Path, start: int) -> str:
    """Return the reason that a worker wrote into its run's log, or an empty text."""
    try:
        with open(log, "rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:  # the user removed it
        return ""
    reasons = [line.removeprefix(ERROR_PREFIX) for line in lines if line.startswith(ERROR_PREFIX)]
    return reasons[-1] if reasons else ""


@contextmanager
def _collected(signals: Sequence[int]) -> Iterator[list[int]]:
    """Collect signals inside the block, then restore the old handlers."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill(workers: Sequence[Worker]) -> None:
    """Wait a moment for workers to end, then kill the remaining ones."""
    deadline = time.monotonic() + _KILL_AFTER
    while time.monotonic() < deadline and any(w.process.poll() is None for w in workers):
        time.sleep(_POLL_EVERY)
    for worker in workers:
        worker.process.kill()
        worker.process.wait()
