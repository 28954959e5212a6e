"""`rigor-sync`: upload runs that W&B mirrored offline; what is uploaded is never uploaded again.

Exit codes: 0 done, 2 the user's mistake or no way to W&B, 1 some runs were refused.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rigor import command
from rigor.errors import RunFailed, Stopped, UserError
from rigor.report.runs import find
from rigor.tracking.lock import Lock
from rigor.tracking.rundir import RunDirectory
from rigor.tracking.wandb_login import refuse_no_way

HELP = """\
rigor-sync: upload to W&B what was mirrored offline.

  rigor-sync DIR...    of a sweep (OUT/sweeps/NAME), of runs (out=DIR), or a run

Repeat it as you like: only what is new goes up, and a run that was stopped and
went on is one run in W&B, too. Runs that are still at work are left for the
next time. It needs a key (`wandb login`, or WANDB_API_KEY); WANDB_ENTITY and
WANDB_BASE_URL say where to.
"""

_KEPT = "nothing is lost, the same command uploads them later"


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-sync", run)


def run(arguments: Sequence[str]) -> None:
    """Do what the command line asks, and print how the runs stand.

    Raises:
      UserError: an argument does not fit, there is no key, or W&B does not answer.
      RunFailed: W&B took some runs only.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP, end="")
        return
    flags = [one for one in arguments if one.startswith("-")]
    if flags or not arguments:
        raise UserError(f"{flags[0]}: no such option" if flags else "which runs? rigor-sync DIR...")
    waiting: dict[Path, list[Path]] = {}
    counts = dict.fromkeys(("uploaded before", "still at work", "never mirrored"), 0)
    for path in find([Path(one).expanduser() for one in arguments]):
        files = sorted((path / "wandb").glob("offline-run-*/*.wandb"))
        left = _unsynced(files)
        if left and RunDirectory(path).is_locked():
            counts["still at work"] += 1
        elif left:
            waiting[path] = left
        else:
            counts["uploaded before" if files else "never mirrored"] += 1
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if waiting:
        waits = "1 run waits" if len(waiting) == 1 else f"{len(waiting)} runs wait"
        refuse_no_way(f"{waits}, {_KEPT}")
        try:
            place = _upload(waiting)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT, f"stopped; {_KEPT}") from None
        told = f"{len(waiting)} uploaded{place and f' to {place}'}{told and f', {told}'}"
    print(told)


def _upload(waiting: dict[Path, list[Path]]) -> str:
    """Upload with `wandb sync`, a line a run, and return the address of their project.

    Raises:
      UserError: another rigor-sync uploads one of them. RunFailed: W&B took some runs only.
    """
    with ExitStack() as after:
        for path in waiting:
            lock = Lock(path / "wandb")
            lock.acquire()
            after.callback(lock.release)
        places: set[str] = set()
        told: set[str] = set()
        problem, again = "", True
        while again and (files := [one for left in waiting.values() for one in _unsynced(left)]):
            again = False
            for line in _wandb_sync(files):
                problem = line
                if found := re.search(r" at (https?://\S+)/runs/", line):
                    places.add(found[1])
                for file in _torn(line, files):
                    _mark(file).touch()
                    again = True  # W&B stopped there, before the later starts of the run
                name = _finished(line, waiting)
                if name and name not in told:  # a resumed run has several starts
                    print(f"uploaded {name}", flush=True)
                    told.add(name)
    failed = [path for path, files in waiting.items() if _unsynced(files)]
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(waiting)} runs did not reach W&B ({problem}), the first "
            f"{failed[0]}; {_KEPT}"
        )
    return ", ".join(sorted(places))


def _wandb_sync(files: Sequence[Path]) -> Iterator[str]:
    """Run `wandb sync` and yield what it says, line by line."""
    kept = {key: value for key, value in os.environ.items() if key != "WANDB_MODE"}
    with ExitStack() as after:
        folder = after.enter_context(tempfile.TemporaryDirectory())  # for its logs
        process = subprocess.Popen(
            [sys.executable, "-m", "wandb", "sync", "--verbose", *map(str, files)],
            env=kept | {"WANDB_DIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        after.enter_context(process)
        after.callback(process.terminate)  # if we are stopped first; it is over otherwise
        assert process.stdout is not None
        for line in process.stdout:
            yield line.strip().removeprefix("wandb: ")


def _finished(line: str, waiting: Iterable[Path]) -> str | None:
    """Return the name of the run of which W&B says in this line that a start of it is uploaded."""
    found = re.search(r"Finished syncing (.*)", line)
    parts = Path(found[1]).parts if found else ()
    return next((path.name for path in waiting if path.name in parts), None)


def _torn(line: str, files: Sequence[Path]) -> list[Path]:
    """Return the files of which W&B says in this line that only half a row at the end is not up.

    A killed process leaves such a file. W&B gives it no mark: it could still be written.
    """
    found = re.search(r'all data from "(.*?)": .* incomplete record', line)
    return [file for file in files if found and file.parent.name in found[1]]


def _unsynced(files: Sequence[Path]) -> list[Path]:
    """Return the files without the mark that they are uploaded."""
    return [file for file in files if not _mark(file).exists()]


def _mark(file: Path) -> Path:
    """Return the mark that W&B leaves beside an uploaded file."""
    return file.with_suffix(".wandb.synced")


if __name__ == "__main__":
    main()
