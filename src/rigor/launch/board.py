"""Where the runs of a sweep stand: read from their own files, shown live or as plain lines."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rigor.report.tables import COLOURS, shorten
from rigor.tracking.progress import clock, short
from rigor.tracking.rundir import RunDirectory

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

ORDER = ("running", "queued", "done", "failed", "lost", "preempted")
"""The states of a run, as they are counted."""

_DRAW_EVERY = 1.0  # seconds between two pictures
_LINE_EVERY = 60.0  # seconds between two plain lines of totals
_NAMED = 8  # failures that are named on a screen; a pipe gets all
_ANY = 10_000  # columns of a pipe: no line is cut
_GPU_WIDTH = 10  # characters: its number and what it is, such as `1 H100 80…`
_ROOM = 7  # lines of a screen beside its rows: title, totals, heads, two ends, the prompt


@dataclass
class Standing:
    """Where one run stands.

    step, steps_total: agent steps, of which total may be unknown. rate: agent steps/s of the last
    minute. seconds_left: of the run. host, gpu: where it runs; gpu is None on a CPU.
    error: of a failed or preempted one. log: its `train.log`.
    """

    path: Path
    state: str
    step: int
    steps_total: int | None
    rate: float | None
    seconds_left: float | None
    host: str | None
    gpu: str | None
    error: str | None

    @property
    def log(self) -> Path:
        """What the run said, with the traceback of a failure."""
        return RunDirectory(self.path).log_path


def standing(path: Path) -> Standing:
    """Return where the run in a directory stands."""
    run = RunDirectory(path)
    state, status = run.state(), run.status() or {}
    known: Mapping[str, Any] = status if state == "running" else {}
    return Standing(
        path,
        state,
        status.get("step", 0),
        status.get("steps_total"),
        known.get("steps_per_second"),
        known.get("seconds_left"),
        status.get("host"),
        known.get("gpu"),
        status.get("error"),
    )


class Watch:
    """Reads a sweep's runs again and again; what is done is read once."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._done: dict[Path, Standing] = {}

    def read(self) -> list[Standing]:
        """Return where every run stands now."""
        found = [self._done.get(path) or standing(path) for path in self.paths]
        self._done = {one.path: one for one in found if one.state == "done"}
        return found


def totals(standings: Sequence[Standing]) -> str:
    """Return the line of totals: how many are in each state, steps, steps/s, time left.

    The time left is that of all steps of running and queued runs at the present rate.
    """
    counts = Counter(one.state for one in standings)
    states = [f"{counts[state]} {state}" for state in ORDER if counts[state]]
    done = sum(one.step for one in standings)
    total = sum(one.steps_total or one.step for one in standings)
    parts = [", ".join(states) + f" of {len(standings)}", f"{short(done)}/{short(total)} steps"]
    rate = sum(one.rate or 0.0 for one in standings)
    if counts["running"]:
        ahead = sum(
            max(0, (one.steps_total or 0) - one.step)
            for one in standings
            if one.state in ("running", "queued")
        )
        parts += [f"{short(rate)}/s", f"eta {clock(ahead / rate if rate else None)}"]
    return "  ".join(parts)


