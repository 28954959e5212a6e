"""A copy of the metrics file for TensorBoard; its failures do not stop the run."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigor.errors import UserError


class TensorBoardSink:
    """Writes the rows of the metrics file as scalars over agent steps.

    The first failure is reported in `train.log` and on the console, and ends the copy.
    """

    def __init__(
        self, run_directory: Path | str, config: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        """Name the run's directory; `tensorboard/` in it is written from the first row on.

        Args:
          config: shown as text: the resolved config and other facts about the run.
          note: writes a line on the console and into `train.log`.
        """
        self._folder = Path(run_directory)
        self._config, self._note = config, note
        self._writer: Any = None
        self._has_failed = False
        self._steps = 0

    @property
    def active(self) -> bool:
        """Whether rows are still written."""
        return not self._has_failed

    def log(self, row: Mapping[str, Any]) -> None:
        """Write one row of the metrics file without its empty cells."""
        self._steps = int(row["steps"])
        numbers = {key: value for key, value in row.items() if value is not None}
        self._write({key: float(value) for key, value in numbers.items() if key != "steps"})

    def catch_up(self) -> None:
        """Do nothing: every row is written at once."""

    def log_episodes(self, steps: int, columns: Mapping[str, Sequence[float]]) -> None:
        """Do nothing: TensorBoard has no tables."""

    def finish(self, exit_code: int, result: Mapping[str, Any]) -> None:
        """Write the numbers of the result as `final/NAME`, and close the files."""
        numbers = {k: float(v) for k, v in result.items() if isinstance(v, int | float)}
        if numbers:
            self._write({f"final/{name}": value for name, value in numbers.items()})
        if self._writer is not None:
            with contextlib.suppress(Exception):  # a full disk was reported before
                self._writer.close()
        self._writer = None

    def _write(self, numbers: Mapping[str, float]) -> None:
        if self._has_failed:
            return
        try:
            if self._writer is None:
                self._writer = self._opened()
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, self._steps)
            self._writer.flush()
        except Exception as error:  # the run continues without TensorBoard, whatever its error
            self._has_failed = True
            with contextlib.suppress(UserError):  # other writers report a full disk
                self._note(f"TensorBoard: no longer mirrored ({error}); metrics.csv has everything")

    def _opened(self) -> Any:
        """Return a writer whose rows replace those that a stopped run wrote from this step on."""
        from tensorboardX import SummaryWriter

        # without a suffix, a run that resumes within a second would overwrite its first file
        folder, suffix = str(self._folder / "tensorboard"), f".{self._steps}"
        writer = SummaryWriter(folder, purge_step=self._steps, filename_suffix=suffix)
        text = json.dumps(self._config, indent=2, default=str)
        writer.add_text("config", "\n".join(f"    {line}" for line in text.splitlines()), 0)
        return writer
