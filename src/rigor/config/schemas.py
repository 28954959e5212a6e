"""The schemas of the groups whose objects only hold values: types, meanings, units and limits.

Values are in `conf/`. The schemas of environments, discounts, horizons, risk measures and the outer
search stand with the objects that they become. Nothing here imports torch.
"""

import math
from dataclasses import dataclass
from typing import Any

NORMS = ("none", "layer")

MOST_STEPS = 10**17
"""Agent steps that the files of a run can count."""


@dataclass
class Variant:
    """The two switches that tell the paper's three agents apart.

    Attributes:
      sees_time: t is an input of the network.
      clock_runs: the mixture weights follow the episode's clock; otherwise they stay at t = 0.
    """

    sees_time: bool
    clock_runs: bool


@dataclass
class Learner:
    """A stock-augmented agent that learns from transitions (Algorithms 2 and 3).

    Attributes:
      learns: `return_quantiles` learns quantiles of the return and applies the utility when it
        acts (the paper); `expected_utility` learns the normalised expected utility of the total
        outcome, one number for each action (`rigor.maths.expected_utility`).
      bootstrap: `shared` bootstraps every horizon from the greedy action (the paper); `per_head`
        each from its own greedy action (Fedus et al. 2019), for the mean only.
      quantiles: number of quantiles N of every horizon.
    """

    learns: str
    bootstrap: str
    quantiles: int

    def __post_init__(self) -> None:
        _one_of("agent.learns", self.learns, ("return_quantiles", "expected_utility"))
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))
        _at_least("agent.quantiles", self.quantiles, 1)


@dataclass
class BackwardInduction:
    """The exact agent of a finite problem (Theorem 1), without sampling or learning.

    Attributes:
      bootstrap: as of `Learner`; used by the exact inconsistent agent, with a frozen clock.
    """

    bootstrap: str

    def __post_init__(self) -> None:
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))


@dataclass
class InfiniteHorizon:
    """The exact agent of an infinite problem (Algorithm 1), risk neutral after T′ decisions.

    Attributes:
      bootstrap: as of `Learner`; used by the stationary inconsistent agent, with a frozen clock.
      horizon: T′, decisions planned with the discount and the risk measure as they are.
    """

    bootstrap: str
    horizon: int

    def __post_init__(self) -> None:
        _one_of("agent.bootstrap", self.bootstrap, ("shared", "per_head"))
        _at_least("agent.horizon", self.horizon, 0)


@dataclass
class Exact:
    """How exact numbers are computed where a problem has a model.

    Attributes:
      max_stocks: most stocks of one decision that are enumerated; beyond it, size of a grid.
      grid: whether an exact agent also searches the grid of `outer` for its initial stock.
    """

    max_stocks: int
    grid: bool

    def __post_init__(self) -> None:
        _at_least("exact.max_stocks", self.max_stocks, 3)


@dataclass
class NoTraining:
    """The training of an exact agent: none."""

    steps: int = 0
    schedule_steps: int = 0


@dataclass
class Mlp:
    """A multi-layer perceptron.

    Attributes:
      hidden: widths of the hidden layers.
      embedding: width of the embedding of each number of the observation, of t and of the stock, by
        a linear layer and ReLU, so that a small network represents kinks; 0 feeds the numbers
        themselves.
      rbf_features: radial basis functions for each coordinate that the environment gives, in the
        place of observation and embedding; 0: none.
      action_basis: `none` has an output for each action; `polynomial` has one for each function of
        the environment's action basis, so that similar actions share what is learned.
      normalise: whether an observation enters relative to the mean of those seen in training, in
        units of their standard deviation. Without effect on RBF features.
      norm: `layer` normalises the inputs of every ReLU over the layer's units; or `none`.
    """

    hidden: list[int]
    embedding: int
    rbf_features: int
    action_basis: str
    normalise: bool
    norm: str

    def __post_init__(self) -> None:
        _at_least("network.embedding", self.embedding, 0)
        if self.rbf_features == 1 or self.rbf_features < 0:
            raise ValueError(f"network.rbf_features={self.rbf_features}: must be 0, or 2 or more")
        if self.rbf_features and self.embedding:
            raise ValueError(
                f"network.rbf_features={self.rbf_features} with network.embedding="
                f"{self.embedding}: choose one of the two, the other 0"
            )
        _one_of("network.action_basis", self.action_basis, ("none", "polynomial"))
        _one_of("network.norm", self.norm, NORMS)
        for width in self.hidden:
            _at_least(f"network.hidden={list(self.hidden)}: width", width, 1)