def board(
    standings: Sequence[Standing], title: str, width: int, height: int | None
) -> "RenderableType":
    """Return the table of what runs and what went wrong, under the line of totals.

    Args:
      height: lines of the screen, which the table does not outgrow; None shows every run.
    """
    from rich.console import Group
    from rich.text import Text

    _, names = shorten([one.path.name for one in standings])
    named = list(zip(names, standings, strict=True))
    wrong = [pair for pair in named if pair[1].state in ("failed", "lost", "preempted")]
    active = [pair for pair in named if pair[1].state == "running"]
    # the least done first: they end last
    active.sort(key=lambda pair: pair[1].step / (pair[1].steps_total or 1))
    room = len(named) if height is None else max(2, height - _ROOM)
    shown_wrong = wrong[: len(wrong) if height is None else min(_NAMED, max(1, room // 2))]
    shown_active = active[: max(1, room - len(shown_wrong))]
    parts: list[RenderableType] = [
        Text(title, style="bold", no_wrap=True, overflow="ellipsis"),
        Text(totals(standings), no_wrap=True, overflow="ellipsis"),
    ]
    if shown_active:
        parts.append(_active(shown_active, width))
    if len(active) > len(shown_active):
        parts.append(Text(f"and {len(active) - len(shown_active)} more running", style="dim"))
    for name, one in shown_wrong:
        parts.append(_wrong(name, one))
    if len(wrong) > len(shown_wrong):
        more = len(wrong) - len(shown_wrong)
        parts.append(Text(f"and {more} more failed, lost or preempted", style="dim"))
    return Group(*parts)


def _active(pairs: Sequence[tuple[str, Standing]], width: int) -> "Table":
    """Return the table of running runs, with a bar where there is room for one beside a GPU."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), expand=False)
    gpus = any(one.gpu for _, one in pairs)
    taken = 49 + (_GPU_WIDTH + 2) * gpus  # by all other columns, at their widest
    longest = min(12, max(len(name) for name, _ in pairs))
    bars = width >= taken + 16 + longest
    room = max(12, width - taken - 16 * bars)
    table.add_column("run", no_wrap=True, overflow="ellipsis", max_width=room)
    if bars:
        table.add_column("", width=14)
    for name in ("steps", "steps/s", "eta"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=14)
    if gpus:
        table.add_column("gpu", no_wrap=True, overflow="ellipsis", max_width=_GPU_WIDTH)
    for name, one in pairs:
        total = one.steps_total or 0
        bar = [ProgressBar(total=max(total, 1), completed=one.step, width=14)] if bars else []
        rate = "-" if not one.rate else short(one.rate)
        steps = f"{short(one.step)}/{short(total)}"
        place = [one.host or "-"] + [one.gpu or "-"] * gpus
        table.add_row(name, *bar, steps, rate, clock(one.seconds_left), *place)
    return table


def _wrong(name: str, one: Standing) -> "RenderableType":
    from rich.text import Text

    reason = " ".join((one.error or _REASONS.get(one.state, "")).split())
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(one.state, style=COLOURS.get(one.state, "yellow"))
    text.append(f" {name}: {reason}" if reason else f" {name}")
    return text


_REASONS = {"lost": "its process ended without a word"}


class Display:
    """Shows a sweep that is being worked on: a calm live table on a terminal, else plain lines."""

    def __init__(self, read: Callable[[], list[Standing]], title: str) -> None:
        self._read, self._title = read, title
        self._live: Live | None = None
        self._last = -float("inf")

    def __enter__(self) -> Self:
        """Start the live table on a terminal."""
        # asked here and not of rich, which FORCE_COLOR and its like persuade
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stdout)
            if not console.is_dumb_terminal:
                # transient: the sweep's own table follows; drawn from `look`, without a thread
                self._live = Live(console=console, auto_refresh=False, transient=True)
                self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the live table away."""
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Show a line above the table."""
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def look(self) -> None:
        """Show where the sweep stands, at a slow pace; cheap between."""
        now = time.monotonic()
        if now - self._last < (_LINE_EVERY if self._live is None else _DRAW_EVERY):
            return
        self._last = now
        found = self._read()
        if self._live is None:
            self.say(totals(found))
            return
        size = self._live.console.size
        self._live.update(board(found, self._title, size.width, size.height), refresh=True)


def show(
    read: Callable[[], list[Standing]], title: str, moves: Callable[[list[Standing]], bool]
) -> None:
    """Print where a sweep stands: once in a pipe; on a terminal live, as long as it moves.

    Args:
      read: returns where every run stands. moves: whether somebody works on those.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    found = read()
    if not sys.stdout.isatty() or console.is_dumb_terminal:
        _print_whole(board(found, title, _ANY, None))
        return
    with Live(console=console, auto_refresh=False) as screen:
        while True:
            size = console.size
            screen.update(board(found, title, size.width, size.height), refresh=True)
            if not moves(found):
                return
            time.sleep(2 * _DRAW_EVERY)
            found = read()


def _print_whole(what: "RenderableType") -> None:
    """Print without cutting a line, whatever the width."""
    from rich.console import Console

    text = Console(width=_ANY, file=sys.stdout, color_system=None, force_terminal=False)
    text.print(what, soft_wrap=True)
