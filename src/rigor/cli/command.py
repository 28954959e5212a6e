"""Common parts of the commands: argument types, one-line errors and exit codes."""

import argparse
import difflib
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from rigor.config.whole_numbers import whole
from rigor.errors import RunFailed, Stopped, UserError
from rigor.runs import disk


class Parser(argparse.ArgumentParser):
    """A parser of a command's arguments, which raises a UserError for a wrong argument."""

    def __init__(self, name: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            name,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise a UserError with argparse's message, a near option, and where the help is."""
        _, _, unknown = message.partition("unrecognized arguments: ")
        options = [option for option in self._option_string_actions if option.startswith("--")]
        near = difflib.get_close_matches(unknown.partition("=")[0].partition(" ")[0], options, n=1)
        hint = f"did you mean {near[0]}? See" if near else "see"
        raise UserError(f"{message}; {hint} {self.prog} --help")


def whole_number(least: int, unit: str = "") -> Callable[[str], int]:
    """Return an argument type that accepts whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            number = whole(text)
        except ValueError:
            number = least - 1
        if number < least:
            of_unit = f" of {unit}" if unit else ""
            raise argparse.ArgumentTypeError(
                f"{text}: must be a whole number{of_unit}, {least} or more"
            )
        return number

    return parse


def probability(text: str) -> float:
    """Return an argument that is a number in [0, 1]."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text}: must lie in [0, 1]")
    return value


def positive_numbers(text: str) -> list[float]:
    """Return an argument that is a list of numbers above 0, separated by commas."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(0.0 < value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text}: needs numbers above 0, such as .05,.1,.25")
    return values


def end_with(name: str, run: Callable[[Sequence[str]], object], out: str = "") -> NoReturn:
    """Run a command with the arguments of the command line, and exit; `--version` prints rigor's.

    Args:
      name: of the command. run: takes its arguments.
      out: the argument that names another output directory, such as `out=DIR`, if there is one.

    An error is one line on standard error. Exit codes: 0 done, 1 a bug or a closed pipe (`| head`),
    2 a mistake of the user, 128 + signal when stopped; the attribute `code` of an error overrides
    them.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"rigor {importlib.metadata.version('rigor-rl')}")
        sys.exit(0)
    disk.way_out = f"choose another place with {out}" if out else "make room or make it writable"
    code, line = 0, ""
    sys.path.append(os.getcwd())  # the user's own discounts and problems are imported from there
    try:
        run(sys.argv[1:])
        sys.stdout.flush()  # here, so that a closed pipe raises inside this block
    except UserError as error:
        code, line = 2, str(error)
    except RunFailed as error:
        code, line = getattr(error, "code", 1), str(error)
    except BrokenPipeError:
        code = 1
        # Python flushes standard output at exit, which would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Stopped as stopped:
        code, line = 128 + stopped.signal, str(stopped)
    except KeyboardInterrupt:
        code, line = 128 + signal.SIGINT, "interrupted"
    if line:
        print(f"{name}: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)
