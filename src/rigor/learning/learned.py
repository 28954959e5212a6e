"""What a network's numbers mean: quantiles of returns, or shares of the utility still possible.

Either says how a target follows from the prediction at the next state, what the loss is, and what
the numbers say of the total outcome. The agent does the rest alike.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rigor.config import Config
from rigor.learning.ahead import Ahead
from rigor.maths import objective, outer, quantile, share
from rigor.maths.outer import InitialStock
from rigor.maths.utility import Mean

# Pairs of a prediction and a target in a whole run from which a compiled loss pays: it saves half a
# nanosecond a pair, and compiling takes half a minute on a machine that has not done it before.
COMPILE_FROM = 1e11

LEAST_MASS = 1e-300  # divides the gains, all 0, of a time that does not count


class Returns:
    """Quantiles of the discounted return, of every horizon (Algorithms 2 and 3).

        target_ij = r + (1 − terminated) · backup_i(t) · ξ⁻_ij
        Q(s, t, S, a) = mean_j f(S + Σ_i readout_i(t) ξ_ij) / mass(t)

    Args:
      config: of the run. backup: factors of every horizon, [T, M]. device: of the network.
    """

    def __init__(self, config: Config, backup: np.ndarray, device: torch.device) -> None:
        self.utility, self.train, self.device = config.risk, config.train, device
        self.by_means = isinstance(self.utility, Mean)  # whether means alone rank the actions
        self.scale = config.train.reward_scale
        self._backup = torch.tensor(backup, dtype=torch.float32, device=device)  # [T, M]
        levels = quantile.levels(config.agent.quantiles)
        self.levels = torch.tensor(levels, dtype=torch.float32, device=device)  # [N]
        self._pairs: quantile.Pairs | None = None
        self._looked_for_compiler = False

    def compile_loss(self, note: Callable[[str], None]) -> None:
        """Compile the loss if the run is long enough to earn it and the machine has a compiler.

        Does so once; call it when learning begins, for the first step need not wait for it.
        """
        if self._looked_for_compiler:
            return
        self._looked_for_compiler = True
        train, n = self.train, len(self.levels)
        n_targets = train.branches * n
        rows = train.batch_size * self._backup.shape[1]
        pairs = train.schedule_steps / train.update_every * rows * n * n_targets
        if pairs < COMPILE_FROM:
            return
        note("compiling the loss: seconds, half a minute the first time on a machine")
        compiled = quantile.meet_compiled()
        example, targets = (torch.zeros(rows, k, device=self.device) for k in (n, n_targets))
        try:
            # two tensors: given one twice, the compiler would rely on that
            compiled(example, targets, self.levels, train.huber)
        except Exception as error:  # whatever a missing or broken compiler raises
            reason = str(error).strip().partition("\n")[0]
            note(f"the loss is not compiled ({reason}); the run goes on, a little slower")
            return
        self._pairs = compiled

    def step(
        self,
        t: np.ndarray,
        stock: np.ndarray,
        reward: np.ndarray,
        stock_next: np.ndarray,
        terminated: np.ndarray,
    ) -> np.ndarray:
        """Return what `targets` wants to know of n steps, float64 [2, n]: scaled r and alive.

        Args:
          t: int64 [n]. stock, stock_next: S_t and S_{t+1}, [n]. reward: learned r, [n].
          terminated: bool [n].
        """
        return np.stack([reward / self.scale, ~terminated])

    def targets(self, step: Tensor, t: Tensor, quantiles: Tensor) -> Tensor:
        """Return r + alive · backup_i(t) ξ⁻_ij of ξ⁻ = `quantiles`, float32 [n, M, N]."""
        reward, alive = step.float()
        backup = alive[:, None] * self._backup[t]  # [n, M]
        return reward[:, None, None] + backup[:, :, None] * quantiles

    def loss(self, taken: Tensor, targets: Tensor) -> Tensor:
        """Return the quantile Huber loss of predictions [B, M, N] against targets [B, M, K · N]."""
        train = self.train
        return quantile.quantile_huber_loss(
            taken, targets, self.levels, train.huber, train.reduction, self._pairs
        )

    def outcomes(
        self, quantiles: Tensor, weights: Tensor, t: Tensor, stock: Tensor, mass: Tensor
    ) -> Tensor:
        """Return z_j = Σ_i w_{i,t} ξ_ij, float64 [B, A, N], in learned reward units.

        Args:
          quantiles: as the network gives them, [B, A, M, N]. weights: w_{i,t}, [B, M].
          t, stock, mass: of the states, [B] each.
        """
        return self.scale * objective.outcome(quantiles.double(), weights)

    def values(
        self, quantiles: Tensor, weights: Tensor, t: Tensor, stock: Tensor, mass: Tensor
    ) -> Tensor:
        """Return the ranking values of `objective.action_values`, [B, A]; see `outcomes`."""
        scaled = self.scale * quantiles
        return objective.action_values(self.utility, scaled, weights, mass, stock)

    def at_start(self, quantiles: Tensor, weights: Tensor) -> Tensor:
        """Return what `initial_stock` wants of K initial states, [K, A, N]: their outcomes."""
        return self.scale * objective.outcome(quantiles.double(), weights)

    def initial_stock(self, grid: Tensor, starts: Tensor) -> InitialStock:
        """Return the best stock of `grid`, float64 [G], by `at_start` of each, [G, K, A, N]."""
        return outer.initial_stock(self.utility, grid, starts)


class Share:
    """The expected utility of the total outcome as a share of what is possible.

    The network's only number x of an action is the logit of its share, σ = 1/(1 + e^{−x})
    (`rigor.maths.share`): it cannot promise what cannot be, is exact where all is settled, and
    small chances are learned in proportion. The loss is the cross-entropy, whose minimum is the
    mean of the targets. Neither `train.huber`, `train.reduction` nor `train.reward_scale` enters.

    Args:
      config: of the run. ahead: what is still possible. device: of the network.
    """

    by_means = True
    scale = 1.0

    def __init__(self, config: Config, ahead: Ahead, device: torch.device) -> None:
        self.utility, self._low, self._high = config.risk, ahead.low, ahead.high
        self._ahead = torch.tensor(np.stack([ahead.low, ahead.high]), device=device)  # [2, times]

    def compile_loss(self, note: Callable[[str], None]) -> None:
        """Do nothing: one number an action meets one target."""

    def step(
        self,
        t: np.ndarray,
        stock: np.ndarray,
        reward: np.ndarray,
        stock_next: np.ndarray,
        terminated: np.ndarray,
    ) -> np.ndarray:
        """Return start, slope and is_open of `rigor.maths.share.backup`, float64 [3, n]."""
        going = ~terminated
        now = self._low[t], self._high[t]
        later = going * self._low[t + 1], going * self._high[t + 1]
        return np.stack(share.backup(self.utility, stock, now, stock_next, later))

    def targets(self, step: Tensor, t: Tensor, quantiles: Tensor) -> Tensor:
        """Return start + slope · σ of logits `quantiles` [n, 1, 1]; nan where all is settled."""
        start, slope, is_open = step.float()[:, :, None, None]
        return torch.where(is_open > 0.5, start + slope * quantiles.sigmoid(), torch.nan)

    def loss(self, taken: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of logits [B, 1, 1] and the means of shares [B, 1, K]."""
        target = targets.mean(-1, keepdim=True)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            taken, target.nan_to_num().clamp(0.0, 1.0), weight=(~target.isnan()).to(taken.dtype)
        )

    def outcomes(
        self, quantiles: Tensor, weights: Tensor, t: Tensor, stock: Tensor, mass: Tensor
    ) -> Tensor:
        """Return (E f(S_T) − f(S_t))/mass, what is expected to be gained, float64 [B, A, 1].

        For the mean that is the expected return from now on. See `Returns.outcomes`.
        """
        least, most = share.bounds(self.utility, stock, *self._ahead[:, t])  # [B]
        shares = quantiles[:, :, 0].double().sigmoid()  # [B, A, 1]
        expected = least[:, None, None] + (most - least)[:, None, None] * shares
        gained = expected - self.utility.f(stock)[:, None, None]
        return gained / mass[:, None, None].clamp(min=LEAST_MASS)

    def values(
        self, quantiles: Tensor, weights: Tensor, t: Tensor, stock: Tensor, mass: Tensor
    ) -> Tensor:
        """Return the expected gain of every action, [B, A]; see `outcomes`."""
        return self.outcomes(quantiles, weights, t, stock, mass)[..., 0]

    def at_start(self, quantiles: Tensor, weights: Tensor) -> Tensor:
        """Return the shares of K initial states, [K, A, 1]."""
        return quantiles[:, :, 0].double().sigmoid()

    def initial_stock(self, grid: Tensor, starts: Tensor) -> InitialStock:
        """Return the best stock of `grid`, float64 [G], by `at_start` of each, [G, K, A, 1]."""
        shares = starts[..., 0].amax(-1).mean(-1)  # [G]
        least, most = share.bounds(self.utility, grid, *self._ahead[:, 0])
        return outer.best(grid, least + (most - least) * shares - grid)
