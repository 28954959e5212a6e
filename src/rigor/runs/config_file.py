"""Reading `config.yaml` of a run directory, which a user may have edited.

rigor writes it with OmegaConf and reads it with PyYAML's C parser, ten times as fast, which
matters in a report of hundreds of runs.
"""

import re
from pathlib import Path
from typing import Any

from rigor.errors import UserError

_LEAVES = (str, int, float, bool, type(None))
_NAME = re.compile(rb"(?:#[^\n]*\n)*name: ['\"]?([A-Za-z0-9_.=+-]+)['\"]?\n")
_HEAD = 1000  # bytes that hold the name


def read_config(path: Path) -> dict[str, Any]:
    """Return a config as plain containers.

    Raises:
      UserError: the file is missing, or holds something other than a config, such as aliases, which
        can stand for millions of values and which rigor never writes.
    """
    import yaml  # type: ignore[import-untyped, unused-ignore]

    from rigor.config.groups import SCHEMAS  # here, because the schemas import numpy

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        """Reads 1e-3 as a number, as OmegaConf does and YAML 1.1 does not."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
    try:
        text = path.read_bytes()
        if b"*" in text and any(
            isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=Loader)
        ):
            raise UserError(f"{path}: not a config of rigor (it has YAML aliases)")
        found = yaml.load(text, Loader=Loader)
        if not isinstance(found, dict):
            raise UserError(f"{path}: not a config, but a {type(found).__name__}")
        for key in (*SCHEMAS, "choices", "code"):
            if not isinstance(found.get(key, {}), dict):
                raise UserError(f"{path}: not a config of rigor ({key} is no mapping)")
        return {str(key): _plain(path, value) for key, value in found.items()}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path}: not a readable config ({reason})") from error


def read_name(path: Path) -> str | None:
    """Return the name that a config gives its run, read without parsing the file, or None."""
    try:
        with open(path, "rb") as file:
            found = _NAME.match(file.read(_HEAD))
    except OSError:
        return None
    return found[1].decode() if found else None


def _plain(path: Path, value: Any) -> Any:
    """Return a value of the file; refuse what a config cannot hold, such as a date or a set."""
    if isinstance(value, dict):
        return {key: _plain(path, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(path, item) for item in value]
    if not isinstance(value, _LEAVES):
        raise UserError(f"{path}: not a config of rigor (it holds a {type(value).__name__})")
    return value
