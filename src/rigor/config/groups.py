"""The config groups: the schemas of each, and the options that `conf/` offers."""

import functools
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any

from omegaconf import OmegaConf

from rigor.config.schemas import (
    BackwardInduction,
    Evaluate,
    Exact,
    InfiniteHorizon,
    Learner,
    Mlp,
    NatureCnn,
    NoTraining,
    SmallCnn,
    Tracker,
    TrainParallel,
    TrainReplay,
    Variant,
)
from rigor.envs.american_put import AmericanPut
from rigor.envs.atari import Atari
from rigor.envs.gymnasium import Gymnasium
from rigor.envs.lander import Lander
from rigor.envs.minatar import MinAtar
from rigor.envs.tabular import Tabular
from rigor.envs.wealth import Wealth
from rigor.maths import discount, horizons, outer, utility

SCHEMAS: dict[str, tuple[type, ...]] = {
    "env": (Atari, MinAtar, Gymnasium, Lander, AmericanPut, Tabular, Wealth),
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
    "network": (Mlp, NatureCnn, SmallCnn),
    "train": (TrainReplay, TrainParallel, NoTraining),
    "evaluate": (Evaluate,),
    "exact": (Exact,),
    "outer": (outer.Outer,),
    "tracker": (Tracker,),
}

FAMILIES = ("atari/", "minatar/")  # options of `env` that differ in the game only

PROBLEM_KEYS = ("game", "id", "builtin")
"""The keys of `env` that name a problem; `env.path`, a file, comes before them."""


def options() -> dict[str, list[str]]:
    """Return the names of the options of every group of `conf/`."""
    root = resources.files("rigor.conf")
    groups = sorted(node.name for node in root.iterdir() if node.is_dir())
    return {group: names_in(root / group) for group in groups if not group.startswith("_")}


def names_in(folder: Traversable, prefix: str = "") -> list[str]:
    """Return the options whose YAML files a folder holds, such as `atari/pong`."""
    names = []
    for node in sorted(folder.iterdir(), key=lambda node: node.name):
        if node.is_dir():
            names += names_in(node, f"{prefix}{node.name}/")
        elif node.name.endswith(".yaml") and not node.name.startswith("_"):
            names.append(prefix + node.name.removesuffix(".yaml"))
    return names


def without_games(names: list[str]) -> list[str]:
    """Return the names with one entry, such as `atari/<game>`, instead of one for each game."""
    rest = [name for name in names if not name.startswith(FAMILIES)]
    return rest + [f"{family}<game>" for family in FAMILIES if games_of(family, names)]


def games_of(family: str, names: list[str]) -> list[str]:
    """Return the names that belong to one of `FAMILIES`."""
    return [name for name in names if name.startswith(family)]


def options_of(group: str) -> dict[str, type]:
    """Return the schema of every option of a group; the games of a family are one."""
    if group not in SCHEMAS:
        return {}
    found = {}
    for name in without_games(names_in(resources.files("rigor.conf") / group)):
        found[name] = _schema(group, name.replace("<game>", "_base"))
    return found


def target_of(schema: type) -> str:
    """Return the `_target_` of a schema."""
    return f"{schema.__module__}.{schema.__qualname__}"


def option_of(group: str, choice: Any) -> str:
    """Return the option of a working object, or its class where `conf/` has none or several."""
    cls = type(choice)
    names = [name for name, schema in options_of(group).items() if schema is cls]
    return names[0] if len(names) == 1 else target_of(cls)


def problem_name(option: str, env: Mapping[str, Any] | None) -> str | None:
    """Return the problem that a key of `env` names, or None if its option's name says it.

    An option that can be several problems has a key that says which: `gymnasium` with the id
    `ALE/Pong-v5` is Pong-v5, `tabular` with another builtin is that builtin, and with a file it has
    the file's name.

    Args:
      option: of the group `env`. env: its values, resolved.
    """
    own, env = _env_values(option), env or {}
    if "path" in own and env.get("path"):
        return PurePath(str(env["path"])).stem
    for key in PROBLEM_KEYS:
        if key in own and env.get(key) not in (None, own[key]):
            return str(env[key]).rpartition(":")[2].rpartition("/")[2] or None
    return None


@functools.cache
def _env_values(option: str) -> dict[str, Any]:
    """Return the values in the file of an option of `env`; {} for an option of the user."""
    file = resources.files("rigor.conf") / "env" / f"{option}.yaml"
    if not file.is_file():
        return {}
    found = OmegaConf.to_container(OmegaConf.create(file.read_text()))
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


@functools.cache
def _schema(group: str, option: str) -> type:
    """Return the schema of an option: the first entry of its `defaults`, or that entry's schema."""
    schemas = {schema.__name__: schema for schema in SCHEMAS.get(group, ())}
    text = (resources.files("rigor.conf") / group / f"{option}.yaml").read_text()
    first = OmegaConf.select(OmegaConf.create(text), "defaults")[0]
    name = str(first).removeprefix(f"/{group}/").partition("@")[0]
    return schemas[name] if name in schemas else _schema(group, name)
