"""The discounted returns of training episodes, and the units that follow from them."""

import math
from typing import Any

import numpy as np

KEPT = 1024  # newest returns
LARGEST = 32.0  # scaled reward: the largest return is between half of this and this
SMALLEST_SPREAD = 1e-2  # of the largest |return|: the least that counts as one in the stock's input


class ReturnsSeen:
    """Σ_t d̃_t R_{t+1} of training episodes, in learner's reward units.

    Until an episode has ended, the sums of the running episodes count.

    Attributes:
      low, high: the smallest and the largest return; both 0 before the first reward.
      newest: the newest returns, at most KEPT, float64.
      largest: the largest |return| or |reward|.
    """

    def __init__(self) -> None:
        self.low, self.high, self.largest = 0.0, 0.0, 0.0
        self.newest = np.zeros(0)

    def observe(self, sums: np.ndarray, reward: np.ndarray, episode_end: np.ndarray) -> None:
        """Take note of one step in E environments.

        Args:
          sums: discounted rewards of the episodes so far, this step's included, float64 [E].
          reward: learner's reward of the step, [E]. episode_end: bool [E].
        """
        self.largest = max(self.largest, float(np.abs(reward).max()), float(np.abs(sums).max()))
        ended = sums[episode_end]
        if len(ended):
            if not len(self.newest):
                self.low, self.high = float(ended.min()), float(ended.max())
            self.newest = np.append(self.newest, ended)[-KEPT:]
            sums = ended
        elif len(self.newest):
            return
        self.low, self.high = min(self.low, float(sums.min())), max(self.high, float(sums.max()))

    @property
    def reward_unit(self) -> float:
        """The reward that counts as one in the network: a power of two, 1 before any reward."""
        if self.largest == 0.0:
            return 1.0
        return 2.0 ** math.ceil(math.log2(self.largest / LARGEST))

    @property
    def spread(self) -> float:
        """High − low, at least SMALLEST_SPREAD of the largest |return|; 1 before any reward."""
        size = max(abs(self.low), abs(self.high))
        return max(self.high - self.low, SMALLEST_SPREAD * size) or 1.0

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        vars(self).update(state)
