"""Progress of an exact solver on the console: the number of initial stocks solved so far."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rigor.runs.disk import append_text
from rigor.runs.progress import BEAT_EVERY


class SolverLine(Protocol):
    """What a solver tells of its work."""

    def __call__(self, n_solved: int) -> None:
        """Add the number of initial stocks solved since the last call."""
        ...

    def note(self, text: str) -> None:
        """Tell a fact about the solution."""
        ...


class NoProgress:
    """A `SolverLine` that says nothing."""

    def __call__(self, n_solved: int) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


class SolverProgress:
    """A progress line on a terminal, and notes on the console and in the log.

    A solver calls the object after every batch of initial stocks.
    """

    def __init__(self, label: str, log_path: Path, beat: Callable[[], None]) -> None:
        """Prepare the progress line.

        Args:
          label: the run's name. log_path: its `train.log`.
          beat: called after a batch, at most every BEAT_EVERY seconds: the run is alive.
        """
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
        """Show the progress line."""
        if sys.stdout.isatty():
            self._line.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the progress line."""
        if sys.stdout.isatty():
            self._line.stop()

    def __call__(self, n_solved: int) -> None:
        """Add the number of initial stocks solved since the last call."""
        self._line.advance(self._task, n_solved)
        if (now := time.monotonic()) >= self._next_beat:
            self._next_beat = now + BEAT_EVERY
            self._beat()

    def note(self, text: str) -> None:
        """Print a text on the console and append it to the log."""
        self._console.print(text, markup=False)
        append_text(self._log, text)
