"""The least and the most that training has seen come after a step."""

from typing import Any

import numpy as np


class ReturnToGoSeen:
    """Bounds of Σ_{k≥t} d̃_k R_{k+1} / d̃_t, in learner's reward units, by the episodes of training.

    The sums end where the targets do: with the episode, or with a lost life that is terminal.
    Until a first one ends, the running episodes count as if they ended after 1, 2, 4, ... steps.
    Bounds never narrow.

    Attributes:
      low, high: the smallest and the largest sum; at least from 0 to 0, which is left at the end.
    """

    def __init__(self, step_factors: np.ndarray) -> None:
        """Take d̃_{t+1} / d̃_t of every t, float64 [T]."""
        self.low, self.high = 0.0, 0.0
        self._factors, self._ended = step_factors.tolist(), False
        self._rewards: list[list[float]] = []  # of each copy since its last end
        self._starts: list[int] = []  # t of the first of them

    def observe(
        self, t: np.ndarray, reward: np.ndarray, counts: np.ndarray, ends: np.ndarray
    ) -> None:
        """Take note of one step in E environments.

        Args:
          t: of the step, int64 [E]. reward: learner's reward, [E].
          counts: whether it is a step and no autoreset, bool [E]. ends: of the sums, bool [E].
        """
        if not self._rewards:
            self._rewards, self._starts = [[] for _ in t], [0] * len(t)
        each = zip(t.tolist(), reward.tolist(), counts.tolist(), ends.tolist(), strict=True)
        for i, (at, one, belongs, end) in enumerate(each):
            rewards = self._rewards[i]
            if belongs:
                if not rewards:
                    self._starts[i] = at
                rewards.append(one)
            if end or (not self._ended and len(rewards).bit_count() == 1):  # a power of two
                self._extend(rewards, self._starts[i])
            if end:
                self._ended = True
                rewards.clear()

    def _extend(self, rewards: list[float], start: int) -> None:
        """Extend the bounds by the sums from each step of an episode to its end."""
        to_go, factors = 0.0, self._factors[start : start + len(rewards)]
        for reward, factor in zip(reversed(rewards), reversed(factors), strict=True):
            to_go = reward + factor * to_go
            self.low, self.high = min(self.low, to_go), max(self.high, to_go)

    def restart(self) -> None:
        """Forget the running episodes, whose ends will not be seen."""
        self._rewards, self._starts = [], []

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {
            "bounds": [self.low, self.high],
            "ended": self._ended,
            "rewards": np.array([one for rewards in self._rewards for one in rewards]),
            "lengths": np.array([len(rewards) for rewards in self._rewards], np.int64),
            "starts": np.array(self._starts, np.int64),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.low, self.high = state["bounds"]
        self._ended, self._starts = state["ended"], state["starts"].tolist()
        parts = np.split(state["rewards"], np.cumsum(state["lengths"])[:-1])
        self._rewards = [part.tolist() for part in parts[: len(self._starts)]]
