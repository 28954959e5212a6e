"""The object of one option of `conf/`, without composing a whole config."""

import dataclasses
import difflib
from importlib import resources
from typing import Any

from omegaconf import OmegaConf

from rigor.config.config import register
from rigor.config.groups import SCHEMAS
from rigor.config.schemas import TrainReplay


def option(group: str, name: str, **changes: Any) -> Any:
    """Return the working object of an option, with some of its keys changed.

    Args:
      group, name: such as `env` and `minatar/breakout`.
      changes: values by key.

    Raises:
      TypeError: the option has no such key.
      ValueError: a value is out of range.
    """
    register()  # the resolvers
    schema, values = _values(group, name)
    node = OmegaConf.merge(OmegaConf.structured(schema), values)
    keys = [field.name for field in dataclasses.fields(schema)]
    if unknown := [key for key in changes if key not in keys]:
        near = difflib.get_close_matches(unknown[0], keys, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(keys)}"
        raise TypeError(f"{group}={name} has no key {unknown[0]}; {hint}")
    # the number of copies, for one, depends on the learner
    learner = {"_target_": f"{TrainReplay.__module__}.{TrainReplay.__qualname__}"}
    root = OmegaConf.create({"train": learner})
    root[group] = OmegaConf.merge(node, changes)
    return OmegaConf.to_object(root[group])


def _values(group: str, name: str) -> tuple[type, Any]:
    """Return an option's schema and its values, those of the options that it extends included."""
    schemas = {schema.__name__: schema for schema in SCHEMAS[group]}
    text = (resources.files("rigor.conf") / group / f"{name}.yaml").read_text()
    values: Any = OmegaConf.create(text)
    base = str(values.pop("defaults")[0]).removeprefix(f"/{group}/").partition("@")[0]
    if base in schemas:
        return schemas[base], values
    schema, inherited = _values(group, base)
    return schema, OmegaConf.merge(inherited, values)
