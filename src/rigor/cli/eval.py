"""`rigor-eval`: evaluate a run's policy under a stated protocol: numbers, figures and a video.

Exit codes: 0 done, 2 a mistake of the user.
"""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rigor.cli import command
from rigor.errors import UserError

if TYPE_CHECKING:
    from rich.progress import Progress

HELP = """\
Evaluate the newest checkpoint of a run, or the policy of an exact agent, on whole episodes.

Writes numbers with 95 % intervals, a table of episodes, and figures into RUN/evaluation. Figures
compare predicted with realised returns, and show mixture weights and the wealth or prices of
episodes. The run may still be training; it is not disturbed.

--final repeats the evaluation at the end of a run instead, and writes RUN/result.json again.
"""

EXAMPLES = """\
examples:
  rigor-eval runs/breakout-multihorizon-...
  rigor-eval runs/cartpole-... --episodes 20 --video
  rigor-eval runs/breakout-... --epsilon 0 --sticky 0.25 --noops 0
  rigor-eval runs/cartpole-... --final
  rigor-eval runs/gbwm-...-cvar-... --risk-levels .05,.1,.25,.5,1
"""

LINE_EVERY = 10.0  # seconds between plain lines without a terminal


def main() -> None:
    """Run the command line and exit with its code."""
    command.end_with("rigor-eval", run, out="--out DIR")


def run(arguments: Sequence[str]) -> None:
    """Evaluate as the command line says, and print the numbers and the paths of the files.

    Raises:
      UserError: an argument, the run or the output directory is wrong.
    """
    given = _parser().parse_args(arguments)
    directory = Path(given.run).expanduser()
    out = Path(given.out).expanduser() if given.out else None
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory")
    if not (directory / "config.yaml").is_file():
        raise UserError(
            f"{directory}: not a run's directory (no config.yaml); name the directory of one run"
        )
    if given.final:
        print(_final(directory, arguments))
        return
    import torch  # here, so that --help and mistakes are quick

    from rigor.report.evaluation.evaluate import write_evaluation
    from rigor.report.evaluation.frontier import write_frontier
    from rigor.report.evaluation.protocol import EvaluationRequest

    torch.set_num_threads(1)
    if given.risk_levels and given.video:
        raise UserError("--video with --risk-levels: choose one of them")
    protocol = given.epsilon, given.sticky, given.noops
    request = EvaluationRequest(given.episodes, given.seed, given.video, *protocol)
    with EvaluationProgress(directory.resolve().name) as progress:
        if given.risk_levels:
            levels = write_frontier(directory, given.risk_levels, request, out, progress)
            text = levels.text()
        else:
            text = write_evaluation(directory, request, out, progress).table()
    print(text)  # after the bar, which would break long paths


def _final(directory: Path, arguments: Sequence[str]) -> str:
    """Repeat the evaluation that ends a run, and return its numbers.

    Raises:
      UserError: there are other options, or the run has steps left to train.
    """
    if len(arguments) > 2:
        raise UserError("--final: evaluates as the run itself does; leave the other options out")
    from rigor.launch.execute import execute
    from rigor.learning.checkpoint import checkpoints
    from rigor.report.tables.sweep_table import collect_rows, table_text
    from rigor.runs.directory import RunDirectory
    from rigor.runs.job import stored_job
    from rigor.runs.takeover import wait_until_alone

    job = stored_job(directory)
    steps = [
        int(path.name.removeprefix("step_")) for path in checkpoints(directory / "checkpoints")
    ]
    if job.config.learns and max(steps, default=0) < job.steps:
        raise UserError(
            f"{directory}: has trained {max(steps, default=0):,} of {job.steps:,} steps; its "
            "rigor-train command trains the rest and ends with the final evaluation"
        )
    wait_until_alone(RunDirectory(directory))
    execute(job, job.config.sweep)
    width = min(120, shutil.get_terminal_size().columns)
    return f"{table_text(collect_rows([directory]), width)}{directory / 'result.json'}"


class EvaluationProgress:
    """Progress of an evaluation: a bar on a terminal, else a line every ten seconds."""

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._clock = label, clock
        self._started = self._last_line = clock()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        """Show the bar on a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}", markup=False), BarColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._label, total=None)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, episodes: int, total: int, steps: int) -> None:
        """Show how many episodes are done, of how many, in how many agent steps."""
        line = self.line(episodes, total, steps)
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=episodes, total=total, description=line)
        elif self._clock() - self._last_line >= LINE_EVERY:
            self._last_line = self._clock()
            print(line, file=sys.stderr, flush=True)

    def line(self, episodes: int, total: int, steps: int) -> str:
        """Return a line such as `12/100 episodes  8,300 steps  640 steps/s  eta 0:02:10`."""
        from rigor.runs.plain_text import clock

        elapsed = max(self._clock() - self._started, 1e-9)
        left = elapsed * (total - episodes) / episodes if episodes else None
        rate = f"{steps / elapsed:,.0f} steps/s"
        return f"{episodes}/{total} episodes  {steps:,} steps  {rate}  eta {clock(left)}"


def _parser() -> command.Parser:
    count, whole = command.whole_number(1), command.whole_number(0)
    parser = command.Parser("rigor-eval", HELP, EXAMPLES)
    add = parser.add_argument
    add("run", metavar="RUN", help="directory of one run")
    add("--episodes", metavar="N", type=count, default=100, help="whole episodes (default 100)")
    add("--video", action="store_true", help="record one more episode as episode.mp4, if possible")
    add("--seed", metavar="N", type=whole, default=0, help="of the evaluation (default 0)")
    add(
        "--epsilon",
        metavar="P",
        type=command.probability,
        help="probability of a random action (default: the run's)",
    )
    add(
        "--sticky",
        metavar="P",
        type=command.probability,
        help="probability that an Atari game repeats the last action (default: the run's)",
    )
    add(
        "--noops",
        metavar="N",
        type=whole,
        help="an Atari game starts with fewer no-ops than N (default: the run's)",
    )
    add(
        "--risk-levels",
        metavar="LIST",
        type=command.positive_numbers,
        help="evaluate the one agent at other levels of its risk measure instead, such as "
        ".01,.05,.1,.25,.5,1 (risk.tau of cvar, or risk.kappa of mean_variance)",
    )
    add("--final", action="store_true", help="repeat the run's own last evaluation: result.json")
    add("--out", metavar="DIR", help="write into DIR/RUN_NAME (default RUN/evaluation)")
    return parser


if __name__ == "__main__":
    main()
