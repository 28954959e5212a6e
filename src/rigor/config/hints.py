"""One line for each error of the command line, with the nearest names."""

import contextlib
import dataclasses
import difflib
import io
import posixpath
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig

from rigor.config import config, groups
from rigor.errors import UserError

_AROUND_A_LIST = "[]'\""


def line(error: HydraException) -> str:
    """Return one line for an error of Hydra: the key, the value and the nearest names."""
    first, *rest = [part.strip() for part in str(error).strip().splitlines() if part.strip()]
    text = " ".join([first, *rest])
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
    if found := re.match(r"In '(.+)/(.+)': .*Key '(\w+)' not in 'Train(Replay|Parallel)'", text):
        group, option, name, learner = found.groups()
        own, other = ("replay", "parallel") if learner == "Parallel" else ("parallel", "replay")
        return (
            f"{group}={option} with learner={other}: it sets train.{name}, a key of learner={own}; "
            f"use learner={own}"
        )
    if key := missing_key(error):
        return no_such_key(key, getattr(error.__cause__, "parent_node", None))
    if found := re.match(r"Error merging override (.+)", first):
        reason = str(error.__cause__ or "").strip().partition("\n")[0]
        if "is not a ListConfig" in reason:
            key, _, value = found.group(1).partition("=")
            reason = f"takes a list; write {key}=[{value.strip(_AROUND_A_LIST)}]"
        return f"{found.group(1)}: {reason or 'does not fit the key'}"
    return " ".join([first, *rest[:1]])


def missing_key(error: HydraException) -> str | None:
    """Return the key that the composed config lacks, if that is the error."""
    found = re.match(r"Could not override '(.+?)'", str(error).strip())
    return found.group(1) if found else None


