"""What a run is made of: schemas, their registration, and the checks across groups.

Types stand here and in the modules that own the objects; values stand in `conf/`. Nothing here
imports torch, gymnasium or wandb: composing and refusing must be quick.
"""

import dataclasses
import functools
import math
import re
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import MISSING, DictConfig, OmegaConf

from rigor.envs.atari import Atari, protocol_value
from rigor.envs.generic import Generic
from rigor.errors import UserError
from rigor.maths import discount, horizons, outer, utility
from rigor.maths.horizons import Bundle
from rigor.tracking.wandb_sink import Tracker

MEMBERS = {
    "discount": ("factor", "step_factor", "mixture", "atoms"),
    "risk": ("f", "value", "direct", "oce", "needs_stock"),
}
"""What a discount and a risk measure of the user's own must have; see the two Protocols."""

MIN_ROWS = 16
"""Rows of a replay below which a stack of frames and its successor leave too little to sample."""


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

    bootstrap: `shared`: every horizon bootstraps from the one greedy action (the paper);
      `per_head`: each from its own greedy action (Fedus et al. 2019), for the mean only.
    double: which network chooses the next action, `online` (the paper) or `target` (its release).
    quantiles: number of quantiles N of every horizon.
    """

    bootstrap: str = MISSING
    double: str = MISSING
    quantiles: int = MISSING

    def __post_init__(self) -> None:
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))
        _one_of("agent.double", self.double, ("online", "target"))
        _at_least("agent.quantiles", self.quantiles, 1)


@dataclass
class Mlp:
    """A multi-layer perceptron: widths of the hidden layers."""

    hidden: list[int] = MISSING

    def __post_init__(self) -> None:
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
    huber: threshold κ of the quantile Huber loss, in learned reward units (erratum E21).
    reduction: of the loss, see `rigor.maths.quantile`.
    update_every: agent steps for one update. learning_starts: fraction without updates.
    target_every: agent steps between θ⁻ ← (1 − α) θ⁻ + α θ, with α = target_smoothing (1 copies);
    never more than a hundredth of the schedule, so that short runs learn too.
    replay_capacity: transitions kept. epsilon_start, epsilon_end: exploration, and
    epsilon_fraction: where it ends. log_every: fraction between rows of metrics.csv.
    checkpoint_every: agent steps between checkpoints (never more than a tenth of the schedule).
    """

    steps: int = MISSING
    schedule_steps: int = MISSING
    batch_size: int = MISSING
    learning_rate: float = MISSING
    learning_rate_end: float = MISSING
    adam_eps: float = MISSING
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

    def __post_init__(self) -> None:
        for key in (
            "steps",
            "schedule_steps",
            "batch_size",
            "update_every",
            "target_every",
            "checkpoint_every",
        ):
            _at_least(f"train.{key}", getattr(self, key), 1)
        for key in ("learning_rate", "learning_rate_end", "adam_eps", "log_every"):
            _positive(f"train.{key}", getattr(self, key))
        for key in ("learning_starts", "epsilon_start", "epsilon_end", "epsilon_fraction"):
            _fraction(f"train.{key}", getattr(self, key))
        _fraction("train.target_smoothing", self.target_smoothing)
        _positive("train.target_smoothing", self.target_smoothing)
        _fraction("train.log_every", self.log_every)
        if not 0 <= self.huber < math.inf:
            raise ValueError(f"train.huber={self.huber}: must be 0 (plain quantile loss) or more")
        _one_of("train.reduction", self.reduction, ("qr_dqn", "sum", "mean"))
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
    outer: Any = MISSING
    tracker: Any = MISSING
    seed: int = MISSING
    device: str = MISSING
    out: str = MISSING
    sweep: str | None = None

    @functools.cached_property
    def bundle(self) -> Bundle:
        """The horizons (Γ, w) that stand for the discount; a fit takes a second, so once a run."""
        return self.horizons.bundle(self.discount)


SCHEMAS: dict[str, tuple[type, ...]] = {
    "env": (Atari, Generic),
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
    "agent": (Learner,),
    "network": (Mlp, NatureCnn),
    "train": (Train,),
    "evaluate": (Evaluate,),
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
    ):
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def build(config: DictConfig) -> Config:
    """Turn a composed configuration into the working objects and check them together.

    Raises:
      UserError: a value out of range, or choices that cannot work together.
    """
    keys = [field.name for field in dataclasses.fields(Config)]
    built = Config(**{key: _working(key, config[key]) for key in keys})
    validate(built)
    return built