@dataclass
class NatureCnn:
    """The convolutional network of Mnih et al. (2015).

    Attributes:
      hidden: width of its hidden layer.
      embedding: width of the embedding of a scalar input (t or the stock).
      norm: `layer` normalises the inputs of every ReLU, over the channels after a convolution; or
        `none`.
    """

    hidden: int
    embedding: int
    norm: str

    def __post_init__(self) -> None:
        _one_of("network.norm", self.norm, NORMS)
        _at_least("network.hidden", self.hidden, 1)
        _at_least("network.embedding", self.embedding, 1)


@dataclass
class SmallCnn:
    """One convolution and one hidden layer, for images of few pixels (Young and Tian 2019).

    Attributes:
      filters: of the convolution, each 3 × 3 pixels.
      hidden: width of the hidden layer.
      embedding: width of the embedding of a scalar input (t or the stock).
      norm: as of `NatureCnn`.
    """

    filters: int
    hidden: int
    embedding: int
    norm: str

    def __post_init__(self) -> None:
        _one_of("network.norm", self.norm, NORMS)
        _at_least("network.filters", self.filters, 1)
        _at_least("network.hidden", self.hidden, 1)
        _at_least("network.embedding", self.embedding, 1)


@dataclass
class Train:
    """What both learners need. Fractions are of `schedule_steps`.

    Attributes:
      steps: agent steps of this run. schedule_steps: agent steps over which schedules run.
      restart_schedule: whether the learning rate runs through its schedule again after every
        schedule_steps, in a run that is longer; else it stays at its end.
      batch_size: transitions of an update.
      learning_rate, adam_eps: of the optimiser; the rate moves linearly to learning_rate_end.
      weight_average: a < 1 of a polynomial-decay average of the weights, in which the newest
        weights have weight max(1 − a, 1 / (1 + n/5)) after n updates; the averaged network is
        evaluated and chooses the initial stock. 0 evaluates the newest weights.
      reward_scale: raw reward that counts as one in the network and in its loss. Stocks, risk
        measures and results stay in raw units. None follows the largest return seen, which then
        counts as 16 to 32.
      huber: threshold κ of the quantile Huber loss, in scaled reward units (erratum E21); with inf
        every error is squared, and a single quantile is the mean.
      reduction: how the terms of the loss become one number, see `rigor.maths.quantile`.
      epsilon_start, epsilon_end: probability of a random action; it moves linearly until the
        fraction epsilon_fraction.
      log_every: fraction between rows of metrics.csv.
      checkpoint_every: agent steps between checkpoints, at most a tenth of the schedule.
      precision: `fp32`; `bf16` below the network's head, in updates and where the parallel learner
        acts; or `tf32`, by which a GPU multiplies with 10 bits of the fractions. The last two
        change results.
      graph: whether a GPU records updates and replays them, equal up to rounding.
      fast: whether the fast implementations of head, loss and engine are used; the plain ones are
        equal up to rounding.
    """

    steps: int
    schedule_steps: int
    restart_schedule: bool
    batch_size: int
    learning_rate: float
    learning_rate_end: float
    adam_eps: float
    weight_average: float
    reward_scale: float | None
    huber: float
    reduction: str
    epsilon_start: float
    epsilon_end: float
    epsilon_fraction: float
    log_every: float
    checkpoint_every: int
    precision: str
    graph: bool
    fast: bool

    def __post_init__(self) -> None:
        for key in ("steps", "schedule_steps", "batch_size", "checkpoint_every"):
            _at_least(f"train.{key}", getattr(self, key), 1)
        for key in ("steps", "schedule_steps"):
            if (value := getattr(self, key)) > MOST_STEPS:
                raise ValueError(f"train.{key}={value}: must be {MOST_STEPS:.0e} or less")
        for key in ("learning_rate", "learning_rate_end", "adam_eps"):
            _positive(f"train.{key}", getattr(self, key))
        if self.reward_scale is not None:
            _positive("train.reward_scale", self.reward_scale)
        for key in ("epsilon_start", "epsilon_end", "epsilon_fraction", "log_every"):
            _fraction(f"train.{key}", getattr(self, key))
        _positive("train.log_every", self.log_every)
        if not 0 <= self.weight_average < 1:
            raise ValueError(
                f"train.weight_average={self.weight_average}: must be 0 (none) or more, and below 1"
            )
        if not self.huber >= 0:
            raise ValueError(f"train.huber={self.huber}: must be 0 (plain quantile loss) or more")
        _one_of("train.reduction", self.reduction, ("qr_dqn", "sum", "mean"))
        _one_of("train.precision", self.precision, ("fp32", "tf32", "bf16"))


