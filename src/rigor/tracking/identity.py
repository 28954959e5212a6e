"""What makes a run the same run: the hash of its config, and the name that shows it."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# What cannot change the result, and `train.steps`: schedules hang on `train.schedule_steps`, so a
# run may be extended in place.
OUTSIDE_HASH = (
    "out",
    "device",
    "tracker",
    "sweep",
    "hydra",
    "train.steps",
    "train.graph",
    "env.threads",
)

_NAME_LIMIT = 200  # characters; file systems allow 255 bytes, and some tools add a suffix


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of a resolved config without the keys of `OUTSIDE_HASH`.

    Key order does not matter, nor how a number was typed: 1e-3 and 0.001, and 1 and 1.0, are one.
    """
    canonical = json.dumps(settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def directory_name(choices: Mapping[str, str], seed: int, digest: str) -> str:
    """Return the directory's name, such as `breakout-multihorizon-hyperbolic-mean-s0-1a2b3c4d`.

    Args:
      choices: what was chosen in each config group, in the order of the name; of a nested choice
        (`atari/breakout`) the last part counts.
      seed: the run's seed.
      digest: the config's hash, of which the name shows the first 8 digits.
    """
    parts = [choice.rstrip("/").rpartition("/")[2] for choice in choices.values()]
    safe = [re.sub(r"[^A-Za-z0-9_.=+-]+", "_", part).strip(".-") for part in parts]
    tail = f"s{seed}-{digest[:8]}"
    head = "-".join(part for part in safe if part)[: _NAME_LIMIT - len(tail) - 1].rstrip(".-")
    return f"{head}-{tail}" if head else tail


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the hash is of: every dotted key with its value, numbers in one form."""
    return {key: value for key, value in _flat(config) if not _outside(key)}


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Name the first three keys in which two configs differ, with both values."""
    left, right = settings(there), settings(here)
    keys = [
        key
        for key in sorted(left.keys() | right.keys())
        if left.get(key, "absent") != right.get(key, "absent")
    ]
    shown = [
        f"{key}: {left.get(key, 'absent')} there, {right.get(key, 'absent')} here"
        for key in keys[:3]
    ]
    return "; ".join(shown) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _flat(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, canonical value) of every leaf; an empty container is a leaf."""
    if isinstance(config, Mapping) and (config or prefix):
        if not config:
            yield prefix, {}
        for key, value in config.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, _canonical(config)


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _outside(key: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in OUTSIDE_HASH)
