"""`rigor-sync`: upload the offline W&B files of runs, each only once.

Exit codes: 0 done, 2 a mistake of the user or no connection to W&B, 1 some uploads failed.
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

from rigor.cli import command
from rigor.errors import RunFailed, Stopped, UserError
from rigor.report.data.runs import find
from rigor.runs.directory import RunDirectory
from rigor.runs.lock import Lock
from rigor.runs.wandb_login import require_connection
from rigor.runs.wandb_record import MirrorRecord
from rigor.runs.wandb_sink import mirror_again

HELP = """\
rigor-sync: upload the W&B files that runs wrote offline.

  rigor-sync DIR...    directories of a sweep (OUT/sweeps/NAME), of several runs
                       (out=DIR), or of one run

Only new files are uploaded, so the command can be repeated. A run that was
stopped and resumed is one run in W&B. If a run was killed, its rows are sent
again from metrics.csv. Active runs are left for the next time.
The command needs a key (`wandb login`, or WANDB_API_KEY); WANDB_ENTITY and
WANDB_BASE_URL name the destination.
"""

_HEADER = 7  # bytes of a W&B file before its first record

_LATER = "no data is lost; repeat the command to upload the rest"


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-sync", run)


def run(arguments: Sequence[str]) -> None:
    """Upload the runs of the directories, and print how many runs are uploaded.

    Raises:
      UserError: an argument is wrong, there is no key, or W&B does not answer.
      RunFailed: some uploads failed.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP, end="")
        return
    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags or not arguments:
        raise UserError(
            f"{flags[0]}: no such option" if flags else "no directory named: rigor-sync DIR..."
        )
    pending: dict[Path, list[Path]] = {}
    killed: list[Path] = []
    labels = (
        "already uploaded",
        "still active",
        "killed before the first row",
        "without W&B files",
    )
    counts = dict.fromkeys(labels, 0)
    for path in find([Path(argument).expanduser() for argument in arguments]):
        files = _files(path)
        left, again = _unsynced(files), _is_incomplete(path)
        whole = [file for file in left if not _is_empty(file)]
        if (left or again) and RunDirectory(path).is_locked():
            counts["still active"] += 1
        elif whole or again:
            pending[path] = whole
            killed += [path] if again else []
        elif left:
            counts["killed before the first row"] += 1
        else:
            counts["already uploaded" if files else "without W&B files"] += 1
    summary = ", ".join(f"{count} {label}" for label, count in counts.items() if count)
    if pending:
        runs = "1 run is" if len(pending) == 1 else f"{len(pending)} runs are"
        require_connection(f"{runs} not uploaded; {_LATER}")
        try:
            for path in killed:
                mirror_again(path)
                print(f"{path.name}: was killed, so its rows are sent from metrics.csv", flush=True)
                pending[path] = [file for file in _unsynced(_files(path)) if not _is_empty(file)]
            place = _upload(pending)
        except KeyboardInterrupt:
            raise Stopped(signal.SIGINT, f"stopped; {_LATER}") from None
        summary = f"{len(pending)} uploaded{place and f' to {place}'}{summary and f', {summary}'}"
    print(summary)


def _files(path: Path) -> list[Path]:
    """Return the offline files of a run, oldest first."""
    return sorted((path / "wandb").glob("offline-run-*/*.wandb"))


def _is_incomplete(path: Path) -> bool:
    """Return whether W&B may lack rows of an offline run, because it was killed."""
    record = MirrorRecord.read(path)
    if record is None or record.mode != "offline":
        return False
    return record.lacks_rows(RunDirectory(path).metrics_path)


def _is_empty(file: Path) -> bool:
    """Return whether a file has no record; `wandb sync` would stop there, before other files."""
    return file.stat().st_size <= _HEADER


def _upload(pending: dict[Path, list[Path]]) -> str:
    """Upload with `wandb sync`, printing a line for each run; return the project's address.

    Raises:
      UserError: another rigor-sync uploads one of the runs. RunFailed: some uploads failed.
    """
    with ExitStack() as after:
        for path in pending:
            lock = Lock(path / "wandb")
            lock.acquire()
            after.callback(lock.release)
        places: set[str] = set()
        reported: set[str] = set()
        broken: set[Path] = set()
        last_line, again = "", True
        while again and (
            files := [f for left in pending.values() for f in _unsynced(left) if f not in broken]
        ):
            again = False
            for line in _wandb_sync(files):
                last_line = line
                for file in _unreadable(line, files):
                    print(f"{file.parent}: {line.removeprefix('ERROR ')}; left out", flush=True)
                    broken.add(file)
                    again = True  # W&B stopped here, before it read the other files
                if found := re.search(r" at (https?://\S+)/runs/", line):
                    places.add(found[1])
                for file in _torn(line, files):
                    _mark(file).touch()
                    again = True  # W&B stopped here, before the files of later sessions
                name = _finished(line, pending)
                if name and name not in reported:  # a resumed run has several files
                    print(f"uploaded {name}", flush=True)
                    reported.add(name)
    failed = [path for path, files in pending.items() if _unsynced(files)]
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(pending)} runs were not uploaded ({last_line}), the first "
            f"{failed[0]}; {_LATER}"
        )
    return ", ".join(sorted(places))


def _wandb_sync(files: Sequence[Path]) -> Iterator[str]:
    """Run `wandb sync` and yield its output line by line."""
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
        after.callback(process.terminate)  # without effect if the process has ended
        assert process.stdout is not None
        for line in process.stdout:
            yield line.strip().removeprefix("wandb: ")


def _finished(line: str, pending: Iterable[Path]) -> str | None:
    """Return the name of the run if this line of W&B says that an upload ended, else None."""
    found = re.search(r"Finished syncing (.*)", line)
    parts = Path(found[1]).parts if found else ()
    return next((path.name for path in pending if path.name in parts), None)


def _torn(line: str, files: Sequence[Path]) -> list[Path]:
    """Return the files that, by this line of W&B, lack only an incomplete last record.

    A killed process leaves such a file. W&B does not mark it as uploaded, as it could still grow.
    """
    found = re.search(r'all data from "(.*?)": .* incomplete record', line)
    return [file for file in files if found and file.parent.name in found[1]]


def _unreadable(line: str, files: Sequence[Path]) -> list[Path]:
    """Return the files that W&B cannot read by this line of it."""
    found = re.search(r'Failed to read "(.*?)"', line)
    return [file for file in files if found and file.parent.name in found[1]]


def _unsynced(files: Sequence[Path]) -> list[Path]:
    """Return the files that are not marked as uploaded."""
    return [file for file in files if not _mark(file).exists()]


def _mark(file: Path) -> Path:
    """Return the path of the empty file that marks a file as uploaded, as W&B names it."""
    return file.with_suffix(".wandb.synced")


if __name__ == "__main__":
    main()
