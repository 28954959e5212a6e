"""What the command line says: its help, and one line for an error with the nearest names."""

import contextlib
import dataclasses
import difflib
import io
import re
from argparse import Namespace
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from hydra import compose, initialize_config_module
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from rigor import config
from rigor.errors import UserError

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

Several runs at once (with -m)
  hydra/launcher=local       processes on this machine, hydra.launcher.n_jobs=N of them at a time
                             (default: its cores); without it they run one after the other
  hydra/launcher=slurm       submitted to a cluster; hydra.launcher.dry_run=true shows it first
  rigor-sweep status DIR     how far a sweep is; rigor-sweep retry DIR runs again what is not done

The same command goes on where it was stopped and skips what is done. -m sweeps over values.
Hydra's own flags: rigor-train --hydra-help
"""


def line(error: HydraException) -> str:
    """Return what is wrong in one line: the key, the value and the names that come nearest."""
    first, *rest = [part.strip() for part in str(error).strip().splitlines() if part.strip()]
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing(str(error.missing_cfg_file), error.options or ())
    if isinstance(error, OverrideParseException):
        reason = "" if "Lexer" in first else f" ({rest[0]})"
        way_out = """odd characters need quotes: 'key="~/a b"'"""
        return f"{error.override}: not of the form key=value{reason}; {way_out}"
    if found := re.match(r"Ambiguous value for argument '(.+)'", first):
        key, _, values = found.group(1).partition("=")
        way_out = f"add -m to sweep over them; where a key takes a list it is {key}=[{values}]"
        return f"{found.group(1)}: several values; {way_out}"
    if found := re.match(r"Could not override '(.+?)'", first):
        return no_such_key(found.group(1))
    if found := re.match(r"Error merging override (.+)", first):
        reason = str(error.__cause__ or "").strip().partition("\n")[0]
        return f"{found.group(1)}: {reason or 'does not fit the key'}"
    return " ".join([first, *rest[:1]])


def flags(given: list[str]) -> Namespace:
    """Return Hydra's reading of the command line's flags.

    Raises:
      UserError: one that does not exist, or has no value; Hydra would print its usage.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            asked = get_args_parser().parse_args(given)
    except SystemExit as end:
        if not end.code:
            raise
        reason = said.getvalue().strip().rpartition("error: ")[2]
        raise UserError(f"{reason}; values are set by key=value, see rigor-train --help") from end
    one_of = {name: getattr(asked, name) for name in ("multirun", "run", "cfg", "info")}
    if sum(map(bool, one_of.values())) > 1:
        named = " and ".join(f"--{name}" for name, value in one_of.items() if value)
        raise UserError(f"{named} do not go together; leave one out")
    return asked


def refuse_values_of_groups(overrides: list[str]) -> None:
    """Refuse `risk=null` and `=3`, which Hydra takes for groups and stumbles over.

    Raises:
      UserError: naming the override and the group's options.
    """
    options = _options()
    for override in OverridesParser.create().parse_overrides(overrides):
        group = override.key_or_group
        if override.is_sweep_override() or override.is_delete() or group not in [*options, ""]:
            continue
        if not isinstance(override.value(), str | list | dict):
            way_out = _choose(options[group]) if group else "write key=value"
            raise UserError(f"{override.input_line}: no such option; {way_out}")


