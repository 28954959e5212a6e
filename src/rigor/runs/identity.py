"""Identity of a run: the hash of its config, and the directory name that shows it."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Keys that cannot change the result, the names, and the keys of an extension: schedules depend on
# `train.schedule_steps`, so a run can be extended in place.
OUTSIDE_HASH = (
    "name",
    "choices",
    "out",
    "device",
    "tracker",
    "sweep",
    "hydra",
    "train.steps",
    "train.restart_schedule",
    "train.graph",
    "env.threads",
)

_NAME_LIMIT = 200  # characters; file systems allow 255 bytes, and some tools add a suffix


def config_hash(config: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of a resolved config without the keys of `OUTSIDE_HASH`.

    The hash does not depend on the order of keys or on how a number was typed: 1e-3 and 0.001 are
    equal, and so are 1 and 1.0.
    """
    canonical = json.dumps(settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def shown_names(choices: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of each choice for people: `breakout` for `atari/breakout`.

    An environment has the name of its problem: `Acrobot-v1` for `env=gymnasium env.id=Acrobot-v1`.
    """
    from rigor.config.groups import problem_name  # here, because the schemas import numpy

    names = {group: short_name(choice) for group, choice in choices.items()}
    if problem := problem_name(choices.get("env", ""), config.get("env")):
        names["env"] = problem
    return names


def directory_name(names: Mapping[str, str], seed: int, digest: str) -> str:
    """Return the directory's name, such as `breakout-multihorizon-hyperbolic-mean-s0-1a2b3c4d`.

    Args:
      names: those of `shown_names`, in the order of the directory's name.
      seed: the run's seed.
      digest: the config's hash; the name shows its first 8 digits.
    """
    parts = [short_name(name) for name in names.values()]
    safe = [re.sub(r"[^A-Za-z0-9_.=+-]+", "_", part).strip(".-") for part in parts]
    tail = f"s{seed}-{digest[:8]}"
    head = "-".join(part for part in safe if part)[: _NAME_LIMIT - len(tail) - 1].rstrip(".-")
    return f"{head}-{tail}" if head else tail


def short_name(choice: str) -> str:
    """Return how an option is shown: `breakout` for `atari/breakout`, `minatar_breakout`."""
    return choice.strip("/").removeprefix("atari/").replace("/", "_")


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hashed settings: every dotted key with its value, numbers in one form."""
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
