"""Exceptions that end a run, and the signals that do."""

import signal

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
"""The signals at which a run saves and ends: Ctrl-C, preemption, and the warning of a time limit
that `sbatch --signal=USR2@90` asks for."""


class UserError(Exception):
    """A mistake in the command: one line that names the key, the value and the way out.

    The command prints this line without a traceback and exits with code 2.
    """


class RunFailed(Exception):
    """A run failed because of a bug; its traceback is in its `train.log`. Exit code 1."""


class Stopped(BaseException):
    """A run was asked to stop; no Exception, so that no `except Exception` catches it.

    Attributes:
      signal: number of the signal that asked.
      message: the line for the user, which says whether the work is saved.
    """

    def __init__(
        self, number: int, message: str = "stopped and saved; the same command resumes the run"
    ) -> None:
        super().__init__(message)
        self.signal = number
