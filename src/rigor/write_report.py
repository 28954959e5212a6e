"""`rigor-report`: one HTML page about many runs, with every table and figure as files beside it.

Exit codes: 0 done, 2 the user's mistake.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rigor import command

HELP = """\
Write report.html, tables/ and figures/ about sweeps and runs, finished or not.

A DIR is a sweep's directory (out/sweeps/NAME), a directory of runs (out=DIR) or one run. The page
needs nothing else to be read, and goes into DIR/report, or into ./report for several.
"""

EXAMPLES = """\
examples:
  rigor-report runs/sweeps/NAME
  rigor-report runs --baseline discount=exponential --out about
  rigor-report runs/sweeps/NAME --watch 60
"""


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-report", run)


def run(arguments: Sequence[str]) -> None:
    """Do what the command line asks, and print where the page is and how the runs stand.

    With --watch it goes on until no run is queued, running or preempted any more.

    Raises:
      UserError: an argument or a directory does not fit.
    """
    given = _parser().parse_args(arguments)
    directories = [Path(one).expanduser() for one in given.directories]
    out = directories[0] / "report" if len(directories) == 1 else Path("report")
    out = Path(given.out).expanduser() if given.out else out
    from rigor.report.page import write_report  # --help must be quick

    while True:
        done = write_report(directories, out, given.baseline, given.watch)
        print(f"{done.page}: {done.states}", flush=True)
        if not given.watch:
            return
        if not done.going_on:
            write_report(directories, out, given.baseline)  # that page is read once
            return
        time.sleep(given.watch)


def _parser() -> argparse.ArgumentParser:
    parser = command.Parser(
        "rigor-report",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("directories", metavar="DIR", nargs="+", help="of a sweep, a run, or runs")
    parser.add_argument(
        "--baseline",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="compare with the agents that have it, such as variant=time_aware or "
        "horizons.quadrature=lower; may be repeated (default: the paper's two, "
        "variant=time_inconsistent and variant=time_aware)",
    )
    parser.add_argument("--out", metavar="DIR", help="where to write")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_seconds,
        help="write again every so many seconds while runs go on; the page reads itself again",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text}: must be KEY=VALUE")
    return key, value


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number of seconds, 1 or more")
    return int(text)


if __name__ == "__main__":
    main()
