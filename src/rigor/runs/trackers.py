"""The trackers of a run, which get a copy of its metrics: W&B, TensorBoard, both or none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rigor.config.schemas import Tracker
from rigor.runs.tensorboard_sink import TensorBoardSink
from rigor.runs.wandb_sink import open_sink


class MetricsSink(Protocol):
    """A copy of the metrics file elsewhere."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Send one row of the metrics file."""
        ...

    def catch_up(self) -> None:
        """Send the rows of the metrics file that a killed session has not sent."""
        ...

    def log_episodes(self, steps: int, columns: Mapping[str, Sequence[float]]) -> None:
        """Send the episodes of one evaluation, [K] of each column."""
        ...

    def finish(self, exit_code: int, result: Mapping[str, Any]) -> None:
        """Send the contents of `result.json`, empty for a failed run, and close."""
        ...


@dataclass
class Trackers:
    """The sinks of a run; each gets everything."""

    sinks: list[MetricsSink]

    def log(self, row: Mapping[str, Any]) -> None:
        """Send one row of the metrics file."""
        for sink in self.sinks:
            sink.log(row)

    def catch_up(self) -> None:
        """Send the rows of the metrics file that a killed session has not sent."""
        for sink in self.sinks:
            sink.catch_up()

    def log_episodes(self, steps: int, columns: Mapping[str, Sequence[float]]) -> None:
        """Send the episodes of one evaluation, [K] of each column."""
        for sink in self.sinks:
            sink.log_episodes(steps, columns)

    def finish(self, exit_code: int, result: Mapping[str, Any]) -> None:
        """Send the contents of `result.json` and close; call this in a `finally` block."""
        for sink in self.sinks:
            sink.finish(exit_code, result)


def open_trackers(
    tracker: Tracker,
    run_directory: Path | str,
    config: Mapping[str, Any],
    names: Mapping[str, Any],
    note: Callable[[str], None],
) -> Trackers:
    """Return the trackers that `tracker.name` names.

    Args:
      tracker: the user's choice. run_directory: where trackers keep their files.
      config: the resolved config as plain containers, and other facts about the run.
      names: of the run in W&B, see `rigor.runs.wandb_sink.open_sink`.
      note: writes a line on the console and into `train.log`.

    Raises:
      UserError: W&B's mode is online and there is no key.
    """
    sinks: list[MetricsSink] = []
    if "wandb" in tracker.names:
        sinks.append(open_sink(tracker, run_directory, config, names, note))
    if "tensorboard" in tracker.names:
        sinks.append(TensorBoardSink(run_directory, config, note))
    return Trackers(sinks)
