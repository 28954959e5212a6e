"""How a run ends other than well."""


class UserError(Exception):
    """A mistake in what the user typed: one line that names the key, the value and the way out.

    The entry point prints the line without a traceback and exits with code 2.
    """


class RunFailed(Exception):
    """A run failed by our fault; its traceback stands in its `train.log`. Exit code 1."""


class Stopped(BaseException):
    """A run was asked to stop. No error, so no `except Exception` sees it.

    signal: the one that asked. message: what has become of the work.
    """

    def __init__(
        self, signal: int, message: str = "stopped and saved; the same command goes on from here"
    ) -> None:
        super().__init__(message)
        self.signal = signal
