"""`rigor-sync`: upload runs that W&B mirrored offline; what is uploaded is never uploaded again.

Exit codes: 0 done, 2 the user's mistake or no way to W&B, 1 some runs were refused.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rigor.errors import RunFailed, UserError
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
    code, line = 0, ""
    try:
        run(sys.argv[1:])
    except UserError as error:
        code, line = 2, str(error)
    except RunFailed as error:
        code, line = 1, str(error)
    except KeyboardInterrupt:
        code, line = 128 + signal.SIGINT, f"stopped; {_KEPT}"
    if line:
        print(f"rigor-sync: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


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
        left = [file for file in files if not _is_synced(file)]
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
        place = _upload(waiting)
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
        places, other = set(), ""
        for line in _wandb_sync([file for files in waiting.values() for file in files], after):
            if found := re.search(r" at (https?://\S+)/runs/", line):
                places.add(found[1])
            elif finished := re.search(r"Finished syncing (.*)", line):
                print(f"uploaded {_run_of(Path(finished[1]), waiting)}", flush=True)
            else:
                other = line
    failed = [path for path, files in waiting.items() if not all(map(_is_synced, files))]
    if failed:
        raise RunFailed(
            f"{len(failed)} of {len(waiting)} runs did not reach W&B ({other}), the first "
            f"{failed[0]}; {_KEPT}"
        )
    return ", ".join(sorted(places))


def _wandb_sync(files: Sequence[Path], after: ExitStack) -> Iterator[str]:
    """Run `wandb sync` and yield what it says, line by line."""
    folder = after.enter_context(tempfile.TemporaryDirectory())  # for its logs
    kept = {key: value for key, value in os.environ.items() if key != "WANDB_MODE"}
    process = after.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "wandb", "sync", "--verbose", *map(str, files)],
            env=kept | {"WANDB_DIR": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    )
    after.callback(process.terminate)  # if we are stopped first; it is over otherwise
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip().removeprefix("wandb: ")


def _run_of(place: Path, waiting: dict[Path, list[Path]]) -> str:
    """Return the name of the run whose file or folder W&B speaks of."""
    names = {path.name for path in waiting}
    return next((part for part in place.parts if part in names), place.name)


def _is_synced(file: Path) -> bool:
    """Tell whether W&B has left its mark that the file is uploaded."""
    return file.with_suffix(".wandb.synced").exists()


if __name__ == "__main__":
    main()
