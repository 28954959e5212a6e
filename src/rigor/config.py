"""What a run is made of: the groups, their schemas' registration, and the objects they become.

Types stand in `rigor.schemas` and in the modules that own the objects; values stand in `conf/`.
Nothing here imports torch, gymnasium or wandb: composing and refusing must be quick.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import MISSING, DictConfig, OmegaConf

from rigor.envs import tables
from rigor.envs.atari import Atari, protocol_value
from rigor.envs.generic import Generic
from rigor.envs.lander import Lander
from rigor.envs.option import Put
from rigor.envs.tabular import Tabular
from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.maths import discount, horizons, outer, utility
from rigor.maths.horizons import Bundle
from rigor.schemas import (
    BackwardInduction,
    Evaluate,
    Exact,
    InfiniteHorizon,
    Learner,
    Mlp,
    NatureCnn,
    NoTraining,
    Train,
    Variant,
)
from rigor.tracking.wandb_sink import Tracker

_NO_TARGET = "{group}: its YAML file has no _target_; name the class, as in _target_: module.Class"


@dataclass
class Config:
    """A whole run. In YAML the groups are nodes; `build` turns them into the working objects.

    seed: of everything random in the run. device: auto, cpu or cuda. out: where runs go.
    sweep: name of the sweep that the run belongs to; the sweeper sets it.
    """

    env: Any = MISSING
    discount: Any = MISSING
    horizons: Any = MISSING
    risk: Any = MISSING
    variant: Any = MISSING
    agent: Any = MISSING
    network: Any = MISSING
    train: Any = MISSING
    evaluate: Any = MISSING
    exact: Any = MISSING
    outer: Any = MISSING
    tracker: Any = MISSING
    seed: int = MISSING
    device: str = MISSING
    out: str = MISSING
    sweep: str | None = None

    @property
    def learns(self) -> bool:
        """Whether the agent is a learner, not an exact one."""
        return isinstance(self.agent, Learner)

    @functools.cached_property
    def bundle(self) -> Bundle:
        """The horizons (Γ, w) that stand for the discount; a fit takes a second, so once a run."""
        return self.horizons.bundle(self.discount)


SCHEMAS: dict[str, tuple[type, ...]] = {
    "env": (Atari, Generic, Lander, Put, Tabular, Wealth),
    "discount": (
        discount.Exponential,
        discount.Hyperbolic,
        discount.GeneralizedHyperbolic,
        discount.QuasiHyperbolic,
        discount.CIR,
        discount.Capped,
        discount.TailIntegral,
    ),
    "horizons": (horizons.Single, horizons.Multi),
    "risk": (
        utility.Mean,
        utility.CVaR,
        utility.MeanCVaR,
        utility.Entropic,
        utility.MeanVariance,
    ),
    "variant": (Variant,),
    "agent": (Learner, BackwardInduction, InfiniteHorizon),
    "network": (Mlp, NatureCnn),
    "train": (Train, NoTraining),
    "evaluate": (Evaluate,),
    "exact": (Exact,),
    "outer": (outer.Outer,),
    "tracker": (Tracker,),
}


def register() -> None:
    """Register every schema as `<group>/<ClassName>` and the resolvers that `conf/` uses."""
    store = ConfigStore.instance()
    store.store(name="Config", node=Config)
    for group, classes in SCHEMAS.items():
        for cls in classes:
            store.store(group=group, name=cls.__name__, node=_with_target(cls))
    for name, resolver in (
        ("protocol", protocol_value),
        ("life_loss", _default_life_loss),
        ("quadrature", _default_quadrature),
        ("content", tables.digest),
    ):
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def build(
    config: DictConfig,
    plain: Mapping[str, Any] | None = None,
    working: dict[str, Any] | None = None,
) -> Config:
    """Turn a composed configuration into the working objects.

    Args:
      plain, working: the resolved config as plain containers, and objects built before by their
        content; those are shared and new ones added. Of a sweep's jobs most are alike.

    Raises:
      UserError: a value out of range.
    """
    built = {}
    for key in [field.name for field in dataclasses.fields(Config)]:
        if plain is None or working is None:
            built[key] = _working(key, config[key])
            continue
        content = f"{key} {json.dumps(plain[key], sort_keys=True, default=str)}"
        if content not in working:
            working[content] = _working(key, config[key])
        built[key] = working[content]
    return Config(**built)


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
        reason = _line(error.__cause__ or error)
        if not isinstance(error.__cause__, ValueError):
            raise UserError(f"{where}: {reason}") from error
        if f"{group}." not in reason:  # a class of the user's own
            reason = f"{group}: {reason}"
        # names its key as the group's own, also where it is nested, as in discount.base
        raise UserError(reason.replace(f"{group}.", f"{where}.", 1)) from error


def _with_target(cls: type) -> type:
    """Return the schema of `cls`: its fields, and the `_target_` that `build` instantiates."""
    target = f"{cls.__module__}.{cls.__qualname__}"
    return dataclasses.make_dataclass(
        cls.__name__, [("_target_", str, dataclasses.field(default=target))], bases=(cls,)
    )


def _default_quadrature(node: DictConfig) -> str:
    """The released rule where the discount has a known mixture, a fit elsewhere."""
    return horizons.default_quadrature(_class("discount", node))


def _default_life_loss(protocol: str, node: DictConfig) -> str:
    """The protocol's, but `ignore` where c0 is chosen for whole games."""
    needs_stock = getattr(_class("risk", node), "needs_stock", True)
    return "ignore" if needs_stock else str(protocol_value(protocol, "life_loss"))


def _class(group: str, node: DictConfig) -> type:
    """Return the class that a group's node names, or refuse in one line."""
    if "_target_" not in node:
        raise UserError(_NO_TARGET.format(group=group))
    try:
        return get_class(node["_target_"])
    except (ImportError, ValueError) as error:
        raise UserError(f"{group}: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
