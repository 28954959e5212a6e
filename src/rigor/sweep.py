"""`rigor-sweep`: see how the runs of a sweep stand, run them again, stop them, read their logs.

Exit codes: 0 done, 2 the user's mistake, and of `retry` as `rigor-train`'s.
"""

import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from rigor import command
from rigor.errors import UserError
from rigor.launch import board, local, slurm, sweep, witness
from rigor.launch.board import Standing
from rigor.launch.job import cwd_of
from rigor.launch.sweep import Manifest
from rigor.tracking.lock import Lock
from rigor.tracking.rundir import RunDirectory

HELP = """\
rigor-sweep: see how the runs of a sweep stand, run them again, stop them, read their logs.

  rigor-sweep status DIR         how far every run is; live on a terminal
  rigor-sweep retry DIR          run again what failed, got lost or was stopped
  rigor-sweep cancel DIR [RUN]   stop every run, or one; they save and can be gone on with
  rigor-sweep logs DIR [RUN]     the end of the log of what went wrong, or of one run

DIR is the sweep's directory, OUT/sweeps/NAME, which rigor-train prints. RUN is a run's name, or a
part of it that no other has. A retry composes nothing and starts runs as the sweep was started; the
same rigor-train command goes on with a sweep as well.
"""

RETRIED = ("failed", "lost", "preempted", "queued")
"""The states that a retry runs again; of those in SLURM's hands, the ones it does not know."""

_LAST_LINES = 20  # of a log


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-sweep", run)


def run(arguments: Sequence[str]) -> None:
    """Do what the command line asks.

    Raises:
      UserError: a word or a directory that does not fit.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP, end="")
        return
    if not arguments:
        raise UserError(f"which command? choose one of {', '.join(COMMANDS)}")
    name, *rest = arguments
    if name not in COMMANDS:
        raise UserError(f"{name}: no such command; choose one of {', '.join(COMMANDS)}")
    most = 2 if name in ("cancel", "logs") else 1
    if not 1 <= len(rest) <= most:
        raise UserError(f"{name}: takes DIR{' [RUN]' if most == 2 else ''}, see rigor-sweep --help")
    directory = Path(rest[0]).expanduser()
    manifest = sweep.read_manifest(directory)
    numbers = [_number(manifest, rest[1])] if rest[1:] else []
    COMMANDS[name](directory, manifest, numbers)


def status(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Show how far every run is."""
    read = reader(directory, manifest)

    def moves(found: list[Standing]) -> bool:
        # what is queued moves where SLURM or a live process has it
        has_queue = _on_slurm(manifest) or _is_worked_on(directory, found)
        return any(one.state == "running" or (has_queue and one.state == "queued") for one in found)

    board.show(read, directory.name, moves)
    found = read()
    left = [one for one in found if one.state in RETRIED]
    if _on_slurm(manifest):
        if witness.queue(manifest) is None:
            print("SLURM does not answer: what is queued may be lost")
        left = [one for one in left if one.state != "queued"]
    elif _is_worked_on(directory, found):
        left = []
    if left:
        print(f"nobody works on {len(left)} of them: rigor-sweep retry {directory}")


def retry(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Run what is not done and in nobody's hands again, as the sweep was started.

    Raises:
      UserError: somebody works on the sweep. SweepFailed: some failed again.
    """
    with sweep.claimed(directory):
        manifest = sweep.read_manifest(directory)  # as whoever worked on it last has left it
        found = reader(directory, manifest)()
        left = [i for i, one in enumerate(found) if one.state in RETRIED]
        if _on_slurm(manifest):
            there = witness.queue(manifest)
            if there is None:
                raise UserError("squeue does not answer; is the cluster up?")
            left = [i for i in left if i not in there]
        if not left:
            print(f"nothing to retry: {board.totals(found)}")
            return
        for i in left:
            cwd_of(manifest.runs[i])  # refuses what a worker cannot run
            RunDirectory(manifest.runs[i]).write_status("queued")
        if _on_slurm(manifest):
            print(slurm.submit(directory, manifest, left, slurm.cluster_of(manifest)))
            return
        errors: list[Exception | None] = []
        # a serial sweep ran one at a time
        n_jobs = 1 if manifest.launcher["name"] == "basic" else manifest.launcher["n_jobs"]
        try:
            errors = local.run_here(directory.name, [manifest.runs[i] for i in left], n_jobs)
        finally:
            sweep.summarise(manifest.runs, directory)
        sweep.raise_failures(errors)


def cancel(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Stop every run, or one: it saves and ends; on SLURM the task's other runs end with it.

    Raises:
      UserError: what is to be stopped runs on another machine, or nothing runs.
    """
    if _on_slurm(manifest):
        jobs = witness.cancel(manifest, numbers or range(len(manifest.runs)))
        if not jobs:
            raise UserError(f"{directory}: SLURM has no task of it")
        print(f"cancelled: {', '.join(jobs)}")
        return
    # the process that works on the sweep passes it on
    place = manifest.runs[numbers[0]] if numbers else directory
    lock = Lock(place)
    held = lock.is_held()
    if held is False:
        raise UserError(f"{place}: no process runs there")
    pid, host = lock.holder()
    if host != socket.gethostname():
        raise UserError(f"{place}: runs on {host}; cancel it there")
    if held is None:  # the number may be another process's by now
        raise UserError(
            f"{place}: this file system has no locks, so nobody knows whether process {pid} still "
            f"runs there; if it does, kill {pid}"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise UserError(f"{place}: process {pid} cannot be told to end ({reason})") from error
    print(f"told process {pid} to save and end")


def logs(directory: Path, manifest: Manifest, numbers: list[int]) -> None:
    """Print the end of the log of one run, or of every run that went wrong."""
    found = reader(directory, manifest)()
    chosen = [found[i] for i in numbers] or [one for one in found if one.state in RETRIED[:3]]
    if not chosen:
        print(f"nothing went wrong: {board.totals(found)}")
    for one in chosen:
        print(f"==> {one.log} ({one.state}{f': {one.error}' if one.error else ''})")
        if one.log.exists():
            lines = one.log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-_LAST_LINES:]))
        for log in witness.logs(directory, manifest, manifest.runs.index(one.path)):
            print(f"    SLURM's: {log}")


def reader(directory: Path, manifest: Manifest) -> Callable[[], list[Standing]]:
    """Return a function that reads where the runs stand."""
    return witness.standings(directory) if _on_slurm(manifest) else board.Watch(manifest.runs).read


def _is_worked_on(directory: Path, found: Sequence[Standing]) -> bool:
    """Tell whether a process works on a sweep: by its lock, or else by its runs."""
    held = Lock(directory).is_held()
    return any(one.state == "running" for one in found) if held is None else held


def _on_slurm(manifest: Manifest) -> bool:
    return bool(manifest.launcher["name"] == "slurm")


def _number(manifest: Manifest, run: str) -> int:
    """Return the place of the run of this name, or with this part in it."""
    name = Path(run).name
    fits = [i for i, path in enumerate(manifest.runs) if name in path.name]
    exact = [i for i in fits if manifest.runs[i].name == name]
    if len(exact or fits) != 1:
        what = f"{len(fits)} runs have that in their names" if fits else "no run of the sweep"
        raise UserError(f"{run}: {what}; names are in rigor-sweep status")
    return (exact or fits)[0]


COMMANDS: dict[str, Callable[[Path, Manifest, list[int]], None]] = {
    "status": status,
    "retry": retry,
    "cancel": cancel,
    "logs": logs,
}


if __name__ == "__main__":
    main()
