"""The help of `rigor-train`: the options of every group, and the values with their meanings."""

import contextlib
import re
import shutil
import textwrap
from pathlib import Path

from docstring_parser import DocstringStyle, parse
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor.config import groups
from rigor.config.config import Config
from rigor.errors import UserError

HELP = """\
rigor-train: train a reinforcement-learning agent whose discount and risk measure are two
independent choices.

Choices (group=option)
{choices}

Values (key=value)
{values}
Examples
  rigor-train env=atari/breakout agent=multihorizon -m seed=0,1,2
  rigor-train env=cartpole agent=multihorizon discount=hyperbolic
  rigor-train env=atari/pong agent=multihorizon risk=cvar risk.tau=0.25
  rigor-train env=atari/pong --help          its values

Several runs at once (with -m)
  hydra/launcher=local       processes on this machine, hydra.launcher.n_jobs=N of them at a time
                             (default: its cores); without it they run one after the other
  hydra/launcher=slurm       submitted to a cluster; hydra.launcher.dry_run=true shows it first
  rigor-sweep status DIR     progress of a sweep; rigor-sweep retry DIR repeats unfinished runs

The same command resumes a stopped run and skips finished ones. -m sweeps over values.
Hydra's own flags: rigor-train --hydra-help
"""

MOST_COLUMNS = 110
TEXT_COLUMN = 34


def help_text(overrides: list[str], config_dir: str | None = None) -> str:
    """Return the help, with the values that some overrides give.

    Hydra's own help walks every group three times, which takes seconds with 57 Atari games.

    Args:
      overrides: of the command line; those that sweep are ignored.
      config_dir: directory with options of the user.

    Raises:
      UserError: there is no such directory.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir={config_dir}: no such directory")
    parsed = OverridesParser.create().parse_overrides(overrides)
    single = [part.input_line for part in parsed if not part.is_sweep_override()]
    given = [line for line in single if line]
    if config_dir is not None:
        given.append(f"hydra.searchpath=['file://{Path(config_dir).absolute()}']")
    with initialize_config_module("rigor.conf", version_base="1.3"):
        values = compose("train", given)
    width = min(shutil.get_terminal_size().columns, MOST_COLUMNS)
    shown = textwrap.indent("\n".join(explained(values, width - 2)), "  ")
    choices = _choices(Path(config_dir) if config_dir else None)
    return HELP.format(choices=choices, values=shown + "\n")


def explained(values: DictConfig, width: int) -> list[str]:
    """Return the lines of a config, each key with the first sentence on it in its class."""
    lines: list[str] = []
    meanings: dict[str, str] = {}
    for line in _yaml(values).splitlines():
        indent, key = len(line) - len(line.lstrip()), line.strip().partition(":")[0]
        text = ""
        if indent == 0 and isinstance(node := OmegaConf.select(values, key), DictConfig):
            cls = _class_of(node)
            meanings, text = _meanings(cls), _first_sentence(cls.__doc__ or "")
        elif indent == 0:
            text = _meanings(Config).get(key, "")
        elif indent == 2:
            text = meanings.get(key, "")
        if key != "_target_":
            lines += _beside(line, text, width)
    return lines


def _yaml(values: DictConfig) -> str:
    """Return a config as text, without references if what they refer to has a value."""
    try:
        return OmegaConf.to_yaml(values, resolve=True)
    except OmegaConfBaseException:
        return OmegaConf.to_yaml(values)


def _beside(line: str, text: str, width: int) -> list[str]:
    """Return a line of a config with a text on its right, on as many lines as that needs."""
    parts = textwrap.wrap(text, width - TEXT_COLUMN - 2)
    if not parts:
        return [line]
    if len(line) >= TEXT_COLUMN:
        return [line, *(f"{'':{TEXT_COLUMN}}# {part}" for part in parts)]
    starts = [line, *[""] * (len(parts) - 1)]
    return [f"{start:{TEXT_COLUMN}}# {part}" for start, part in zip(starts, parts, strict=True)]


def _class_of(node: DictConfig) -> type:
    """Return the class of a group's node; `object` where it has none that can be imported."""
    with contextlib.suppress(Exception):  # whatever a user's module raises; a run names it
        return get_class(node["_target_"])
    return object


def _meanings(cls: type) -> dict[str, str]:
    """Return the first sentence on each attribute in the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        for part in parse(base.__doc__ or "", DocstringStyle.GOOGLE).params:
            for name in part.arg_name.split(", "):
                found[name] = _first_sentence(part.description or "")
    return found


def _first_sentence(text: str) -> str:
    return re.split(r"(?<!et al)(?<![.])[.](?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def _choices(config_dir: Path | None) -> str:
    """Return the options of every group, a line each, with those in the user's directory."""
    named = groups.options()
    for folder in sorted(config_dir.iterdir()) if config_dir else ():
        if folder.is_dir():
            own = named.setdefault(folder.name, [])
            own += [name for name in groups.names_in(folder) if name not in own]
    whole = named["env"]
    named["env"] = groups.without_games(whole)
    text = "\n".join(f"  {group}: {', '.join(names)}" for group, names in named.items() if names)
    for family in groups.FAMILIES:
        n = len(groups.games_of(family, whole))
        text = text.replace(f" {family}<game>", f" {family}<game> ({n} games)")
    return text