def help_text(overrides: list[str], config_dir: str | None = None) -> str:
    """Return the help for some overrides, those that sweep left out.

    Hydra's own walks every group three times, which takes seconds with 57 games.

    Raises:
      UserError: there is no such `config_dir`.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise UserError(f"--config-dir={config_dir}: no such directory")
    parsed = OverridesParser.create().parse_overrides(overrides)
    own = [one.input_line for one in parsed if one.input_line and not one.is_sweep_override()]
    if config_dir is not None:
        own.append(f"hydra.searchpath=['file://{Path(config_dir).absolute()}']")
    with initialize_config_module("rigor.conf", version_base="1.3"):
        values = OmegaConf.to_yaml(compose("train", own))
    shown = [f"  {line}" for line in values.splitlines() if "_target_" not in line]
    choices = _choices(Path(config_dir) if config_dir else None)
    return HELP.format(choices=choices, values="\n".join(shown) + "\n")


def _choices(config_dir: Path | None) -> str:
    """Return the options of every config group, a line each, with those of the user's directory."""
    options = _options()
    for folder in sorted(config_dir.iterdir()) if config_dir else ():
        if folder.is_dir():
            own = options.setdefault(folder.name, [])
            own += [name for name in _names(folder) if name not in own]
    games = [name for name in options["env"] if name.startswith("atari/")]
    options["env"] = [name for name in options["env"] if name not in games]
    options["env"].append(f"atari/<game> ({len(games)} games)")
    return "\n".join(f"  {group}: {', '.join(names)}" for group, names in options.items() if names)


def _options() -> dict[str, list[str]]:
    """Return the options of every group of `conf/`."""
    root = resources.files("rigor.conf")
    groups = sorted(node.name for node in root.iterdir() if node.is_dir())
    return {group: _names(root / group) for group in groups if not group.startswith("_")}


def _names(folder: Traversable, prefix: str = "") -> list[str]:
    names = []
    for node in sorted(folder.iterdir(), key=lambda node: node.name):
        if node.is_dir():
            names += _names(node, f"{prefix}{node.name}/")
        elif node.name.endswith(".yaml") and not node.name.startswith("_"):
            names.append(prefix + node.name.removesuffix(".yaml"))
    return names


def _choose(names: Sequence[str]) -> str:
    if not names:
        return "there are none"
    return f"choose one of {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"


def _missing(file: str, known: Sequence[str]) -> str:
    """Return the line for a config file that does not exist, such as `env/atari/breakot`.

    Args:
      file: the group and the option. known: the group's options, as Hydra found them.
    """
    group, _, option = file.removesuffix(".yaml").partition("/")
    options = _options()
    if group in options:
        own = [] if "/" in option else known  # with those of the user's --config-dir
        schemas = [cls.__name__ for cls in config.SCHEMAS.get(group, ())]
        ours = options[group]
        known = ours + [name for name in own if name not in [*ours, *schemas]]
    else:  # one of Hydra's, or of the user's
        group, _, option = file.removesuffix(".yaml").rpartition("/")
    nearest = difflib.get_close_matches(option, known, n=3)
    tail = option.rpartition("/")[2]
    nearest += [name for name in known if name.rpartition("/")[2] == tail]
    hint = f"did you mean {' or '.join(dict.fromkeys(nearest))}?" if nearest else None
    choice = f"{group or '--config-name'}={option}"
    return f"{choice}: no such option; {hint or _choose(known)}"


def no_such_key(key: str) -> str:
    """Return the line for a key that the composed config does not have."""
    group, _, name = key.partition(".")
    owners = [
        cls.__name__
        for cls in config.SCHEMAS.get(group, ())
        if name in [field.name for field in dataclasses.fields(cls)]
    ]
    if owners:  # such as discount.k where discount=exponential was chosen
        return f"{key}: no key of this choice of {group}, but of {', '.join(owners)}"
    if key.startswith("env.kwargs."):
        return f"{key}: not there yet; add it with +{key}=VALUE"
    own = [one for one in _keys() if one.startswith(f"{group}.")]
    nearest = difflib.get_close_matches(key, own, n=1) or difflib.get_close_matches(key, _keys())
    meant = " or ".join(dict.fromkeys(nearest))  # two schemas may have a key of that name
    hint = f"did you mean {meant}?" if meant else "see rigor-train --help"
    return f"{key}: no such key; {hint}"


def _keys() -> list[str]:
    """Return every dotted key that a schema defines."""
    keys = [field.name for field in dataclasses.fields(config.Config)]
    for group, classes in config.SCHEMAS.items():
        keys += [f"{group}.{field.name}" for cls in classes for field in dataclasses.fields(cls)]
    return keys
