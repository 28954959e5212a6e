"""What the console shows while an exact solver works: how many initial stocks it has solved for."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape

from rigor.tracking.disk import append_text


class Working:
    """A line with the time so far on a terminal; notes there, elsewhere and in the log.

    A solver calls it after every batch of initial stocks.
    """

    def __init__(self, label: str, log_path: Path) -> None:
        """Take the run's name and its `train.log`."""
        self._label, self._log = label, log_path
        self._console = Console(highlight=False, soft_wrap=True)
        self._status = self._console.status("") if sys.stdout.isatty() else None
        self._began = time.monotonic()
        self._solved = 0

    def __enter__(self) -> Self:
        """Show the line."""
        if self._status is not None:
            self._status.start()
        self(0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()

    def __call__(self, stocks: int) -> None:
        """Count initial stocks that have been solved for since the last call."""
        self._solved += stocks
        if self._status is not None:
            seconds = time.monotonic() - self._began
            self._status.update(
                f"{escape(self._label)}: solving, {self._solved} initial stocks, {seconds:.0f} s"
            )

    def note(self, text: str) -> None:
        """Say something on the console and in the log."""
        self._console.print(text, markup=False)
        append_text(self._log, text)
