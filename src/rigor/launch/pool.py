"""Several runs of a sweep at once on this machine, each a worker process with one thread."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch.worker import PARENT, SAYS
from rigor.tracking.rundir import RunDirectory

INTERACTIVE = (signal.SIGINT, signal.SIGTERM)
"""What a user stops a sweep with."""

_LOOK_EVERY = 0.1  # seconds between looks at the workers
_LAST_WORDS = 2.0  # seconds that workers have to end after a second signal, before they are killed


@dataclass
class Member:
    """A worker that runs: its run's directory, its process, and where its words in the log begin.

    slot: which of the n places it has, and so which GPU.
    """

    path: Path
    process: subprocess.Popen[bytes]
    log_start: int
    slot: int


def cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """Return what CUDA_VISIBLE_DEVICES says, or else the indices of all NVIDIA GPUs."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    if not shutil.which("nvidia-smi"):
        return []
    asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def run_pool(
    paths: Sequence[Path],
    n_jobs: int,
    told: Callable[[Path, Exception | None], None] = lambda path, error: None,
    look: Callable[[], None] = lambda: None,
    signals: Sequence[int] = INTERACTIVE,
) -> list[Exception | None]:
    """Run queued runs, `n_jobs` at a time, and return how each ended: None, or its error.

    Args:
      paths: run directories, as `rigor.launch.job.leave` made them.
      told: called when a run has ended. look: called about ten times a second.
      signals: those that stop the pool: the workers get SIGTERM, save and end. A second one of a
        kind ends them at once, if a user sent it: `signals` are then INTERACTIVE.

    Raises:
      Stopped: a signal came, and every worker has ended.
    """
    ended: list[Exception | None] = [None] * len(paths)
    waiting, running = list(enumerate(paths)), dict[int, Member]()
    gpus = visible_gpus()
    with _caught(signals) as came:
        told_to_stop = False
        while running or (waiting and not came):
            while waiting and len(running) < n_jobs and not came:
                number, path = waiting.pop(0)
                taken = {member.slot for member in running.values()}
                slot = next(slot for slot in range(n_jobs) if slot not in taken)
                running[number] = start(path, slot, gpus)
            look()
            time.sleep(_LOOK_EVERY)
            for number, member in list(running.items()):
                if member.process.poll() is not None:
                    del running[number]
                    ended[number] = verdict(member)
                    told(member.path, ended[number])
            if came and not told_to_stop:
                told_to_stop = True
                for member in running.values():
                    member.process.terminate()
            if signals is INTERACTIVE and len(came) > len(set(came)):
                _end(list(running.values()))
                raise Stopped(came[-1], "ended at once; runs go on from their last checkpoints")
    if came:
        raise Stopped(came[0])
    return ended


def start(path: Path, slot: int = 0, gpus: Sequence[str] = ()) -> Member:
    """Start a worker; what it says besides its progress goes to the run's `train.log`.

    Of several GPUs it sees one, by its slot in turn.
    """
    log = RunDirectory(path).log_path
    environment = os.environ | {PARENT: str(os.getpid())}
    if len(gpus) > 1:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    with open(log, "ab") as errors:
        process = subprocess.Popen(
            # -P: a user's queue.py lies where the command was typed, and would come first
            [sys.executable, "-P", "-m", "rigor.launch.worker", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # its progress, which the log has too
            stderr=errors,
            env=environment,
            process_group=0,  # Ctrl-C comes from us alone, once
        )
        return Member(path, process, errors.tell(), slot)


def verdict(member: Member) -> Exception | None:
    """Return how an ended worker's run ended: None when done, else why it is not."""
    code = member.process.returncode
    if code == 0:
        return None
    log = RunDirectory(member.path).log_path
    if code < 0:
        return RunFailed(f"killed by {signal.Signals(-code).name}; see {log}")
    reason = _last_words(log, member.log_start) or f"its worker ended with code {code}; see {log}"
    return UserError(reason) if code == 2 else RunFailed(reason)


def _last_words(log: Path, start: int) -> str:
    """Return the reason that a worker gave in its run's log."""
    with open(log, "rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    said = [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]
    return said[-1] if said else ""


@contextmanager
def _caught(signals: Sequence[int]) -> Iterator[list[int]]:
    """Collect signals inside the block, and put the old handlers back."""
    came: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(members: Sequence[Member]) -> None:
    """Give workers a moment to save, then kill those that are left."""
    deadline = time.monotonic() + _LAST_WORDS
    while time.monotonic() < deadline and any(m.process.poll() is None for m in members):
        time.sleep(_LOOK_EVERY)
    for member in members:
        member.process.kill()
        member.process.wait()
