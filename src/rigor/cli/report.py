"""`rigor-report`: an HTML page about many runs, with its tables and figures as files.

Exit codes: 0 done, 2 a mistake of the user.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rigor.cli import command

HELP = """\
Write report.html, tables/ and figures/ about sweeps and runs, finished or not.

DIR is a sweep's directory (OUT/sweeps/NAME), a directory of runs (out=DIR) or one run. The page
needs no other files. It is written into DIR/report or, for several directories, into ./report.
"""

EXAMPLES = """\
examples:
  rigor-report runs/sweeps/NAME
  rigor-report runs --baseline discount=exponential --out about
  rigor-report runs/sweeps/NAME --watch 60
"""


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-report", run, out="--out DIR")


def run(arguments: Sequence[str]) -> None:
    """Write the report, and print its path and the states of the runs.

    With --watch the report is repeated until no run is queued, running or preempted.

    Raises:
      UserError: an argument or a directory is wrong.
    """
    given = _parser().parse_args(arguments)
    directories = [Path(name).expanduser() for name in given.directories]
    out = directories[0] / "report" if len(directories) == 1 else Path("report")
    out = Path(given.out).expanduser() if given.out else out
    from rigor.report.page.page import write_report  # here, so that --help is quick

    while True:
        done = write_report(directories, out, given.baseline, given.watch)
        print(f"{done.page}: {done.states}", flush=True)
        if not given.watch:
            return
        if not done.going_on:
            write_report(directories, out, given.baseline)  # a last time, without the reloading
            return
        time.sleep(given.watch)


def _parser() -> command.Parser:
    parser = command.Parser("rigor-report", HELP, EXAMPLES)
    add = parser.add_argument
    add("directories", metavar="DIR", nargs="+", help="of a sweep, a run, or runs")
    add(
        "--baseline",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="compare with the agents of this setting, such as variant=time_aware or "
        "horizons.quadrature=lower; may be repeated (default: every two agents are compared)",
    )
    add("--out", metavar="DIR", help="output directory")
    add(
        "--watch",
        metavar="SECONDS",
        type=command.whole_number(1, "seconds"),
        help="repeat after this many seconds until all runs have ended; the page reloads itself",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text}: must be KEY=VALUE")
    return key, value


if __name__ == "__main__":
    main()
