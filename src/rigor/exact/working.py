"""What the console shows while an exact solver works: how many initial stocks it has solved for."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rigor.tracking.disk import append_text
from rigor.tracking.progress import BEAT_EVERY


class Working:
    """A line with the time so far on a terminal; notes there, elsewhere and in the log.

    A solver calls it after every batch of initial stocks.
    """

    def __init__(self, label: str, log_path: Path, beat: Callable[[], None]) -> None:
        """Take the run's name, its `train.log`, and what shows others that it is alive."""
        self._log, self._beat = log_path, beat
        self._next_beat = time.monotonic() + BEAT_EVERY
        self._console = Console(highlight=False, soft_wrap=True)
        columns = (
            SpinnerColumn(),
            TextColumn(f"{escape(label)}: solving"),
            TimeElapsedColumn(),
            TextColumn("{task.completed} initial stocks"),
        )
        self._line = Progress(*columns, console=self._console, transient=True)
        self._task = self._line.add_task("", total=None)

    def __enter__(self) -> Self:
        """Show the line."""
        if sys.stdout.isatty():
            self._line.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the line away."""
        if sys.stdout.isatty():
            self._line.stop()

    def __call__(self, stocks: int) -> None:
        """Count initial stocks that have been solved for since the last call."""
        self._line.advance(self._task, stocks)
        if (now := time.monotonic()) >= self._next_beat:
            self._next_beat = now + BEAT_EVERY
            self._beat()

    def note(self, text: str) -> None:
        """Say something on the console and in the log."""
        self._console.print(text, markup=False)
        append_text(self._log, text)
