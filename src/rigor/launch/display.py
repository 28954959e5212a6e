"""Display of a sweep's progress: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rigor.launch.status import RunStatus, totals
from rigor.report.data.labels import shorten
from rigor.runs.directory import shown
from rigor.runs.plain_text import clock, short

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

_DRAW_EVERY = 1.0  # seconds between two updates of the table
_LINE_EVERY = 60.0  # seconds between two plain lines of totals
_MOST_ERRORS = 8  # failed runs that a screen names; a pipe gets all of them
_MOST_REASONS = 2  # for queued runs, on a screen
_OTHER_LINES = 7  # lines of a screen without rows: title, totals, headings, two ends, the prompt
_NO_LIMIT = 10_000  # columns of a pipe, so that no line is cut


def status_table(statuses: Sequence[RunStatus], title: str, height: int | None) -> "RenderableType":
    """Return the line of totals, a table of running runs, and the errors of failed ones.

    Args:
      height: lines of the screen, which limit the number of rows; None shows every run.
    """
    from rich.console import Group
    from rich.text import Text

    _, names = shorten([status.path.name for status in statuses])
    named = list(zip(names, statuses, strict=True))
    broken = [pair for pair in named if pair[1].state in ("failed", "lost", "preempted")]
    running = [pair for pair in named if pair[1].state == "running"]
    # the run with the least progress ends last and comes first
    running.sort(key=lambda pair: pair[1].step / (pair[1].steps_total or 1))
    reasons = _waiting_lines(statuses)[: None if height is None else _MOST_REASONS]
    room = len(named) if height is None else max(2, height - _OTHER_LINES - len(reasons))
    n_broken = len(broken) if height is None else min(_MOST_ERRORS, max(1, room // 2))
    n_running = max(1, room - len(broken[:n_broken]))
    parts: list[RenderableType] = [
        Text(title, style="bold", no_wrap=True, overflow="ellipsis"),
        Text(totals(statuses), no_wrap=True, overflow="ellipsis"),
    ]
    parts += [Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in reasons]
    if running:
        parts.append(_running_table(running[:n_running]))
    if hidden := len(running[n_running:]):
        parts.append(Text(f"and {hidden} more running", style="dim"))
    parts += [_error_line(name, status) for name, status in broken[:n_broken]]
    if hidden := len(broken[n_broken:]):
        parts.append(Text(f"and {hidden} more failed, lost or stopped", style="dim"))
    return Group(*parts)


def _waiting_lines(statuses: Sequence[RunStatus]) -> list[str]:
    """Return a line for each reason why SLURM does not start queued runs, the commonest first."""
    waits = Counter(status.error for status in statuses if status.state == "queued")
    return [f"{n} queued: {reason}" for reason, n in waits.most_common() if reason]


def _running_table(pairs: Sequence[tuple[str, RunStatus]]) -> "Table":
    """Return the table of running runs; a narrow screen shortens names and bars first."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="ellipsis", min_width=10)
    table.add_column("", max_width=14)
    for name in ("steps", "steps/s", "eta"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=14)
    has_gpus = any(status.gpu for _, status in pairs)
    if has_gpus:
        table.add_column("gpu", no_wrap=True, overflow="ellipsis", max_width=10)
    for name, status in pairs:
        total = status.steps_total or 0
        table.add_row(
            name,
            ProgressBar(total=max(total, 1), completed=status.step),
            f"{short(status.step)}/{short(total)}",
            short(status.rate) if status.rate else "-",
            clock(status.seconds_left),
            status.host or "-",
            *[status.gpu or "-"] * has_gpus,
        )
    return table


def _error_line(name: str, status: RunStatus) -> "RenderableType":
    from rich.text import Text

    from rigor.report.tables.sweep_table import COLOURS

    default = "its process ended without a message" if status.state == "lost" else ""
    reason = " ".join((status.error or default).split())
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(shown(status.state), style=COLOURS.get(status.state, "yellow"))
    text.append(f" {name}: {reason}" if reason else f" {name}")
    return text


class Display:
    """Shows the progress of a sweep that this process runs or waits for."""

    def __init__(self, read: Callable[[], list[RunStatus]], title: str) -> None:
        self._read, self._title = read, title
        self._live: Live | None = None
        self._last = -float("inf")

    def __enter__(self) -> Self:
        """Start the live table on a terminal."""
        # checked here because rich believes FORCE_COLOR and similar variables
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stdout)
            if not console.is_dumb_terminal:
                # transient: the sweep's final table follows; `update` draws, without a thread
                self._live = Live(console=console, auto_refresh=False, transient=True)
                self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live table."""
        if self._live is not None:
            self._live.stop()

    def print_line(self, line: str) -> None:
        """Print a line above the table."""
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def update(self) -> None:
        """Show the present status if the last one is old enough; otherwise do nothing."""
        now = time.monotonic()
        if now - self._last < (_LINE_EVERY if self._live is None else _DRAW_EVERY):
            return
        self._last = now
        statuses = self._read()
        if self._live is None:
            self.print_line(totals(statuses))
            return
        table = status_table(statuses, self._title, self._live.console.height)
        self._live.update(table, refresh=True)


def show(
    read: Callable[[], list[RunStatus]], title: str, can_change: Callable[[list[RunStatus]], bool]
) -> list[RunStatus]:
    """Print the status of a sweep; on a terminal, update it while it can change or until Ctrl-C.

    Args:
      read: returns the status of every run.
      can_change: returns whether a process or SLURM works on runs of these statuses.

    Returns:
      The statuses that were shown last.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    statuses = read()
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        wide = Console(width=_NO_LIMIT, file=sys.stdout, color_system=None, force_terminal=False)
        wide.print(status_table(statuses, title, None), soft_wrap=True)
        return statuses
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(status_table(statuses, title, console.height), refresh=True)
            if not can_change(statuses):
                break
            time.sleep(2 * _DRAW_EVERY)
            statuses = read()
    return statuses
