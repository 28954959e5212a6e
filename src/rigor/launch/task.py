"""The program of one SLURM task: several runs at once, each in a worker process.

On SIGUSR2 (the time limit is near) and SIGTERM (preemption) the runs save. Then the task requeues
itself, as often as needed, and the runs resume in the same directories.
"""

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rigor.errors import STOPS, RunFailed, Stopped, UserError
from rigor.launch.execute import may_run_here, task_id
from rigor.launch.mps import processes_share_gpus
from rigor.launch.pool import run_pool
from rigor.runs.directory import RunDirectory, shown


def run_task(paths: Sequence[str], mps: bool = False) -> None:
    """Run all unfinished runs of some queued ones at once.

    Args:
      paths: directories of the runs. mps: whether those on one GPU use it at the same time.

    Raises:
      RunFailed: a run failed; the task is then FAILED in SLURM too. The other runs have ended.
      SystemExit: the runs have saved; the task is requeued unless SLURM is ending it.
    """
    runs = [RunDirectory(path) for path in paths]
    gone = [run for run in runs if not run.path.is_dir()]
    # a run that failed before this task was requeued stays failed until a retry
    ended = ("done", "failed")
    unfinished = [run for run in runs if run not in gone and run.state() not in ended]
    left = [run for run in unfinished if may_run_here(run)]
    for run in unfinished:
        if run not in left:
            print(f"{run.path}: another process runs there; left to it", flush=True)
    for run in left:
        run.write_status("queued")
    try:
        with processes_share_gpus(mps):
            n = max(1, len(left))
            errors = run_pool([run.path for run in left], n, _print_end, patient=True)
    except UserError as error:  # of MPS, before a run starts
        for run in left:
            run.write_status("failed", error=str(error))
        raise
    except Stopped as stopped:
        for number in STOPS:  # requeueing sends them to this process, which has nothing to save
            signal.signal(number, signal.SIG_IGN)
        sys.exit(_requeue(task_id() or "", stopped.signal))
    failures = [str(error) for error in errors if error]
    failures += [f"{run.path}: its directory is gone" for run in gone]
    failures += [
        f"{run.path}: failed before" for run in runs if run not in left and run.state() == "failed"
    ]
    if failures:
        raise RunFailed(f"{len(failures)} of {len(paths)} runs failed: {'; '.join(failures)}")


def _requeue(task_id: str, number: int) -> str:
    """Requeue this task where that is possible, and return the last line for its log.

    Only a running task is requeued: SLURM also sends SIGTERM when a user cancels a task for good.
    """
    reason = f"stopped by {signal.Signals(number).name}, saved"
    shown = _scontrol("show", "job", "--oneliner", task_id).stdout
    found = re.search(r"JobState=(\S+)", shown)
    state = found.group(1) if found else "unknown"
    if state not in ("RUNNING", "unknown"):
        return f"{reason}; SLURM is ending the job ({state}), so it is not requeued"
    if " Requeue=0 " in shown:
        refused = "requeueing is not allowed"
    else:
        refused = " ".join(_scontrol("requeue", task_id).stderr.split())
    if refused:
        return f"{reason}, but not requeued ({refused}); rigor-sweep retry resumes the runs"
    return f"{reason} and requeued"


def _scontrol(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the result of scontrol, which a container may not have."""
    command = ["scontrol", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"scontrol: {error.strerror}")


def _print_end(path: Path, error: Exception | None) -> None:
    print(f"{shown(RunDirectory(path).state())}: {path}{f': {error}' if error else ''}", flush=True)
