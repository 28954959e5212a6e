"""The meaning of a network's outputs, and how they are trained: one protocol, two implementations.

`ReturnQuantiles` are the paper's: quantiles of the return of every horizon. `ExpectedUtility`
(`rigor.learning.expected_utility`) is one number per action: the normalised expected utility of the
total outcome. The agent asks its implementation for targets, loss, greedy actions and predictions.
"""

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rigor.config.config import Config
from rigor.envs.problem import ReturnToGo
from rigor.learning import compiled_loss, fast_loss
from rigor.learning.expected_utility import ExpectedUtility
from rigor.learning.networks import ValueHead
from rigor.learning.return_to_go_seen import ReturnToGoSeen
from rigor.maths import lambda_return, objective, outer, quantile
from rigor.maths.horizons import HorizonTables
from rigor.maths.utility import Utility, is_mean

# Compiling the loss pays off if a run compares at least this many pairs of a prediction and a
# target: it saves half a nanosecond per pair, and takes half a minute the first time on a machine.
COMPILE_FROM = 1e11

# Quantiles of one part of a batch. On a CPU, parts that fit the cache make the choice of actions
# three times as fast.
PART = 100_000


class ValueTargets(Protocol):
    """What the outputs of a network mean.

    B states, each with A actions, M horizons and N numbers; `predictions` [B, A, M, N] are a
    network's outputs. Times t are int64, stocks S_t float64 in learner's reward units.

    Attributes:
      scale: learner's reward that counts as 1 in the network; 1 where outputs have no unit.
      learns_means: whether the loss fits means of targets, so that a target may be one.
    """

    scale: float
    learns_means: bool

    def compile_loss(
        self, note: Callable[[str], None], batch_size: int, n_samples: int, updates: float
    ) -> None:
        """Compile the loss, once, if the run is long enough to repay the compilation.

        Args:
          note: for a line of text. batch_size: B. n_samples: K of each target.
          updates: gradient steps of the whole schedule.
        """
        ...

    def follow(self, unit: float) -> float:
        """Let a reward count as 1, unless the config sets one; return the factor of the outputs.

        A network whose outputs are multiplied by it keeps its function.
        """
        ...

    def steps(
        self,
        t: np.ndarray,
        stock: np.ndarray,
        reward: np.ndarray,
        stock_next: np.ndarray,
        terminated: np.ndarray,
    ) -> np.ndarray:
        """Return start and slope of one-step targets start + slope · after, float64 [2, n, M].

        Args:
          t: [n]. stock, stock_next: S_t and S_{t+1}, [n].
          reward: learner's reward, [n]. terminated: bool [n].

        Start is nan where there is nothing to learn.
        """
        ...

    def after(self, predictions: Tensor) -> Tensor:
        """Return what follows a step, [n, M, N], from predictions [n, M, N] at the next state."""
        ...

    def loss(self, selected: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of the selected actions' predictions [B, M, N] at targets [B, M, N']."""
        ...

    def greedy(self, head: ValueHead, hidden: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the actions of largest value, int64 [B], at hidden units [B, H], t and S_t [B]."""
        ...

    def quantiles(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the predictions of every horizon, [B, A, M, N], learner's reward units."""
        ...

    def outcomes(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return predicted returns-to-go, float64 [B, A, N], learner's reward units."""
        ...

    def action_values(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the values by which `greedy` chooses, [B, A]."""
        ...

    def start_values(self, predictions: Tensor) -> Tensor:
        """Return what `objective` needs of K initial states, [K, A, N]."""
        ...

    def refined(self, utility: Utility, grid: Tensor, start_values: Tensor) -> np.ndarray:
        """Return further candidates for a utility, float64 [≤ G], by `start_values` on a grid."""
        ...

    def objective(self, grid: Tensor, start_values: Tensor) -> Tensor:
        """Return J(c) on a grid, float64 [G], by `start_values` at each stock, [G, K, A, N]."""
        ...

    def realised(
        self, reward: np.ndarray, terminated: np.ndarray, initial_stock: float
    ) -> np.ndarray:
        """Return the realised value of what `outcomes` predicts at L states of one episode, [L].

        Args:
          reward: learner's reward, [L]. terminated: where the bootstrap is cut, bool [L].
          initial_stock: S_0.
        """
        ...


def uses_bounds(config: Config) -> bool:
    """Tell whether an agent uses what a problem knows of its returns: with its RBF features."""
    return getattr(config.network, "rbf_features", 0) > 0


def value_targets(
    config: Config,
    tables: HorizonTables,
    bounds: ReturnToGo | ReturnToGoSeen | None,
    device: torch.device,
) -> ValueTargets:
    """Return the implementation that `agent.learns` names.

    Args:
      config: of the run. tables: of its bundle of horizons.
      bounds: of the return-to-go: the problem's, or those seen; None for quantiles without them.
      device: of the network.
    """
    if config.agent.learns == "return_quantiles":
        return ReturnQuantiles(config, tables, device)
    assert bounds is not None
    return ExpectedUtility(config, tables, bounds, device)


class ReturnQuantiles:
    """Quantiles of the discounted return of every horizon (Algorithms 2 and 3).

        y_ij = r + (1 − terminated) · step_factors_i(t) · ξ⁻_ij
        Q(s, t, S, a) = mean_j f(S + Σ_i mixture_i(t) ξ_ij) / discount(t)

    Args:
      config: of the run.
      tables: functions of time of its bundle of horizons.
      device: of the network.
    """

    def __init__(self, config: Config, tables: HorizonTables, device: torch.device) -> None:
        self.utility, self.train, self.device = config.risk, config.train, device
        self.bundle = config.bundle
        self.clock_runs = config.variant.clock_runs
        # on the device too, because a CUDA graph reads it at each replay
        self._scale = torch.ones((), dtype=torch.float64, device=device)
        self.scale = config.train.reward_scale or 1.0
        self._step_factors = tables.step_factors  # [T, M]
        self._weights = torch.tensor(tables.weights, device=device)  # w_{i,t}, [T, M]
        self._discount = torch.tensor(tables.discount, device=device)  # d̃_t, [T]
        levels = quantile.levels(config.agent.quantiles)
        self.levels = torch.tensor(levels, dtype=torch.float32, device=device)  # [N]
        self.learns_means = len(levels) == 1 and self.train.huber == math.inf
        self._kernel: fast_loss.SumOverPairs | None = None
        self._compiler_asked = not config.train.fast

    @property
    def scale(self) -> float:
        """Learner's reward that counts as 1 in the network."""
        return self._scale_on_host

    @scale.setter
    def scale(self, scale: float) -> None:
        self._scale_on_host = float(scale)
        self._scale.fill_(scale)

    def follow(self, unit: float) -> float:
        """Set `scale` unless `train.reward_scale` does, and return the factor of the outputs."""
        before = self.scale
        if self.train.reward_scale is not None or unit == before:
            return 1.0  # to write a scale on a GPU at each update would take time
        self.scale = unit
        return before / unit

    def compile_loss(
        self, note: Callable[[str], None], batch_size: int, n_samples: int, updates: float
    ) -> None:
        """Compile the loss if the run is long enough and the machine has a compiler."""
        if self._compiler_asked:
            return
        self._compiler_asked = True
        n = len(self.levels)
        n_targets = n_samples * n
        rows = batch_size * self._step_factors.shape[1]
        if updates * rows * n * n_targets < COMPILE_FROM:
            return
        note("compiling the loss (half a minute the first time on this machine)")
        try:
            self._kernel = compiled_loss.compiled_sum_over_pairs(
                rows, n_targets, self.levels, self.train.huber
            )
        except Exception as error:  # whatever a missing or broken compiler raises
            reason = str(error).strip().partition("\n")[0]
            note(f"the loss is not compiled ({reason}); the run continues, a little slower")

    def steps(
        self,
        t: np.ndarray,
        stock: np.ndarray,
        reward: np.ndarray,
        stock_next: np.ndarray,
        terminated: np.ndarray,
    ) -> np.ndarray:
        """Return scaled r and (1 − terminated) · step_factors_i(t), float64 [2, n, M]."""
        factors = self._step_factors[t]
        return np.stack(lambda_return.one_step(reward / self.scale, terminated, factors))

    def after(self, predictions: Tensor) -> Tensor:
        """Return the quantiles as they are."""
        return predictions

    def loss(self, selected: Tensor, targets: Tensor) -> Tensor:
        """Return the quantile Huber loss."""
        spec = self.train.huber, self.train.reduction
        if not self.train.fast:
            return quantile.quantile_huber_loss(selected, targets, self.levels, *spec)
        return fast_loss.fast_quantile_huber_loss(
            selected, targets, self.levels, *spec, self._kernel
        )

    def greedy(self, head: ValueHead, hidden: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return argmax_a Q(s, t, S, a), [B]; with a stock, ties go to the larger mean."""
        clock = self._clock(t)
        if is_mean(self.utility):
            means = head.means(hidden)[..., None]  # [B, A, M, 1]
            return objective.mean_values(means, self._weights[clock]).argmax(1)
        size = len(t)
        if self.train.fast and self.device.type == "cpu":
            size = max(1, PART // (head.shape[0] * head.shape[1] * head.shape[2]))
        parts = zip(hidden.split(size), clock.split(size), stock.split(size), strict=True)
        return torch.cat([self._greedy_part(head(hidden), *rest) for hidden, *rest in parts])

    def quantiles(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return ξ, [B, A, M, N]."""
        return self._scale * predictions

    def outcomes(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return z_j = Σ_i w_{i,t} ξ_ij, float64 [B, A, N].

        Horizons are added quantile by quantile, the comonotone coupling, which is exact for the
        mean and for one horizon (erratum E10).
        """
        weights = self._weights[self._clock(t)]
        return self._scale * objective.outcome(predictions.double(), weights)

    def action_values(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the ranking values of `objective.action_values`, [B, A]."""
        clock = self._clock(t)
        tables = self._weights[clock], self._discount[clock]
        return objective.action_values(self.utility, self._scale * predictions, *tables, stock)

    def start_values(self, predictions: Tensor) -> Tensor:
        """Return the outcomes at K initial states, [K, A, N]."""
        weights = self._weights[:1].expand(len(predictions), -1)
        return self._scale * objective.outcome(predictions.double(), weights)

    def refined(self, utility: Utility, grid: Tensor, start_values: Tensor) -> np.ndarray:
        """Return argmax_c of −c + E f(c + Z) for the return Z of each candidate's policy, [G]."""
        return outer.refined(utility, start_values, grid)

    def objective(self, grid: Tensor, start_values: Tensor) -> Tensor:
        """Return J(c) = −c + mean_K max_a mean_j f(c + z_j), [G]."""
        return outer.objective(self.utility, grid, start_values)

    def realised(
        self, reward: np.ndarray, terminated: np.ndarray, initial_stock: float
    ) -> np.ndarray:
        """Return Σ_i w_{i,t} G_i with G_i = r + (1 − terminated) · step_factors_i(t) · G_i′, [L].

        This is the sum that the targets sample: to the end of the episode, or to the first lost
        life where that is terminal.
        """
        times = np.arange(len(reward))
        factors = self.bundle.step_factors(times) * ~terminated[:, None]  # [L, M]
        weights = self.bundle.normalised_weights(times if self.clock_runs else 0 * times)
        returns, realised = np.zeros(factors.shape[1]), np.zeros(len(reward))
        for t in reversed(times):
            returns = reward[t] + factors[t] * returns
            realised[t] = weights[t] @ returns
        return realised

    def _greedy_part(self, quantiles: Tensor, clock: Tensor, stock: Tensor) -> Tensor:
        weights, discount = self._weights[clock], self._discount[clock]
        quantiles = self._scale * quantiles
        values = objective.action_values(self.utility, quantiles, weights, discount, stock)
        if not self.utility.needs_stock:
            return values.argmax(1)
        return objective.greedy(values, objective.mean_values(quantiles, weights))

    def _clock(self, t: Tensor) -> Tensor:
        """Return the time that the mixture weights follow: t, or 0 where the clock is frozen."""
        return t if self.clock_runs else torch.zeros_like(t)
