"""`rigor-sweep`: see how the runs of a sweep stand, and run again what did not end well.

Exit codes: as `rigor-train`'s; of `status` 0, or 2 for the user's mistake.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rigor.errors import Stopped, UserError
from rigor.launch import board, local, sweep
from rigor.launch.job import cwd_of
from rigor.launch.sweep import Manifest, SweepFailed
from rigor.tracking.lock import Lock
from rigor.tracking.rundir import RunDirectory

HELP = """\
rigor-sweep: see how the runs of a sweep stand, and run again what did not end well.

  rigor-sweep status DIR    how far every run is; live on a terminal
  rigor-sweep retry DIR     run the failed, lost, preempted and never started ones (again)

DIR is the sweep's directory, OUT/sweeps/NAME, which rigor-train prints. The same rigor-train
command goes on with a sweep as well; a retry composes nothing and starts it as it was started.
"""

RETRIED = ("failed", "lost", "preempted", "queued")
"""The states that a retry runs again."""


def main() -> None:
    """Run the command line and exit with its code."""
    code, line = 0, ""
    try:
        run(sys.argv[1:])
    except UserError as error:
        code, line = 2, str(error)
    except SweepFailed as error:
        code, line = error.code, str(error)
    except BrokenPipeError:
        code = 1  # whoever read our output, such as `head`, has gone
    except Stopped as stopped:
        code, line = 128 + stopped.signal, str(stopped)
    except KeyboardInterrupt:
        code = 130
    if line:
        print(f"rigor-sweep: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


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
    if len(rest) != 1:
        raise UserError(f"{name}: takes one directory, OUT/sweeps/NAME")
    directory = Path(rest[0]).expanduser()
    COMMANDS[name](directory, sweep.read_manifest(directory))


def status(directory: Path, manifest: Manifest) -> None:
    """Show how far every run is."""
    watch = board.Watch(manifest.runs)
    board.show(watch.read, directory.name)
    idle = not Lock(directory).is_held()
    left = [one for one in watch.read() if one.state in RETRIED]
    if idle and left:
        print(f"nobody works on this sweep: rigor-sweep retry {directory} goes on with {len(left)}")


def retry(directory: Path, manifest: Manifest) -> None:
    """Run what is not done again, as the sweep was started.

    Raises:
      UserError: somebody works on the sweep. SweepFailed: some failed again.
    """
    with sweep.claimed(directory):
        left = [path for path in manifest.runs if RunDirectory(path).state() in RETRIED]
        if not left:
            print(f"nothing to retry: {board.totals(board.Watch(manifest.runs).read())}")
            return
        for path in left:
            cwd_of(path)  # refuses what a worker cannot run
            RunDirectory(path).write_status("queued")
        errors: list[Exception | None] = []
        # a serial sweep ran one at a time
        n_jobs = 1 if manifest.launcher["name"] == "basic" else manifest.launcher["n_jobs"]
        try:
            errors = local.run_here(directory.name, left, n_jobs)
        finally:
            sweep.summarise(manifest.runs, directory)
        sweep.raise_failures(errors)


COMMANDS: dict[str, Callable[[Path, Manifest], None]] = {"status": status, "retry": retry}


if __name__ == "__main__":
    main()
