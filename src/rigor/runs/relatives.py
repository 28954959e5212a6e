"""Runs that differ from a new one only in what a user may not mean to start anew."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigor.runs.identity import config_hash
from rigor.runs.job import Job

# of the schedule, and what an option may compute from it
_SCHEDULE = re.compile(
    r"^  (schedule_steps|learning_starts|epsilon_fraction): (\S+)$", re.MULTILINE
)
_CODE = re.compile(r"^code:\n((?:  .*\n)+)", re.MULTILINE)


def hint(jobs: Iterable[Job]) -> str | None:
    """Return one line about the first new run that could have been an older one, trained on.

    A raised `train.steps` makes another run, whose schedules are longer, and so does an edit of the
    user's own code. Both start at step 0, which the user should know.
    """
    for job in jobs:
        for path in _relatives(job):
            if line := _difference(job, path):
                return line
    return None


def _relatives(job: Job) -> list[Path]:
    """Return the directories of a new run's name with another hash, without those of old runs."""
    if job.path.exists() or not job.path.parent.is_dir():
        return []
    return sorted(job.path.parent.glob(f"{job.path.name[:-8]}????????"))


def _difference(job: Job, path: Path) -> str | None:
    """Return the line for a run that differs in its schedule or its code only, else None.

    The config is not parsed, because a sweep has many such directories. Its hash, which ends the
    name of the directory, tells whether nothing else differs.
    """
    try:
        text = (path / "config.yaml").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    train = job.plain.get("train") or {}
    there = _numbers(_SCHEDULE.findall(text))
    steps = int(there.get("schedule_steps", 0))
    is_longer = 0 < steps < train.get("schedule_steps", 0)
    if is_longer and _is(path, job.plain | {"train": {**train, **there}}):
        return (
            f"{path} is the same run with a schedule of {steps:,} steps; this one starts at step "
            f"0. To train that one longer, add train.schedule_steps={steps}, and "
            "train.restart_schedule=true to start the learning rate again"
        )
    code = _code(text)
    if code != job.plain.get("code", {}) and _is(path, job.plain | {"code": code}):
        return (
            f"{path} is the same run with other code of {', '.join(job.plain.get('code', code))}; "
            "this one starts at step 0"
        )
    return None


def _numbers(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    try:
        return {key: float(value) for key, value in pairs}
    except ValueError:
        return {}


def _code(text: str) -> dict[str, str]:
    block = _CODE.search(text)
    pairs = [line.strip().partition(": ") for line in block[1].splitlines()] if block else []
    return {name: digest.strip("'\"") for name, _, digest in pairs}


def _is(path: Path, plain: Mapping[str, Any]) -> bool:
    return path.name.endswith(config_hash(plain)[:8])
