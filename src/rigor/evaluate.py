"""`rigor-eval`: play a run's policy under a written protocol, with numbers, pictures and a video.

Exit codes: 0 done, 2 the user's mistake.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rigor import command
from rigor.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress

HELP = """\
Play whole games with the newest checkpoint of a run, or with the policy of an exact agent.

Writes numbers with 95 % intervals, the games, and pictures of the predicted returns against those
that came true, of the mixture weights, and of wealth or prices, into RUN/evaluation. The run may
still be training: it is not disturbed.
"""

EXAMPLES = """\
examples:
  rigor-eval runs/breakout-multihorizon-...
  rigor-eval runs/cartpole-... --episodes 20 --video
  rigor-eval runs/breakout-... --epsilon 0 --sticky 0.25 --noops 0
"""

LINE_EVERY = 10.0  # seconds between plain lines, where there is no terminal


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-eval", run)


def run(arguments: Sequence[str]) -> None:
    """Do what the command line asks, and print the numbers and where everything is.

    Raises:
      UserError: an argument, a run or a place does not fit.
    """
    given = _parser().parse_args(arguments)
    directory = Path(given.run).expanduser()
    out = Path(given.out).expanduser() if given.out else None
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    if not (directory / "config.yaml").is_file():
        raise UserError(
            f"{directory}: no run, for it holds no config.yaml; name one run's directory"
        )
    import torch  # --help and a mistake must be quick

    from rigor.report.evaluation import write_evaluation
    from rigor.report.played import Asked

    torch.set_num_threads(1)
    asked = Asked(given.episodes, given.seed, given.video, given.epsilon, given.sticky, given.noops)
    with Shown(given.episodes, directory.resolve().name) as shown:
        done = write_evaluation(directory, asked, out, shown)
    print(done.table())


class Shown:
    """How far an evaluation is: a bar on a terminal, else a line every ten seconds."""

    def __init__(self, total: int, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._label, self._clock = total, label, clock
        self._began = self._told = clock()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        """Show the bar, on a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}", markup=False), BarColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, games: int, steps: int) -> None:
        """Tell how many games and agent steps have been played."""
        line = self.line(games, steps)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=games, description=line)
        elif self._clock() - self._told >= LINE_EVERY:
            self._told = self._clock()
            print(line, file=sys.stderr, flush=True)

    def line(self, games: int, steps: int) -> str:
        """Return such as `12/100 games  8,300 steps  640 steps/s  eta 0:02:10`."""
        from rigor.tracking.progress import clock

        elapsed = max(self._clock() - self._began, 1e-9)
        left = elapsed * (self._total - games) / games if games else None
        rate = f"{steps / elapsed:,.0f} steps/s"
        return f"{games}/{self._total} games  {steps:,} steps  {rate}  eta {clock(left)}"


def _parser() -> argparse.ArgumentParser:
    parser = command.Parser(
        "rigor-eval",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="directory of one run")
    parser.add_argument(
        "--episodes", metavar="N", type=_count, default=100, help="whole games (default 100)"
    )
    parser.add_argument(
        "--video",
        action="store_true",
        help="film one more game as episode.mp4, where it has frames",
    )
    parser.add_argument(
        "--seed", metavar="N", type=_whole, default=0, help="of the evaluation (default 0)"
    )
    parser.add_argument(
        "--epsilon", metavar="P", type=_share, help="chance of a random action (default: the run's)"
    )
    parser.add_argument(
        "--sticky",
        metavar="P",
        type=_share,
        help="chance that a game repeats the last action, Atari (default: the run's)",
    )
    parser.add_argument(
        "--noops",
        metavar="N",
        type=_whole,
        help="games start with fewer no-ops than this, Atari (default: the run's)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write below it, by the name of the run (default RUN/evaluation)",
    )
    return parser


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, 0 or more")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number, 1 or more")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text}: must lie in [0, 1]")
    return value


if __name__ == "__main__":
    main()
