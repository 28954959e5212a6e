"""One line for an error of Hydra, with the nearest names that exist."""

import difflib
import re
from importlib import resources
from importlib.resources.abc import Traversable

from hydra.errors import HydraException, MissingConfigException

from rigor import config


def line(error: HydraException) -> str:
    """Return what is wrong in one line: the key, the value and the names that come nearest."""
    first, *rest = [part.strip() for part in str(error).strip().splitlines() if part.strip()]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(str(error.missing_cfg_file))
    if found := re.match(r"Could not override '(.+?)'", first):
        return _override(found.group(1), " ".join(rest))
    return " ".join([first, *rest[:1]])


def choices() -> str:
    """Return the options of every config group, a line each, for `rigor-train --help`."""
    options = _options()
    games = [name for name in options["env"] if name.startswith("atari/")]
    options["env"] = [name for name in options["env"] if name not in games]
    options["env"].append(f"atari/<game> ({len(games)} games)")
    return "\n".join(f"  {group}: {', '.join(names)}" for group, names in options.items())


def _options() -> dict[str, list[str]]:
    """Return the options of every group of `conf/`."""
    root = resources.files("rigor.conf")
    groups = sorted(node.name for node in root.iterdir() if node.is_dir())
    found = {group: _names(root / group) for group in groups}
    return {group: names for group, names in found.items() if names}


def _names(folder: Traversable, prefix: str = "") -> list[str]:
    names = []
    for node in sorted(folder.iterdir(), key=lambda node: node.name):
        if node.is_dir():
            names += _names(node, f"{prefix}{node.name}/")
        elif node.name.endswith(".yaml") and not node.name.startswith("_"):
            names.append(prefix + node.name.removesuffix(".yaml"))
    return names


def _missing(file: str) -> str:
    """Return the line for a config file that does not exist, such as `env/atari/breakot`."""
    group, _, option = file.removesuffix(".yaml").partition("/")
    options = _options()
    if group not in options:
        return f"{file}: no such group; choose one of {', '.join(options)}"
    nearest = difflib.get_close_matches(option, options[group], n=3)
    tail = option.rpartition("/")[2]
    nearest += [name for name in options[group] if name.rpartition("/")[2] == tail]
    hint = f"did you mean {' or '.join(dict.fromkeys(nearest))}?" if nearest else None
    listed = ", ".join(options[group][:12]) + (", ..." if len(options[group]) > 12 else "")
    return f"{group}={option}: no such option; {hint or f'choose one of {listed}'}"


def _override(key: str, reason: str) -> str:
    """Return the line for a value that could not be set."""
    if "not in struct" in reason or "not in '" in reason or "does not exist" in reason:
        nearest = difflib.get_close_matches(key, _keys(), n=3)
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "see rigor-train --help"
        return f"{key}: no such key; {hint}"
    return f"{key}: {re.sub(r' ?(full_key|object_type|reference_type).*', '', reason)}"


def _keys() -> list[str]:
    """Return every dotted key that a schema defines."""
    import dataclasses

    keys = [field.name for field in dataclasses.fields(config.Config)]
    for group, classes in config.SCHEMAS.items():
        keys += [f"{group}.{field.name}" for cls in classes for field in dataclasses.fields(cls)]
    return keys
