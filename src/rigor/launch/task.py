"""What runs in one SLURM task: several runs, each a worker process, beside each other.

SIGUSR2 (the time limit is near) and SIGTERM (preemption) make the runs save; then the task puts
itself back into SLURM's queue, however often, and goes on in the same directories.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rigor.errors import RunFailed, Stopped
from rigor.launch.pool import run_pool
from rigor.tracking.rundir import RunDirectory

SIGNALS = (signal.SIGUSR2, signal.SIGTERM)


def run_task(paths: Sequence[str]) -> None:
    """Run what is not done yet of some queued runs, all at once.

    Raises:
      RunFailed: a run failed, so that the task is FAILED in SLURM too; the others went on.
      SystemExit: the runs have saved, and the task is queued again unless SLURM is ending it.
    """
    runs = [RunDirectory(path) for path in paths]
    # what failed before this task was requeued stays failed; a retry queues it again
    ended = ("done", "failed")
    left = [run for run in runs if run.state() not in ended and run.is_locked() is not True]
    for run in left:
        run.write_status("queued")
    try:
        errors = run_pool([run.path for run in left], max(1, len(left)), told=_say, signals=SIGNALS)
    except Stopped as stopped:
        for number in SIGNALS:  # requeueing ends this process, which has nothing left to save
            signal.signal(number, signal.SIG_IGN)
        sys.exit(_requeue(_own_name(), stopped.signal))
    broken = [str(error) for error in errors if error]
    broken += [f"{run.path}: failed before" for run in runs if run not in left and _failed(run)]
    if broken:
        raise RunFailed(f"{len(broken)} of {len(paths)} runs failed: {'; '.join(broken)}")


def _own_name() -> str:
    """Return how SLURM calls this task: the plain number of one means the whole array."""
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ["SLURM_JOB_ID"]


def _requeue(job: str, number: int) -> str:
    """Put this task back into SLURM's queue, and return what is said last.

    Only a running job is: SLURM sends SIGTERM too when a user cancels it, which is for good.
    """
    asked = ["scontrol", "show", "job", "--oneliner", job]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = re.search(r"JobState=(\S+)", shown)
    state = found.group(1) if found else "unknown"
    why = f"stopped by {signal.Signals(number).name}, saved"
    if state != "RUNNING":
        return f"{why}; SLURM is ending the job ({state}), so it is not requeued"
    subprocess.run(["scontrol", "requeue", job], check=True)
    return f"{why} and requeued"


def _failed(run: RunDirectory) -> bool:
    return run.state() == "failed"


def _say(path: Path, error: Exception | None) -> None:
    print(f"{RunDirectory(path).state()}: {path}{f': {error}' if error else ''}", flush=True)
