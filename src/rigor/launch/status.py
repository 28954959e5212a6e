"""Status of the runs of a sweep, read from their directories."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigor.runs.directory import RunDirectory, shown
from rigor.runs.plain_text import clock, plain, short

ORDER = ("running", "queued", "done", "failed", "lost", "preempted")
"""The states of a run, in the order of the line of totals."""


@dataclass
class RunStatus:
    """State and progress of one run.

    step, steps_total: agent steps; steps_total may be unknown. rate: agent steps/s over the last
    minute. seconds_left: until the run ends. host, gpu: its machine; gpu is None on a CPU.
    error: why the run failed, was preempted or is lost, or why SLURM does not start it.
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
        """The run's `train.log`, which has the traceback of a failure."""
        return RunDirectory(self.path).log_path


def run_status(path: Path) -> RunStatus:
    """Return the status of the run in a directory."""
    run = RunDirectory(path)
    state, written = run.state(), run.status() or {}
    gone = (
        None if path.is_dir() else "its directory is gone; the command of the sweep makes it again"
    )
    error = gone or written.get("error") or run.problem()
    live: Mapping[str, Any] = written if state == "running" else {}
    return RunStatus(
        path,
        state,
        written.get("step", 0),
        written.get("steps_total"),
        live.get("steps_per_second"),
        live.get("seconds_left"),
        written.get("host"),
        live.get("gpu"),
        plain(error) if error else None,
    )


class StatusReader:
    """Reads the status of some runs repeatedly; finished runs are read once.

    tasks: empty, as no run has a task in SLURM.
    """

    tasks: Mapping[int, Any] = {}

    def __init__(self, paths: Iterable[Path]) -> None:
        self.paths = list(paths)
        self._done: dict[Path, RunStatus] = {}

    def read(self) -> list[RunStatus]:
        """Return the present status of every run."""
        statuses = [self._done.get(path) or run_status(path) for path in self.paths]
        self._done = {status.path: status for status in statuses if status.state == "done"}
        return statuses


def totals(statuses: Sequence[RunStatus]) -> str:
    """Return one line: the number of runs in each state, steps, steps/s and the time left.

    The time left is the time for all steps of running and queued runs at the present rate.
    """
    counts = Counter(status.state for status in statuses)
    states = [f"{counts[state]} {shown(state)}" for state in ORDER if counts[state]]
    done = sum(status.step for status in statuses)
    total = sum(status.steps_total or status.step for status in statuses)
    parts = [", ".join(states) + f" of {len(statuses)}"]
    if total:  # exact agents have no steps
        parts.append(f"{short(done)}/{short(total)} steps")
    if counts["running"]:
        rate = sum(status.rate or 0.0 for status in statuses)
        steps_left = sum(
            max(0, (status.steps_total or 0) - status.step)
            for status in statuses
            if status.state in ("running", "queued")
        )
        parts += [f"{short(rate)}/s", f"eta {clock(steps_left / rate if rate else None)}"]
    return "  ".join(parts)
