"""What a run is made of: schemas, their registration, and the objects that they become.

Types stand here and in the modules that own the objects; values stand in `conf/`. Nothing here
imports torch, gymnasium or wandb: composing and refusing must be quick.
"""

import dataclasses
import functools
import json
import math
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
from rigor.tracking.wandb_sink import Tracker

_NO_TARGET = "{group}: its YAML file has no _target_; name the class, as in _target_: module.Class"


@dataclass
class Variant:
    """The two switches that tell the paper's three agents apart.

    sees_time: t is an input of the network.
    clock_runs: the readout weights follow the episode's clock; otherwise they stay at t = 0.
    """

    sees_time: bool = MISSING
    clock_runs: bool = MISSING


@dataclass
class Learner:
    """A stock-augmented quantile agent (Algorithms 2 and 3).

    learns: `returns`: the quantiles of the return, whose utility is taken when acting (the paper);
      `utility`: the expected utility of the total, one number (`rigor.maths.share`).
    bootstrap: `shared`: every horizon bootstraps from the one greedy action (the paper);
      `per_head`: each from its own greedy action (Fedus et al. 2019), for the mean only.
    double: which network chooses the next action, `online` (the paper) or `target` (its release).
    quantiles: number of quantiles N of every horizon.
    """

    learns: str = MISSING
    bootstrap: str = MISSING
    double: str = MISSING
    quantiles: int = MISSING

    def __post_init__(self) -> None:
        _one_of("agent.learns", self.learns, ("returns", "utility"))
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))
        _one_of("agent.double", self.double, ("online", "target"))
        _at_least("agent.quantiles", self.quantiles, 1)


@dataclass
class BackwardInduction:
    """The exact agent of a finite problem (Theorem 1): nothing is sampled, nothing is learned.

    bootstrap: as a learner's; with a frozen clock, of the exact inconsistent agent.
    """

    bootstrap: str = MISSING

    def __post_init__(self) -> None:
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))


@dataclass
class InfiniteHorizon:
    """The exact agent of an infinite problem (Algorithm 1), risk neutral from `horizon` on.

    bootstrap: as a learner's; with a frozen clock, of the stationary inconsistent agent.
    horizon: T′, decisions that are planned with the discount and the risk as they are.
    """

    bootstrap: str = MISSING
    horizon: int = MISSING

    def __post_init__(self) -> None:
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))
        _at_least("agent.horizon", self.horizon, 0)


@dataclass
class Exact:
    """How exact numbers are computed where a problem has a model.

    max_stocks: stocks of one decision that are enumerated; where there are more, a grid of so many.
    grid: whether an exact agent also searches the grid of `outer` for its initial stock.
    """

    max_stocks: int = MISSING
    grid: bool = MISSING

    def __post_init__(self) -> None:
        _at_least("exact.max_stocks", self.max_stocks, 3)


@dataclass
class NoTraining:
    """An exact agent takes no steps."""

    steps: int = 0


@dataclass
class Mlp:
    """A multi-layer perceptron: widths of the hidden layers.

    bumps: 0: the observation goes in as it is; else the environment's own coordinates (where its
      thresholds are, in units of the noise that is left), each spread over so many bumps.
    actions: `separate` outputs, or `smooth` in the environment's own order of its actions.
    """

    hidden: list[int] = MISSING
    bumps: int = MISSING
    actions: str = MISSING

    def __post_init__(self) -> None:
        if self.bumps == 1 or self.bumps < 0:
            raise ValueError(f"network.bumps={self.bumps}: must be 0, or 2 or more")
        _one_of("network.actions", self.actions, ("separate", "smooth"))
        for width in self.hidden:
            _at_least(f"network.hidden={list(self.hidden)}: width", width, 1)


@dataclass
class NatureCnn:
    """The network of Mnih et al. (2015): widths of its hidden layer and of a scalar's embedding."""

    hidden: int = MISSING
    embedding: int = MISSING

    def __post_init__(self) -> None:
        _at_least("network.hidden", self.hidden, 1)
        _at_least("network.embedding", self.embedding, 1)


