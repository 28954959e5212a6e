"""What the command line says: its help, and one line for an error with the nearest names."""

import dataclasses
import difflib
import re
from importlib import resources
from importlib.resources.abc import Traversable

from hydra import compose, initialize_config_module
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf

from rigor import config

HELP = """\
rigor-train: train a reinforcement-learning agent whose discounting and whose risk measure are two
independent choices.

Choices (group=option)
{choices}

Values (key=value)
{values}
Examples
  rigor-train env=atari/breakout agent=multihorizon -m seed=0,1,2
  rigor-train env=cartpole agent=multihorizon discount=hyperbolic
  rigor-train env=atari/pong agent=multihorizon risk=cvar risk.tau=0.25
  rigor-train env=atari/pong --help          the values of that choice

The same command goes on where it was stopped and skips what is done. -m sweeps over values.
Hydra's own flags: rigor-train --hydra-help
"""


def line(error: HydraException) -> str:
    """Return what is wrong in one line: the key, the value and the names that come nearest."""
    first, *rest = [part.strip() for part in str(error).strip().splitlines() if part.strip()]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(str(error.missing_cfg_file))
    if found := re.match(r"Could not override '(.+?)'", first):
        return _no_such_key(found.group(1))
    if found := re.match(r"Error merging override (.+)", first):
        return f"{found.group(1)}: {rest[0] if rest else 'does not fit the key'}"
    return " ".join([first, *rest[:1]])


def help_text(overrides: list[str]) -> str:
    """Return the help for some overrides.

    Hydra's own walks every group three times, which takes seconds with 57 games.
    """
    with initialize_config_module("rigor.conf", version_base="1.3"):
        values = OmegaConf.to_yaml(compose("train", overrides))
    shown = [f"  {line}" for line in values.splitlines() if "_target_" not in line]
    return HELP.format(choices=_choices(), values="\n".join(shown) + "\n")


def _choices() -> str:
    """Return the options of every config group, a line each."""
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


def _no_such_key(key: str) -> str:
    """Return the line for a key that no schema has."""
    nearest = difflib.get_close_matches(key, _keys(), n=3)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else "see rigor-train --help"
    return f"{key}: no such key; {hint}"


def _keys() -> list[str]:
    """Return every dotted key that a schema defines."""
    keys = [field.name for field in dataclasses.fields(config.Config)]
    for group, classes in config.SCHEMAS.items():
        keys += [f"{group}.{field.name}" for cls in classes for field in dataclasses.fields(cls)]
    return keys
