"""The schemas of the groups that belong to no module of their own: types, meanings and limits.

The values stand in `conf/`; the schemas of environments, discounts, horizons, risks and trackers
stand with the objects that they become. Nothing here imports torch.
"""

import math
from dataclasses import dataclass

from omegaconf import MISSING


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
