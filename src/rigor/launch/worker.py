"""`python -m rigor.launch.worker RUN_DIRECTORY`: execute one queued run from its directory.

Launchers start this process for each run. Its exit codes are those of `rigor-train`: 0 done, 2 a
mistake of the user, 1 a bug, 128 + the signal that stopped it. A finished run is skipped, and a run
of another live process is refused, unless it was queued from it or that process is of an earlier
start of this SLURM task. The worker stops when the process that started it dies, and does not start
if that process is already dead. A worker can receive several signals for a single stop, so no
number of signals makes it end before it has saved; only SIGKILL does.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

ERROR_PREFIX = "rigor-worker: "
"""The start of the line that explains an exit code other than 0."""

PARENT = "RIGOR_WORKER_PARENT"
"""The environment variable with the id of the process that started a worker, if any."""

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)


def prepare_environment() -> None:
    """Set variables of this process and its children that the user has not set: one thread.

    Call this before torch is imported. On a busy machine a process with two threads is slower than
    with one, and threads that spin while they wait occupy the core of another run. GPUs are also
    numbered as `nvidia-smi` numbers them, where CUDA would put the fastest first.
    """
    for name, value in (
        ("OMP_NUM_THREADS", "1"),
        ("OMP_WAIT_POLICY", "passive"),
        ("TORCHINDUCTOR_COMPILE_THREADS", "1"),  # the compiler starts one thread for each core
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ):
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line and exit with its code."""
    prepare_environment()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    parent = os.environ.pop(PARENT, None)
    if parent is not None and os.getppid() != int(parent):
        sys.exit(128 + signal.SIGTERM)  # it died before the call above
    code, line = 0, ""
    try:
        code, line = execute_queued(sys.argv[1:])
    except KeyboardInterrupt:
        code, line = 130, "interrupted"
    if line:
        print(f"{ERROR_PREFIX}{' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


def execute_queued(arguments: list[str]) -> tuple[int, str]:
    """Execute the run in the directory that `arguments` name; return the exit code and reason."""
    # imported here, so that a signal during the imports ends in an exit code, not a traceback
    from rigor.errors import RunFailed, Stopped, UserError
    from rigor.launch.execute import may_run_here, run
    from rigor.runs.directory import RunDirectory
    from rigor.runs.job import cwd_of, stored_job

    try:
        if len(arguments) != 1:
            raise UserError("name one run directory")
        path = Path(arguments[0])
        if not may_run_here(RunDirectory(path)):
            raise UserError(f"{path}: another process runs there; wait for it or end it")
        path = _change_directory(cwd_of(path), path)
        try:
            job = stored_job(path)
        except Exception as error:
            RunDirectory(path).write_status("failed", error=f"{type(error).__name__}: {error}")
            raise
        run(job, job.config.sweep, patient=True)
    except UserError as error:
        return 2, str(error)
    except RunFailed as error:
        return 1, str(error)
    except Stopped as stopped:
        return 128 + stopped.signal, str(stopped)
    return 0, ""


def _change_directory(where: Path, path: Path) -> Path:
    """Change to the directory of the user's command, and return `path` as seen from there.

    The user's modules are imported from there, and paths in the config are relative to it.
    """
    from rigor.errors import UserError

    if where != Path.cwd():
        path = path.absolute()
        try:
            os.chdir(where)
        except OSError as error:
            raise UserError(
                f"{where}: {(error.strerror or '').lower()}; the command that queued {path} was "
                "typed there: type it again in another directory"
            ) from error
    sys.path.append(str(where))
    return path


if __name__ == "__main__":
    main()
