"""Reading the small JSON files of a run directory, which a crash or an editor may have broken."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATES = ("queued", "running", "done", "failed", "preempted")
"""The states that a run writes into `status.json`."""

_MOST = 2**63  # a step count beyond it is no step count, and breaks arithmetic
_NUMBERS = ("step", "steps_total", "steps_per_second", "seconds_left", "restarts")
_WHOLE = ("step", "steps_total", "restarts")
_TEXTS = ("started", "updated", "host", "gpu", "commit", "error", "task")
_SHOWN = 40  # characters of a wrong value


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None when it is missing, broken or no object."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # the last one from nested brackets
        return None
    return found if isinstance(found, dict) else None


def fits(values: Mapping[str, Any]) -> bool:
    """Return whether every whole number of a result is one that a run writes.

    JSON can hold integers that no float can, and arithmetic with them raises an OverflowError.
    """
    return all(abs(value) < _MOST for value in values.values() if type(value) is int)


def status_problem(status: Mapping[str, Any]) -> str | None:
    """Return the first value of a status that no run writes, such as `step=null`, or None."""
    if "state" in status and status["state"] not in STATES:
        return _named(status, "state")
    for key in _NUMBERS:
        value: Any = status.get(key)
        if value is None and (key != "step" or key not in status):
            continue
        allowed = (int,) if key in _WHOLE else (int, float)
        if type(value) not in allowed or not 0 <= value < _MOST:  # neither NaN nor infinity
            return _named(status, key)
    for key in _TEXTS:
        if not isinstance(status.get(key), str | None):
            return _named(status, key)
    return None


def _named(status: Mapping[str, Any], key: str) -> str:
    value = json.dumps(status[key])
    return f"{key}={value if len(value) <= _SHOWN else value[:_SHOWN] + '...'}"
