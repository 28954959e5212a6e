"""`rigor-sweep`: show the status of a sweep's runs, retry or cancel them, print their logs.

Exit codes: 0 done, 2 a mistake of the user; `retry` has those of `rigor-train`.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rigor.cli import command
from rigor.errors import UserError
from rigor.launch import display, local, slurm, squeue, sweep
from rigor.launch.manifest import Manifest, read_manifest
from rigor.launch.status import RunStatus, StatusReader, totals
from rigor.runs.directory import RunDirectory, described
from rigor.runs.job import cwd_of
from rigor.runs.lock import Lock

HELP = """\
rigor-sweep: show the status of a sweep's runs, retry or cancel them, print their logs.

  rigor-sweep status DIR         progress of every run; updated live on a terminal
  rigor-sweep retry DIR          run failed, lost and stopped runs again
  rigor-sweep cancel DIR [RUN]   stop all runs, or one; they save and can be resumed
  rigor-sweep logs DIR [RUN]     the end of the logs of failed runs, or of one run

DIR is the sweep's directory OUT/sweeps/NAME, which rigor-train prints. RUN is the name of a run or
a unique part of it. A retry starts runs as the sweep did. The same rigor-train command also resumes
a sweep.
"""

RETRIED = ("failed", "lost", "preempted", "queued")
"""The states that a retry runs again, except queued runs that have a task in SLURM."""

_LAST_LINES = 20  # of a log


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-sweep", run)


def run(arguments: Sequence[str]) -> None:
    """Run the subcommand that the command line names.

    Raises:
      UserError: an argument or a directory is wrong.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP, end="")
        return
    if not arguments:
        raise UserError(f"no subcommand; choose one of {', '.join(COMMANDS)}")
    name, *rest = arguments
    if name not in COMMANDS:
        raise UserError(f"{name}: no such subcommand; choose one of {', '.join(COMMANDS)}")
    most = 2 if name in ("cancel", "logs") else 1
    if not 1 <= len(rest) <= most:
        raise UserError(f"{name}: takes DIR{' [RUN]' if most == 2 else ''}; see rigor-sweep --help")
    directory = Path(rest[0]).expanduser()
    manifest = read_manifest(directory)
    numbers = [_number(manifest, rest[1])] if rest[1:] else []
    COMMANDS[name](directory, manifest, numbers)


