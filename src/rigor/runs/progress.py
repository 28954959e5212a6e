"""Progress of a run: a bar on a terminal, plain lines elsewhere and in the log."""

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rigor.errors import UserError
from rigor.runs.disk import append_text
from rigor.runs.plain_text import clock, plain, short

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

BEAT_EVERY = 10.0
"""Seconds between two heartbeats, which tell other processes that the run is alive."""

_BEAT_AFTER = 1.0  # seconds until the first heartbeat; steps/s over less time is noise
_LINE_EVERY = 10.0  # seconds between plain lines
_DRAW_EVERY = 0.5  # seconds between two updates of the bar; more often would flicker
_RATE_OVER = 60  # samples of about a second, since learning is much slower than filling the replay
_LABEL_WIDTH = 20  # characters of the label beside the bar


class Progress:
    """Shows steps, steps per second, the time left and the newest returns of one run."""

    def __init__(
        self,
        total: int,
        label: str,
        log_path: Path | str,
        start: int = 0,
        beat: Callable[[int, float, float | None], None] = lambda step, rate, seconds_left: None,
        quiet: bool = False,
    ) -> None:
        """Describe the run; nothing is shown before the `with` block.

        Args:
          total: agent steps at the end of the run.
          label: the run's name.
          log_path: `train.log`, to which plain lines are appended.
          start: agent steps of earlier sessions, which do not count in steps/s and the time left.
          beat: called with the step, steps/s and seconds left (None while unknown) after the first
            second and then about every ten, to publish the progress.
          quiet: keep the console silent, as for a benchmark; the log is written.
        """
        self._total, self._label, self._log = total, plain(label), Path(log_path)
        self._step = start
        self._fields: Mapping[str, Any] = {}
        self._samples: deque[tuple[float, int]] = deque(maxlen=_RATE_OVER)
        self._last_line = self._last_draw = -float("inf")
        self._next_beat = float("inf")
        self._line_step = -1
        self._console = not quiet
        self._beat = beat
        self.average: float | None = None
        """Agent steps/s of the whole run, once it has ended; the last line shows it."""
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        """Start the clock, and the bar on a terminal."""
        now = time.monotonic()
        self._samples.append((now, self._step))
        self._next_beat = now + _BEAT_AFTER
        # Checked here because rich believes FORCE_COLOR and similar variables.
        if self._console and sys.stdout.isatty():
            self._start_bar()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the last step; a full disk does not hide the error that ended the run."""
        self._draw()
        if self._bar is not None:
            try:
                self._bar.stop()
            except (OSError, ValueError):
                self._console = False
        if self._line_step != self._step:
            try:
                self._write_line()
            except UserError:
                if error is None:
                    raise

    def update(self, step: int, fields: Mapping[str, Any]) -> None:
        """Show that `step` agent steps are done, with newest values such as the last return.

        Cheap enough to call at every step: screen and log are updated only now and then.

        Raises:
          UserError: the log's disk is full.
        """
        self._step, self._fields = step, fields
        now = time.monotonic()
        if now - self._samples[-1][0] >= 1.0:
            self._samples.append((now, step))
        if now - self._last_draw >= _DRAW_EVERY:
            self._last_draw = now
            self._draw()
        if now - self._last_line >= _LINE_EVERY:
            self._write_line()
        self.alive()

    def alive(self) -> None:
        """Send a heartbeat if one is due; cheap enough to call at every step.

        For long work without training steps, such as evaluations.
        """
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_EVERY
            self._beat(self._step, self._rate(), self._seconds_left())

    def note(self, text: str) -> None:
        """Show a line above the bar, such as the result of an evaluation, and log it."""
        text = plain(text)
        self._print(text)
        self._append(text)

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        console = Console(file=sys.stdout)
        if console.is_dumb_terminal:
            return
        one_line = Column(no_wrap=True)
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False, table_column=one_line),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=5)),
            TextColumn("{task.fields[numbers]}", markup=False, table_column=one_line),
            console=console,
            # drawn in `update`, without a thread beside the training
            auto_refresh=False,
            expand=True,
        )
        label = self._label
        if len(label) > _LABEL_WIDTH:
            label = label[: _LABEL_WIDTH - 1] + "…"
        self._task = self._bar.add_task(label, total=self._total, numbers="")
        self._bar.start()
        self._draw()

    def _draw(self) -> None:
        if self._bar is None or self._task is None or not self._console:
            return
        try:
            room = self._bar.console.width - min(len(self._label), _LABEL_WIDTH) - 8
            self._bar.update(self._task, completed=self._step, numbers=self._short_numbers(room))
            self._bar.refresh()
        except (OSError, ValueError):
            self._console = False  # the terminal is gone, but the run goes on

    def _short_numbers(self, room: int) -> str:
        """Return as many numbers as fit into `room` characters, the most important ones first."""
        parts = [
            f"{self._percent()}%",
            f"{short(self._step)}/{short(self._total)}",
            f"{short(self._rate()) if self._has_rate() else '-'}/s",
            f"eta {self._time_left()}",
            *self._field_texts(),
        ]
        while len(parts) > 1 and len("  ".join(parts)) > room:
            parts.pop()
        return "  ".join(parts)

    def _write_line(self) -> None:
        self._last_line, self._line_step = time.monotonic(), self._step
        parts = [
            f"{self._step:,}/{self._total:,} steps ({self._percent()}%)",
            f"{self._shown_rate():,.0f} steps/s" if self._has_rate() else "- steps/s",
            f"eta {self._time_left()}",
            *self._field_texts(),
        ]
        line = "  ".join(parts)
        if self._bar is None:
            self._print(f"{self._label}  {line}")
        self._append(line)

    def _print(self, text: str) -> None:
        if not self._console:
            return
        try:
            if self._bar is not None:
                self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()
        except (OSError, ValueError):
            self._console = False

    def _append(self, text: str) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        append_text(self._log, f"{stamp}  {text}")

    def _percent(self) -> int:
        return 100 if self._total <= 0 else min(100, 100 * self._step // self._total)

    def _rate(self) -> float:
        """Return agent steps per second over about the last minute of this session."""
        then, step = self._samples[0]
        elapsed = time.monotonic() - then
        return (self._step - step) / elapsed if elapsed > 0 else 0.0

    def _shown_rate(self) -> float:
        return self._rate() if self.average is None else self.average

    def _has_rate(self) -> bool:
        return self._step >= self._total or time.monotonic() - self._samples[0][0] >= _BEAT_AFTER

    def _time_left(self) -> str:
        return clock(self._seconds_left() if self._has_rate() else None)

    def _seconds_left(self) -> float | None:
        if self._step >= self._total:
            return 0.0
        rate = self._rate()
        return (self._total - self._step) / rate if rate > 0 else None

    def _field_texts(self) -> list[str]:
        return [f"{name} {_value(value)}" for name, value in self._fields.items()]


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else plain(str(value))
