"""What the commands beside `rigor-train` share: one line for a mistake, and an exit code."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from rigor.errors import RunFailed, Stopped, UserError


class Parser(argparse.ArgumentParser):
    """Raises a mistake in the arguments as a UserError, for `end_with` to say."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with argparse's message and where to read more."""
        raise UserError(f"{message}; see {self.prog} --help")


def end_with(name: str, run: Callable[[Sequence[str]], object]) -> NoReturn:
    """Run a command on the command line's arguments, and exit.

    A mistake is one line on standard error. Exit codes: 0 done, 1 our fault or a reader that has
    gone (`| head`), 2 the user's mistake, 128 + signal when stopped; a `code` of the error comes
    first.
    """
    code, line = 0, ""
    sys.path.append(os.getcwd())  # where a user's own discounts and problems are
    try:
        run(sys.argv[1:])
        sys.stdout.flush()  # here, where a reader that has gone can still be told
    except UserError as error:
        code, line = 2, str(error)
    except RunFailed as error:
        code, line = getattr(error, "code", 1), str(error)
    except BrokenPipeError:
        code = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
    except Stopped as stopped:
        code, line = 128 + stopped.signal, str(stopped)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    if line:
        print(f"{name}: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)
