"""The agent that learns the normalised expected utility; see `ValueTargets` for its methods."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rigor.config.config import Config
from rigor.envs.problem import ReturnToGo
from rigor.learning.networks import ValueHead
from rigor.learning.return_to_go_seen import ReturnToGoSeen
from rigor.maths import expected_utility
from rigor.maths.horizons import HorizonTables
from rigor.maths.utility import Utility

SMALLEST_DISCOUNT = 1e-300  # divides utility gains that are 0, at times that no episode reaches


class ExpectedUtility:
    """The normalised expected utility of the total outcome, one number an action.

    The network's output x is its logit, σ = 1/(1 + e^{−x}) (`rigor.maths.expected_utility`): the
    prediction stays between the possible utilities, and small probabilities are learned in
    proportion. The loss is the cross-entropy, whose minimum is the mean of the targets.
    `train.huber`, `train.reduction` and `train.reward_scale` have no effect.

    L_t and H_t are the problem's, or d̃_t times the least and the most that training has seen come
    after a step, seen from that step. Where more is seen, σ means another number from then on, and
    the network learns it anew: seldom, once there were many episodes.

    Args:
      config: of the run. tables: of its bundle of one horizon.
      bounds: of the return-to-go: the problem's, or those seen. device: of the network.
    """

    scale = 1.0
    learns_means = True

    def __init__(
        self,
        config: Config,
        tables: HorizonTables,
        bounds: ReturnToGo | ReturnToGoSeen,
        device: torch.device,
    ) -> None:
        self.utility = config.risk
        self._seen = bounds if isinstance(bounds, ReturnToGoSeen) else None
        if isinstance(bounds, ReturnToGo):
            self._known = np.stack([bounds.low, bounds.high])  # [2, T]
        self._discounts = tables.discount
        self._discount = torch.tensor(tables.discount, device=device)  # d̃_t, [T]

    def compile_loss(
        self, note: Callable[[str], None], batch_size: int, n_samples: int, updates: float
    ) -> None:
        """Do nothing: the loss has one number an action."""

    def follow(self, unit: float) -> float:
        """Return 1: the outputs have no unit."""
        return 1.0

    def steps(
        self,
        t: np.ndarray,
        stock: np.ndarray,
        reward: np.ndarray,
        stock_next: np.ndarray,
        terminated: np.ndarray,
    ) -> np.ndarray:
        """Return start and slope of `expected_utility.recursion`, float64 [2, n, 1].

        Start is nan where the outcome is determined.
        """
        bootstraps = ~terminated
        now, (low, high) = self._bounds(t), self._bounds(t + 1)
        after = bootstraps * low, bootstraps * high
        found = expected_utility.recursion(self.utility, stock, now, stock_next, after)
        start = np.where(found.undetermined, found.start, np.nan)
        return np.stack([start, found.slope])[..., None]

    def after(self, predictions: Tensor) -> Tensor:
        """Return the normalised expected utility σ of logits."""
        return predictions.sigmoid()

    def loss(self, selected: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of logits [B, 1, 1] and the means of targets [B, 1, K]."""
        target = targets.mean(-1, keepdim=True)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            selected,
            target.nan_to_num().clamp(0.0, 1.0),
            weight=(~target.isnan()).to(selected.dtype),
        )

    def greedy(self, head: ValueHead, hidden: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the action of the largest logit, [B]."""
        return head.means(hidden)[..., 0].argmax(1)

    def quantiles(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the expected utility gain, [B, A, 1, 1]."""
        return self.outcomes(predictions, t, stock)[:, :, None]

    def outcomes(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the expected utility gain (E f(S_T) − f(S_t)) / discount(t), float64 [B, A, 1].

        For the mean this is the expected return-to-go.
        """
        least, most = expected_utility.utility_bounds(self.utility, stock, *self._bounds(t))
        fractions = predictions[:, :, 0].double().sigmoid()  # σ, [B, A, 1]
        expected = least[:, None, None] + (most - least)[:, None, None] * fractions
        gain = expected - self.utility.f(stock)[:, None, None]
        return gain / self._discount[t][:, None, None].clamp(min=SMALLEST_DISCOUNT)

    def action_values(self, predictions: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the expected utility gain of every action, [B, A]."""
        return self.outcomes(predictions, t, stock)[..., 0]

    def start_values(self, predictions: Tensor) -> Tensor:
        """Return σ at K initial states, [K, A, 1]."""
        return predictions[:, :, 0].double().sigmoid()

    def refined(self, utility: Utility, grid: Tensor, start_values: Tensor) -> np.ndarray:
        """Return no candidate: an expected utility tells nothing about the return's quantiles."""
        return np.zeros(0)

    def objective(self, grid: Tensor, start_values: Tensor) -> Tensor:
        """Return J(c) = −c + E f(S_T), [G], with E f(S_T) from σ and the utility bounds at c."""
        fractions = start_values[..., 0].amax(-1).mean(-1)  # [G]
        least, most = expected_utility.utility_bounds(self.utility, grid, *self._bounds(0))
        return least + (most - least) * fractions - grid

    def realised(
        self, reward: np.ndarray, terminated: np.ndarray, initial_stock: float
    ) -> np.ndarray:
        """Return the utility gain from each state to the episode's end, over discount(t), [L]."""
        t = np.arange(len(reward))
        discount = self._discount[: len(reward)].cpu().numpy()
        stocks = initial_stock + np.concatenate(
            [[0.0], np.cumsum(discount * reward)]
        )  # S_0 ... S_L
        ends = np.flatnonzero(terminated | (t == t[-1]))
        end = ends[np.searchsorted(ends, t)]  # the last step before the bootstrap is cut
        f = self.utility.f
        return (f(stocks[end + 1]) - f(stocks[t])) / np.maximum(discount, SMALLEST_DISCOUNT)

    def _bounds(self, t: Any) -> Any:
        """Return L_t and H_t at times t, float64; tensors where t is one."""
        on_device = isinstance(t, Tensor)
        if self._seen is not None:
            discount = (self._discount if on_device else self._discounts)[t]
            return self._seen.low * discount, self._seen.high * discount
        known = torch.as_tensor(self._known, device=t.device) if on_device else self._known
        return known[:, t]