@dataclass
class Train:
    """How the network is trained. Fractions are of `schedule_steps`.

    steps: agent steps of this run. schedule_steps: agent steps that the schedules hang on.
    batch_size: transitions an update. learning_rate, adam_eps: Adam's, the rate moving linearly to
    learning_rate_end over the schedule.
    average: share that averaged weights keep at each update, 0 for none; the averaged network is
    the one that is evaluated and chooses the initial stock.
    reward_scale: raw reward that counts as one in the network and in its loss; stocks, risks and
    results stay in raw units.
    branches: next states of a replayed transition, drawn from the environment's own dynamics, so
    that a target is an expectation over known noise; 1 takes the one that happened.
    huber: threshold κ of the quantile Huber loss, in scaled reward units (erratum E21); inf squares
    every error, and one quantile then is the mean.
    reduction: of the loss, see `rigor.maths.quantile`.
    update_every: agent steps for one update. learning_starts: fraction without updates.
    target_every: agent steps between θ⁻ ← (1 − α) θ⁻ + α θ, with α = target_smoothing (1 copies);
    never more than a hundredth of the schedule, so that short runs learn too.
    replay_capacity: transitions kept. epsilon_start, epsilon_end: exploration, and
    epsilon_fraction: where it ends. log_every: fraction between rows of metrics.csv.
    checkpoint_every: agent steps between checkpoints (never more than a tenth of the schedule).
    precision: of the network below its head in updates, `fp32` or `bf16` (faster, other numbers).
    graph: whether a GPU records its work and replays it, which changes no number.
    """

    steps: int = MISSING
    schedule_steps: int = MISSING
    batch_size: int = MISSING
    learning_rate: float = MISSING
    learning_rate_end: float = MISSING
    adam_eps: float = MISSING
    average: float = MISSING
    reward_scale: float = MISSING
    branches: int = MISSING
    huber: float = MISSING
    reduction: str = MISSING
    update_every: int = MISSING
    learning_starts: float = MISSING
    target_every: int = MISSING
    target_smoothing: float = MISSING
    replay_capacity: int = MISSING
    epsilon_start: float = MISSING
    epsilon_end: float = MISSING
    epsilon_fraction: float = MISSING
    log_every: float = MISSING
    checkpoint_every: int = MISSING
    precision: str = MISSING
    graph: bool = MISSING

    def __post_init__(self) -> None:
        for key in (
            "steps",
            "schedule_steps",
            "batch_size",
            "update_every",
            "target_every",
            "checkpoint_every",
            "branches",
        ):
            _at_least(f"train.{key}", getattr(self, key), 1)
        for key in ("learning_rate", "learning_rate_end", "adam_eps", "reward_scale", "log_every"):
            _positive(f"train.{key}", getattr(self, key))
        for key in ("learning_starts", "epsilon_start", "epsilon_end", "epsilon_fraction"):
            _fraction(f"train.{key}", getattr(self, key))
        _fraction("train.target_smoothing", self.target_smoothing)
        _positive("train.target_smoothing", self.target_smoothing)
        _fraction("train.log_every", self.log_every)
        if not 0 <= self.average < 1:
            raise ValueError(f"train.average={self.average}: must be 0 (none) or more, and below 1")
        if not self.huber >= 0:
            raise ValueError(f"train.huber={self.huber}: must be 0 (plain quantile loss) or more")
        _one_of("train.reduction", self.reduction, ("qr_dqn", "sum", "mean"))
        _one_of("train.precision", self.precision, ("fp32", "bf16"))
        if self.replay_capacity < self.batch_size:
            raise ValueError(
                f"train.replay_capacity={self.replay_capacity}: smaller than "
                f"train.batch_size={self.batch_size}; a batch must fit into the replay"
            )


@dataclass
class Evaluate:
    """The evaluation protocol: own environment and seeds, whole games, raw scores.

    every: fraction of the schedule between evaluations. episodes: games of each;
    final_episodes: games at the end. epsilon: chance of a random action.
    """

    every: float = MISSING
    episodes: int = MISSING
    final_episodes: int = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        _fraction("evaluate.every", self.every)
        _positive("evaluate.every", self.every)
        _at_least("evaluate.episodes", self.episodes, 1)
        _at_least("evaluate.final_episodes", self.final_episodes, 1)
        _fraction("evaluate.epsilon", self.epsilon)


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


def _one_of(key: str, value: str, names: tuple[str, ...]) -> None:
    if value not in names:
        raise ValueError(f"{key}={value}: choose one of {', '.join(names)}")


def _at_least(key: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"{key}={value}: must be {least} or more")


def _positive(key: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{key}={value}: must be above 0 and finite")


def _fraction(key: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{key}={value}: must lie in [0, 1]")