def status(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Show the progress of every run."""
    reader = reader_of(directory, manifest)

    def can_change(statuses: list[RunStatus]) -> bool:
        # queued runs can start if they are in SLURM's queue or a live process has them
        has_queue = manifest.on_slurm or _has_process(directory, statuses)
        states = {status.state for status in statuses}
        return "running" in states or (has_queue and "queued" in states)

    statuses = display.show(reader.read, directory.name, can_change)
    if reader.tasks is None:
        print("squeue does not answer: queued runs may be lost")
        left = [i for i in _unfinished(statuses) if statuses[i].state != "queued"]
    elif not manifest.on_slurm and _has_process(directory, statuses):
        left = []
    else:
        left = [i for i in _unfinished(statuses) if i not in reader.tasks]
    if left:
        command = f"rigor-sweep retry {directory}"
        print(f"{len(left)} unfinished without a process; to run again: {command}")
    if all(status.state == "done" for status in statuses):
        print(f"the results: rigor-report {directory}")
    _print_occupied(statuses, reader.tasks or {})


def _unfinished(statuses: Sequence[RunStatus]) -> list[int]:
    """Return the indices of the runs that are neither done nor running."""
    return [i for i, status in enumerate(statuses) if status.state in RETRIED]


def _print_occupied(statuses: Sequence[RunStatus], tasks: Mapping[int, squeue.Task]) -> None:
    """Print how many ended runs must wait for the other runs of their task before a retry."""
    ended = [i for i in _unfinished(statuses) if i in tasks and statuses[i].state != "queued"]
    if ended:
        print(
            f"{len(ended)} ended in a SLURM task whose other runs continue; they can be run again "
            "when it has ended"
        )


def retry(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Run unfinished runs that have no process again, as the sweep was started.

    Raises:
      UserError: another process works on the sweep. SweepFailed: some runs failed again.
    """
    with sweep.claimed(directory):
        manifest = read_manifest(directory)  # it may have changed until the lock was taken
        reader = reader_of(directory, manifest)
        statuses = reader.read()
        if reader.tasks is None:
            raise UserError("squeue does not answer; is the cluster up?")
        unfinished = [i for i in _unfinished(statuses) if i not in reader.tasks]
        if not unfinished:
            print(f"nothing to retry: {totals(statuses)}")
            _print_occupied(statuses, reader.tasks)
            return
        left, refused = _queue(manifest, unfinished)
        if not left:
            raise refused[0]
        if manifest.on_slurm:
            print(slurm.submit(directory, manifest, left, slurm.cluster_of(manifest)))
            sweep.raise_failures([*refused, *[None] * len(left)])
            return
        errors: list[Exception | None] = []
        # a sweep without a launcher ran one run at a time
        n_jobs = 1 if manifest.launcher["name"] == "basic" else manifest.launcher["n_jobs"]
        mps = manifest.launcher.get("mps", False)
        try:
            errors = local.run_queued(directory.name, [manifest.runs[i] for i in left], n_jobs, mps)
        finally:
            sweep.summarise(manifest.runs, directory)
        sweep.raise_failures([*refused, *errors])


def _queue(manifest: Manifest, numbers: Sequence[int]) -> tuple[list[int], list[UserError]]:
    """Queue some runs; return those that are queued, and an error for each of the others."""
    queued, refused = [], []
    for i in numbers:
        try:
            cwd_of(manifest.runs[i])  # refuses a run without a job.json, which a worker needs
            RunDirectory(manifest.runs[i]).write_status("queued")
            queued.append(i)
        except UserError as error:
            print(f"not retried: {error}")
            refused.append(error)
    return queued, refused


def cancel(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Stop every run, or one; they save and end. On SLURM, other runs of the task end too.

    Raises:
      UserError: nothing runs, or it runs on another machine.
    """
    if manifest.on_slurm:
        ids = squeue.cancel(manifest, numbers or range(len(manifest.runs)))
        if not ids:
            raise UserError(f"{directory}: SLURM has no task of this sweep")
        print(f"cancelled: {', '.join(ids)}")
        return
    # the process of the sweep passes the signal on to its workers
    place = manifest.runs[numbers[0]] if numbers else directory
    lock = Lock(place)
    held = lock.is_held()
    if held is False:
        raise UserError(f"{place}: no process runs there")
    pid, host = lock.holder()
    if host != socket.gethostname():
        raise UserError(f"{place}: runs on {host}; cancel it there")
    if held is None:  # the system may have given the number to another process
        raise UserError(
            f"{place}: this file system has no locks, so rigor cannot know whether process {pid} "
            f"still runs there; if it does, kill {pid}"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise UserError(f"{place}: no signal can be sent to process {pid} ({reason})") from error
    print(f"process {pid} will save and end")


def logs(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Print the end of the log of one run, or of every failed, lost or stopped run."""
    statuses = reader_of(directory, manifest).read()
    chosen = [statuses[i] for i in numbers] or [s for s in statuses if s.state in RETRIED[:3]]
    if not chosen:
        print(f"no run has failed: {totals(statuses)}")
    for status in chosen:
        print(f"==> {status.log} ({described(status.state, status.error)})")
        if status.log.exists():
            lines = status.log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-_LAST_LINES:]))
        for log in squeue.logs(directory, manifest, manifest.runs.index(status.path)):
            print(f"    SLURM's log: {log}")


def reader_of(directory: Path, manifest: Manifest) -> squeue.SweepReader | StatusReader:
    """Return the reader of the status of every run."""
    return squeue.SweepReader(directory) if manifest.on_slurm else StatusReader(manifest.runs)


def _has_process(directory: Path, statuses: Sequence[RunStatus]) -> bool:
    """Return whether a process works on a sweep, by its lock or, without locks, by its runs."""
    held = Lock(directory).is_held()
    return any(status.state == "running" for status in statuses) if held is None else held


def _number(manifest: Manifest, run: str) -> int:
    """Return the index of the run with this name, or with this part in its name."""
    name = Path(run).name
    matches = [i for i, path in enumerate(manifest.runs) if name in path.name]
    exact = [i for i in matches if manifest.runs[i].name == name]
    if len(exact or matches) != 1:
        reason = f"{len(matches)} runs match it" if matches else "no run of the sweep"
        raise UserError(f"{run}: {reason}; rigor-sweep status shows the names")
    return (exact or matches)[0]


COMMANDS: dict[str, Callable[[Path, Manifest, list[int]], None]] = {
    "status": status,
    "retry": retry,
    "cancel": cancel,
    "logs": logs,
}


if __name__ == "__main__":
    main()
