"""`python -m rigor.launch.worker RUN_DIRECTORY`: one queued run, from what lies in its directory.

What launches runs elsewhere than in its own process starts this. Exit codes are those of
`rigor-train`: 0 done, 2 the user's mistake, 1 ours, 128 + the signal that stopped it. A run that is
done is skipped, and one that a live process runs is refused. The worker is asked to stop when the
process that started it dies, and does not begin when that has happened already. It hears of one
stop from several sides, so no number of signals makes it end before it has saved; whoever cannot
wait kills it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

from rigor.launch.process import one_thread

SAYS = "rigor-worker: "
"""How the line begins that says why a worker ended with a code that is not 0."""

PARENT = "RIGOR_WORKER_PARENT"
"""The variable with the process that started a worker; one that is started by hand has none."""

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def main() -> None:
    """Run the command line and exit with its code."""
    one_thread()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    parent = os.environ.pop(PARENT, None)
    if parent is not None and os.getppid() != int(parent):
        sys.exit(128 + signal.SIGTERM)  # it has died before we could ask to hear of it
    # SLURM's warning of a time limit goes to every process of a job, the one that started us too
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    code, line = 0, ""
    try:
        code, line = work(sys.argv[1:])
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    if line:
        print(f"{SAYS}{' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


def work(arguments: list[str]) -> tuple[int, str]:
    """Run the run in the one directory that `arguments` name; return exit code and reason."""
    # here, where a signal during the imports ends in a code and not in a traceback
    from rigor.errors import RunFailed, Stopped, UserError
    from rigor.execute import run
    from rigor.launch.job import cwd_of, taken_up
    from rigor.tracking.rundir import RunDirectory

    try:
        if len(arguments) != 1:
            raise UserError("takes one run directory")
        path = Path(arguments[0])
        if RunDirectory(path).is_locked():  # perhaps by one that no sweep has queued
            raise UserError(f"{path}: another process runs there; wait for it, or end it")
        path = _go_to(cwd_of(path), path)
        try:
            job, sweep = taken_up(path)
        except Exception as error:
            RunDirectory(path).write_status("failed", error=f"{type(error).__name__}: {error}")
            raise
        run(job, sweep, patient=True)
    except UserError as error:
        return 2, str(error)
    except RunFailed as error:
        return 1, str(error)
    except Stopped as stopped:
        return 128 + stopped.signal, str(stopped)
    return 0, ""


def _go_to(where: Path, path: Path) -> Path:
    """Go to where the command was typed, and return `path` as it is called from there.

    A user's modules are found there, and relative paths in the config count from there.
    """
    from rigor.errors import UserError

    if where != Path.cwd():
        path = path.absolute()
        try:
            os.chdir(where)
        except OSError as error:
            raise UserError(
                f"{where}: {(error.strerror or '').lower()}; the command that queued {path} was "
                "typed there: start it again where rigor should run"
            ) from error
    sys.path.append(str(where))
    return path


if __name__ == "__main__":
    main()