def flags(given: list[str]) -> Namespace:
    """Parse the flags of the command line as Hydra does.

    Raises:
      UserError: a flag is unknown or lacks its value. Hydra would print its whole usage instead.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            asked = get_args_parser().parse_args(given)
    except SystemExit as end:
        if not end.code:
            raise
        reason = printed.getvalue().strip().rpartition("error: ")[2]
        raise UserError(f"{reason}; values are set by key=value, see rigor-train --help") from end
    modes = {"multirun": asked.multirun, "run": asked.run, "cfg": asked.cfg, "info": asked.info}
    if len(given := [f"--{name}" for name, value in modes.items() if value]) > 1:
        raise UserError(f"{' and '.join(given)} do not go together; leave one out")
    if asked.resolve and not asked.cfg:
        raise UserError("--resolve: resolves what --cfg shows; add --cfg job, or leave it out")
    rerun = asked.experimental_rerun
    if rerun is not None and not Path(rerun).is_file():
        raise UserError(f"--experimental-rerun={rerun}: no such file")
    return asked


def refuse_values_of_groups(overrides: list[str]) -> None:
    """Refuse `risk=null` and `=3`, on which Hydra would stop with a traceback.

    Hydra accepts lists of options, of which it merges the values, and other spellings of an option,
    such as `env=./cartpole` and the schema `risk=CVaR`, with which a run would have a second name.

    Raises:
      UserError: naming the override and the group's options.
    """
    options = groups.options()
    for override in OverridesParser.create().parse_overrides(overrides):
        group, value = override.key_or_group, override.value()
        if override.is_sweep_override() or override.is_delete() or group not in [*options, ""]:
            continue
        given = f"{override.input_line}: "
        if not group:
            raise UserError(f"{given}no such option; write key=value")
        if isinstance(value, list):
            raise UserError(f"{given}takes one option, and no list; {_choose(options[group])}")
        if not isinstance(value, str | dict):
            raise UserError(f"{given}no such option; {_choose(options[group])}")
        if isinstance(value, str) and (meant := _respelled(group, value)) != value:
            raise UserError(f"{given}no such option; did you mean {group}={meant}?")


def _respelled(group: str, option: str) -> str:
    """Return an option as `rigor-train --help` lists it, whatever else Hydra accepts for it."""
    listed = posixpath.normpath(option).removeprefix("/").removesuffix(".yaml") if option else ""
    schemas = {cls.__name__: name for name, cls in groups.options_of(group).items()}
    return schemas.get(listed, listed)


def _choose(names: Sequence[str]) -> str:
    if not names:
        return "there are none"
    return f"choose one of {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"


def _missing(file: str, known: Sequence[str]) -> str:
    """Return the line for a config file that does not exist, such as `env/atari/breakot`.

    Args:
      file: the group and the option.
      known: options of the group as Hydra lists them, which include those of `--config-dir`.
    """
    group, _, option = file.removesuffix(".yaml").partition("/")
    options = groups.options()
    if group in options:
        own = [] if "/" in option else known
        schemas = [cls.__name__ for cls in groups.SCHEMAS.get(group, ())]
        ours = options[group]
        known = ours + [name for name in own if name not in [*ours, *schemas]]
    else:  # a group of Hydra or of the user
        group, _, option = file.removesuffix(".yaml").rpartition("/")
    nearest = difflib.get_close_matches(option, known, n=3)
    tail = option.rpartition("/")[2]
    nearest += [name for name in known if name.rpartition("/")[2] == tail]
    hint = f"did you mean {' or '.join(dict.fromkeys(nearest))}?" if nearest else None
    choice = f"{group or '--config-name'}={option}"
    return f"{choice}: no such option; {hint or _choose(known)}"


def no_such_key(key: str, node: Any = None) -> str:
    """Return the line for a key that the composed config does not have.

    Args:
      key: as typed. node: the part of the config that lacks it, such as that of `discount`.
    """
    if key.startswith("hydra.launcher."):
        return _no_such_launcher_key(key, node)
    group, _, name = key.partition(".")
    target = node.get("_target_") if isinstance(node, DictConfig) else None
    options = groups.options_of(group)
    chosen = [option for option, cls in options.items() if groups.target_of(cls) == target]
    owners = [
        option
        for option, schema in options.items()
        if name in [field.name for field in dataclasses.fields(schema)]
    ]
    if group == "train" and owners:
        replays = "control_replay" in owners
        has = "a replay and a target network" if replays else "rollouts"
        learner = "replay" if replays else "parallel"
        choice = f"learner={learner}"
        return f"{key}: a key of {choice}, since only that one has {has}; add {choice}"
    if isinstance(node, DictConfig) and node._get_full_key(None) == key:  # env.kwargs={a: 1}
        return f"{key}: not all of these keys are set yet; add each with +{key}.NAME=VALUE"
    if owners:  # such as discount.k where discount=exponential was chosen
        now = f"; now {group}={chosen[0]}" if len(chosen) == 1 else ""
        return f"{key} needs {' or '.join(f'{group}={option}' for option in owners)}{now}"
    if key.startswith("env.kwargs."):
        return f"{key}: not set yet; add it with +{key}=VALUE"
    if target and not chosen:  # a class of the user
        own = [str(known) for known in node if known != "_target_"]
        nearest = difflib.get_close_matches(key.rpartition(".")[2], own, n=1)
        place = key.rpartition(".")[0]
        hint = f"did you mean {place}.{nearest[0]}?" if nearest else f"it has {', '.join(own)}"
        return f"{key}: no such key of {target}; {hint}"
    own = [known for known in _keys() if known.startswith(f"{group}.")]
    nearest = difflib.get_close_matches(key, own, n=1) or difflib.get_close_matches(
        key, _keys(), n=1
    )
    meant = " or ".join(dict.fromkeys(nearest))  # two schemas may have a key of that name
    hint = f"did you mean {meant}?" if meant else "see rigor-train --help"
    return f"{key}: no such key; {hint}"


def _no_such_launcher_key(key: str, node: Any) -> str:
    """Return the line for a key that the chosen launcher does not have; arguments as above."""
    repository = ConfigStore.instance().repo["hydra"]["launcher"]
    keys = {file.removesuffix(".yaml"): list(entry.node) for file, entry in repository.items()}
    name = key.removeprefix("hydra.launcher.")
    if owners := [f"hydra/launcher={option}" for option in keys if name in keys[option]]:
        return f"{key} needs {' or '.join(owners)}"
    own = [str(known) for known in node or () if not str(known).startswith("_")]
    known = own or [each for names in keys.values() for each in names if not each.startswith("_")]
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean hydra.launcher.{nearest[0]}?" if nearest else f"it has {', '.join(known)}"
    return f"{key}: no such key; {hint}"


def _keys() -> list[str]:
    """Return every dotted key that a schema defines."""
    keys = [field.name for field in dataclasses.fields(config.Config)]
    for group, classes in groups.SCHEMAS.items():
        keys += [f"{group}.{field.name}" for cls in classes for field in dataclasses.fields(cls)]
    return keys