@dataclass
class TrainReplay(Train):
    """`learner=replay`: updates on transitions drawn from a replay, with a target network.

    Attributes:
      double: the network that chooses the next action in the targets, `online` (the paper) or
        `target` (the paper's released code).
      n_step: most steps of a target before it bootstraps (1 in the paper); an episode's end cuts
        them.
      next_state_samples: successors of a replayed transition that are sampled from the
        environment's dynamics, so that a target averages over known noise; 1 uses the replayed one.
      update_every: agent steps for one update. learning_starts: fraction without updates.
      target_every: agent steps between θ⁻ ← (1 − α) θ⁻ + α θ, where α = target_smoothing and 1
        copies; at most a hundredth of the schedule, so that short runs learn too.
      replay_capacity: transitions.
    """

    double: str
    n_step: int
    next_state_samples: int
    update_every: int
    learning_starts: float
    target_every: int
    target_smoothing: float
    replay_capacity: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("train.double", self.double, ("online", "target"))
        for key in ("n_step", "next_state_samples", "update_every", "target_every"):
            _at_least(f"train.{key}", getattr(self, key), 1)
        for key in ("learning_starts", "target_smoothing"):
            _fraction(f"train.{key}", getattr(self, key))
        _positive("train.target_smoothing", self.target_smoothing)
        if self.n_step > 1 and self.next_state_samples > 1:
            raise ValueError(
                f"train.n_step={self.n_step} with "
                f"train.next_state_samples={self.next_state_samples}: sampled next states do not "
                "continue; use 1 for one of them"
            )
        if self.replay_capacity < self.batch_size:
            raise ValueError(
                f"train.replay_capacity={self.replay_capacity}: smaller than "
                f"train.batch_size={self.batch_size}; a batch must fit into the replay"
            )


@dataclass
class TrainParallel(Train):
    """`learner=parallel`: updates on the newest rollout, with λ-returns and no target network.

    Attributes:
      rollout_steps: steps of every copy of the environment before the network learns from them.
      epochs: passes over a rollout's transitions.
      trace_decay: λ in [0, 1]; 0 bootstraps after one step, 1 at the rollout's end.
      trace: `peng` lets λ-returns pass exploratory actions; `watkins` bootstraps there.
      max_grad_norm: to which longer gradients are shortened; inf never shortens.
    """

    rollout_steps: int
    epochs: int
    trace_decay: float
    trace: str
    max_grad_norm: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("rollout_steps", "epochs"):
            _at_least(f"train.{key}", getattr(self, key), 1)
        _fraction("train.trace_decay", self.trace_decay)
        _one_of("train.trace", self.trace, ("peng", "watkins"))
        if not self.max_grad_norm > 0:
            raise ValueError(f"train.max_grad_norm={self.max_grad_norm}: must be above 0")


@dataclass
class Evaluate:
    """The evaluation protocol: own environment and seeds, whole episodes, raw rewards.

    Attributes:
      every: fraction of the schedule between evaluations.
      episodes: of each evaluation.
      final_episodes: of the last one, at the end of the run; None plays 100, or 30/τ for a risk
        measure with a fraction `tau` below .3.
      epsilon: probability of a random action.
    """

    every: float
    episodes: int
    final_episodes: int | None
    epsilon: float

    def __post_init__(self) -> None:
        _fraction("evaluate.every", self.every)
        _positive("evaluate.every", self.every)
        _at_least("evaluate.episodes", self.episodes, 1)
        if self.final_episodes is not None:
            _at_least("evaluate.final_episodes", self.final_episodes, 1)
        _fraction("evaluate.epsilon", self.epsilon)


@dataclass
class Tracker:
    """Where metrics are mirrored.

    Attributes:
      name: `none`, or `wandb` and `tensorboard`, joined by `+` for both.
      mode: `auto` follows WANDB_MODE if it is set, and otherwise is online if there is an API key;
        `online` and `offline` force a mode.
      project: the W&B project.
      episodes: whether every evaluation also writes a table of its episodes.
    """

    name: str
    mode: str
    project: str
    episodes: bool

    def __post_init__(self) -> None:
        _one_of("tracker.name", self.name, ("none", "wandb", "tensorboard", "wandb+tensorboard"))
        _one_of("tracker.mode", self.mode, ("auto", "online", "offline"))

    @property
    def names(self) -> list[str]:
        """The trackers, empty for `none`."""
        return [] if self.name == "none" else self.name.split("+")


def _one_of(key: str, value: Any, names: tuple[str, ...]) -> None:
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
        of_run = ", a fraction of the run's steps" * key.endswith(("_every", ".every", "_fraction"))
        raise ValueError(f"{key}={value}: must lie in [0, 1]{of_run}")
