"""`python -m rigor COMMAND ...`: every command where its script is not on the path."""

import importlib
import sys
from collections.abc import Sequence

from rigor.cli import command
from rigor.errors import UserError

COMMANDS = {
    "train": "train one run or a sweep",
    "sweep": "status, retry, cancel and logs of a sweep",
    "report": "an HTML page about many runs",
    "eval": "evaluate a run's policy",
    "figure": "draw a figure",
    "dashboard": "the W&B workspace of a sweep",
    "sync": "upload offline W&B files",
}


def main() -> None:
    """Run the command that the command line names, and exit with its code."""
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        name = sys.argv.pop(1)
        sys.argv[0] = f"rigor-{name}"
        importlib.import_module(f"rigor.cli.{name}").main()
    command.end_with("rigor", _run)


def _run(arguments: Sequence[str]) -> None:
    if arguments and arguments[0] not in ("-h", "--help"):
        raise UserError(f"{arguments[0]}: no such command; choose one of {', '.join(COMMANDS)}")
    print("python -m rigor COMMAND ...   the same as rigor-COMMAND ...\n")
    for name, text in COMMANDS.items():
        print(f"  {name:<11}{text}")


if __name__ == "__main__":
    main()
