"""The config of a run: composed from the groups of `conf/`, turned into working objects.

Types are in the schemas (`rigor.config.groups`), values in `conf/`. Nothing here imports torch,
gymnasium or wandb, because composing and refusing a config must be quick.
"""

import dataclasses
import functools
import json
import math
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rigor.config.groups import SCHEMAS, option_of, target_of
from rigor.config.schemas import Learner, TrainParallel
from rigor.config.whole_numbers import accept_scientific_notation
from rigor.envs import tabular_files
from rigor.envs.atari import protocol_value
from rigor.envs.gymnasium import Gymnasium
from rigor.errors import UserError
from rigor.maths import horizons
from rigor.maths.horizons import Bundle
from rigor.maths.utility import Utility, tail_of

_NO_TARGET = "{group}: its YAML file has no _target_; name the class, as in _target_: module.Class"


MIN_TAIL = 30
"""Least number of evaluation episodes that the worst fraction τ of CVaR should average."""


def episodes_for(risk: Utility) -> int:
    """Return the number of episodes that puts MIN_TAIL of them into the tail of a risk measure."""
    return math.ceil(MIN_TAIL / tail_of(risk))


@dataclass
class Config:
    """A whole run. In YAML the groups are nodes; `build` turns them into working objects.

    Attributes:
      env ... tracker: the working object of each config group.
      seed: of all randomness in the run.
      device: where the networks live, `auto`, `cpu` or `cuda`.
      out: the directory in which run directories are made.
      sweep: name of the sweep that the run belongs to; the sweeper sets it.
      choices: the option that was chosen in each group, such as `risk: cvar`, where it is known.
    """

    env: Any
    discount: Any
    horizons: Any
    risk: Any
    variant: Any
    agent: Any
    network: Any
    train: Any
    evaluate: Any
    exact: Any
    outer: Any
    tracker: Any
    seed: int
    device: str
    out: str
    sweep: str | None = None

    def __post_init__(self) -> None:
        self.choices: Mapping[str, str] = {}  # not a field, which would be a key in YAML

    def option(self, group: str) -> str:
        """Return the name of a group's option as the user typed it, such as `cvar`."""
        return self.choices.get(group) or option_of(group, getattr(self, group))

    @property
    def env_name(self) -> str:
        """The environment as the user typed it, such as `env=gbwm` or `env.id=Acrobot-v1`."""
        if isinstance(self.env, Gymnasium):
            return f"env.id={self.env.id}"
        return f"env={self.option('env')}"

    @property
    def learns(self) -> bool:
        """Whether the agent learns, rather than solving a model exactly."""
        return isinstance(self.agent, Learner)

    @property
    def final_episodes(self) -> int:
        """Episodes of the last evaluation; null plays MIN_TAIL of them in a tail, at least 100."""
        asked = self.evaluate.final_episodes
        return max(100, episodes_for(self.risk)) if asked is None else asked

    @functools.cached_property
    def bundle(self) -> Bundle:
        """The horizons (Γ, w) whose mixture is the discount; cached, as a fit takes a second."""
        return self.horizons.bundle(self.discount)


@functools.cache
def register() -> None:
    """Register every schema as `<group>/<ClassName>` and the resolvers that `conf/` uses, once."""
    accept_scientific_notation()
    store = ConfigStore.instance()
    store.store(name="Config", node=Config)
    for group, classes in SCHEMAS.items():
        for cls in classes:
            store.store(group=group, name=cls.__name__, node=_with_target(cls))
    for name, resolver in (
        ("protocol", protocol_value),
        ("life_loss", _default_life_loss),
        ("quadrature", _default_quadrature),
        ("by_learner", _by_learner),
        ("fraction", _fraction),
        ("content", tabular_files.digest),
    ):
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def build(
    config: DictConfig,
    choices: Mapping[str, str] | None = None,
    plain: Mapping[str, Any] | None = None,
    cache: dict[str, Any] | None = None,
) -> Config:
    """Turn a composed configuration into working objects.

    Args:
      config: with every value resolved or resolvable.
      choices: the option that was chosen in each group, for messages.
      plain: the resolved config as plain containers.
      cache: working objects by their content; objects found there are shared and new ones are
        added. Most jobs of a sweep have most objects in common.

    Raises:
      UserError: a value is out of range.
    """
    built = {}
    for key in [field.name for field in dataclasses.fields(Config)]:
        if plain is None or cache is None:
            built[key] = _working(key, config[key])
            continue
        content = f"{key} {json.dumps(plain[key], sort_keys=True, default=str)}"
        if content not in cache:
            cache[content] = _working(key, config[key])
        built[key] = cache[content]
    whole = Config(**built)
    whole.choices = dict(choices or {})
    return whole


def build_stored(plain: Mapping[str, Any], file: Path) -> Config:
    """Return the working objects of a config that was read from a file, which a user may edit.

    Raises:
      UserError: a value is missing, cannot be resolved or is out of range.
    """
    try:
        return build(OmegaConf.create(dict(plain)), plain.get("choices"))
    except OmegaConfBaseException as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file}: not a config of rigor ({reason})") from error


def _working(group: str, node: Any) -> Any:
    """Return the working object of a group's node; a plain value is its own."""
    if not isinstance(node, DictConfig):
        return node
    if "_target_" not in node:
        raise UserError(_NO_TARGET.format(group=group))
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        found = re.search(r"full_key: (\S+)", str(error))
        where = found.group(1) if found else group
        reason = _in_one_line(error.__cause__ or error)
        if not isinstance(error.__cause__, ValueError):
            raise UserError(f"{where}: {reason}") from error
        if f"{group}." not in reason:  # raised by a class of the user
            reason = f"{group}: {reason}"
        # A nested object names the group's key, but the user typed, say, discount.base.k.
        raise UserError(reason.replace(f"{group}.", f"{where}.", 1)) from error


def _with_target(cls: type) -> type:
    """Return the schema of `cls`: its fields, and the `_target_` that `build` instantiates."""
    fields = [("_target_", str, dataclasses.field(default=target_of(cls)))]
    return dataclasses.make_dataclass(cls.__name__, fields, bases=(cls,))


def _default_quadrature(node: DictConfig) -> str:
    """Return the released rule if the discount is a known mixture of exponentials, else a fit."""
    return horizons.default_quadrature(_class("discount", node))


def _by_learner(node: DictConfig, replay: Any, parallel: Any) -> Any:
    """Return the value for the learner whose schema `train` has."""
    return parallel if issubclass(_class("train", node), TrainParallel) else replay


def _fraction(steps: int, schedule_steps: int, at_most: float) -> float:
    """Return the fraction of a schedule that is so many agent steps, at most a given one."""
    return min(steps / max(schedule_steps, 1), at_most)


def _default_life_loss(protocol: str, node: DictConfig) -> str:
    """Return the protocol's value, but `ignore` where c₀ is chosen for whole episodes."""
    needs_stock = getattr(_class("risk", node), "needs_stock", True)
    return "ignore" if needs_stock else str(protocol_value(protocol, "life_loss"))


def _class(group: str, node: DictConfig) -> type:
    """Return the class that a group's node names.

    Raises:
      UserError: it names none, or the class cannot be imported.
    """
    if "_target_" not in node:
        raise UserError(_NO_TARGET.format(group=group))
    try:
        found: type = pkgutil.resolve_name(node["_target_"])
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{group}: {node['_target_']}: {_in_one_line(error)}") from error
    return found


def _in_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