def validate(config: Config) -> None:
    """Refuse choices that cannot work together, naming both keys and the way out."""
    for group, members in MEMBERS.items():
        choice = getattr(config, group)
        if missing := [member for member in members if not hasattr(choice, member)]:
            raise UserError(
                f"{group}={_name(choice)}: has no {', '.join(missing)}; a {group} needs "
                f"{', '.join(members)}"
            )
    try:
        config.bundle  # noqa: B018  computed here, where a refusal can still be told
    except ValueError as error:
        raise UserError(_line(error)) from error
    risk, variant = config.risk, config.variant
    if variant.clock_runs and not variant.sees_time:
        raise UserError(
            "variant.sees_time=false with variant.clock_runs=true: the choice of an action depends "
            "on t, which the network would not see; set both or neither"
        )
    if not isinstance(risk, utility.Mean):
        if not config.variant.clock_runs:
            raise UserError(
                f"risk={_name(risk)} with variant=time_aware or time_inconsistent: a frozen clock "
                "adds rewards of different times; use risk=mean or variant=time_consistent"
            )
        if config.agent.bootstrap == "per_head":
            raise UserError(
                f"risk={_name(risk)} with agent.bootstrap=per_head: defined for the mean only; "
                "use risk=mean or agent.bootstrap=shared"
            )
    single = isinstance(config.horizons, horizons.Single)
    if (
        single
        and not config.variant.clock_runs
        and not isinstance(config.discount, discount.Exponential)
    ):
        raise UserError(
            f"discount={_name(config.discount)} with horizons=single and a frozen clock: defined "
            "for discount=exponential only; use agent=multihorizon or variant=time_consistent"
        )
    if config.device not in ("auto", "cpu", "cuda"):
        raise UserError(f"device={config.device}: choose auto, cpu or cuda")
    if config.seed < 0:
        raise UserError(f"seed={config.seed}: must be 0 or more")
    n_envs = config.env.num_envs
    if config.train.replay_capacity < MIN_ROWS * n_envs:
        raise UserError(
            f"train.replay_capacity={config.train.replay_capacity}: env.num_envs={n_envs} write "
            f"rows of {n_envs} transitions; needs at least {MIN_ROWS * n_envs}"
        )


def warnings(config: Config) -> list[str]:
    """Return one line for every choice that works but may not mean what it seems to."""
    lines = []
    risk, bundle = config.risk, config.bundle
    m = bundle.n_horizons
    asked = getattr(config.horizons, "m", m)
    if m != asked:
        lines.append(
            f"horizons.m={asked}: discount={_name(config.discount)} needs only {m} of them"
        )
    if bundle.fit_error:
        lines.append(
            f"discount={_name(config.discount)} stands on {m} fitted exponentials, relative error "
            f"{bundle.fit_error:.2g}"
        )
    if not isinstance(risk, utility.Mean) and m > 1:
        lines.append(
            f"risk={_name(risk)} with {m} horizons: the horizons are added quantile by quantile, "
            "a comonotone coupling that is exact for risk=mean or agent=singlehorizon only"
        )
    life_loss = getattr(config.env, "life_loss", "ignore")
    if risk.needs_stock and life_loss != "ignore":
        lines.append(
            f"risk={_name(risk)} with env.life_loss={life_loss}: c0 is chosen for whole games but "
            "the return ends at a lost life; env.life_loss=ignore fits"
        )
    tau = getattr(risk, "tau", None)
    if tau is not None and config.evaluate.final_episodes * tau < 10:
        lines.append(
            f"evaluate.final_episodes={config.evaluate.final_episodes} with risk.tau={tau}: fewer "
            f"than 10 games in the tail; evaluate.final_episodes={math.ceil(10 / tau)} would do"
        )
    return lines


def _working(group: str, node: Any) -> Any:
    """Return the working object of a group's node; a plain value is its own."""
    if not isinstance(node, DictConfig):
        return node
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        found = re.search(r"full_key: (\S+)", str(error))
        where = found.group(1) if found else group
        reason = _line(error.__cause__ or error)
        if not isinstance(error.__cause__, ValueError):
            raise UserError(f"{where}: {reason}") from error
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
    return horizons.default_quadrature(get_class(node["_target_"]))


def _default_life_loss(protocol: str, node: DictConfig) -> str:
    """The protocol's, but `ignore` where c0 is chosen for whole games."""
    needs_stock = getattr(get_class(node["_target_"]), "needs_stock", True)
    return "ignore" if needs_stock else str(protocol_value(protocol, "life_loss"))


def _name(choice: object) -> str:
    return type(choice).__name__


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
