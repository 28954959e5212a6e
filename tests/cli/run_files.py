"""What a run leaves on disk, for tests of the real command line."""

import csv
import json
from pathlib import Path

CONTRACT = {
    "config.yaml",
    "status.json",
    "metrics.csv",
    "result.json",
    "checkpoints",
    "train.log",
    # the summary of a run outside a sweep, and the lock
    "table.txt",
    "learning_curves.png",
    ".lock",
}
RESULT = {
    "objective",
    "objective_low",
    "objective_high",
    "objective_bundle",
    "score",
    "score_low",
    "score_high",
    "episodes",
    "steps",
    "frames",
    "seconds",
    "config_hash",
    "commit",
    "versions",
}
WALL_CLOCK = {"seconds", "steps_per_second"}
ANSI = "\x1b"


def runs(out: Path) -> list[Path]:
    """The run directories in `out`, by name."""
    return sorted(path for path in out.iterdir() if path.name != "sweeps") if out.exists() else []


def only(out: Path) -> Path:
    (run,) = runs(out)
    return run


def read(path: Path):
    return json.loads(path.read_text())


def rows(run: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without their wall-clock columns."""
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]
