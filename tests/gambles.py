"""Small Gymnasium environments whose best policy under CVaR is known, at any scale and limit.

`GAMBLES` names them with the fraction `tau` of CVaR, the best objective and the second best, at
scale 1 and without discounting.
"""

from typing import Any, ClassVar

import gymnasium
import numpy as np


class Gamble(gymnasium.Env[np.ndarray, int]):
    """A chain of decisions; the observation is the number of the step, one-hot.

    Attributes:
      earned: rewards of step 0, equally likely, whatever the action; None if there is no such step.
      outcomes: for each action of the decision, its equally likely rewards.
      delay: steps from the decision to its reward.
    """

    earned: ClassVar[tuple[float, ...] | None] = None
    outcomes: ClassVar[tuple[tuple[float, ...], ...]]
    delay: ClassVar[int] = 0

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.n_steps = (self.earned is not None) + 1 + self.delay
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (self.n_steps + 2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(self.outcomes))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.chosen = 0, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        decides = 0 if self.earned is None else 1
        if self.t < decides:
            assert self.earned is not None
            reward = float(self.np_random.choice(self.earned))
        if self.t == decides:
            self.chosen = int(action)
        self.t += 1
        over = self.t == self.n_steps
        if over:
            reward += float(self.np_random.choice(self.outcomes[self.chosen]))
        return self._observe(), self.scale * reward, over, False, {}

    def _observe(self) -> np.ndarray:
        observation = np.zeros(self.observation_space.shape, np.float32)
        observation[min(self.t, self.n_steps - 1)] = 1.0
        observation[-2] = self.chosen / max(len(self.outcomes) - 1, 1)
        return observation


class OneDecision(Gamble):
    """A pays 40; B pays 60 or 30."""

    outcomes = ((40.0,), (60.0, 30.0))


class ThreeActions(Gamble):
    """The sure 10 is worth more than 20 or 8, and than ten with one failure."""

    outcomes = ((20.0, 8.0), (10.0,), (14.0,) * 9 + (0.0,))


class Delayed(Gamble):
    """The reward comes five steps after the decision."""

    outcomes = ((60.0, 30.0), (40.0,))
    delay = 5


class BothSigns(Gamble):
    """A sure loss of 5 is better than a gain with a rare loss, so the best initial stock is 5."""

    outcomes = ((-5.0,), (10.0,) * 4 + (-50.0,))


class EarnedLoss(Gamble):
    """After a loss of 100 the gamble is right, after none it is wrong (tau = .75)."""

    earned = (-100.0, 0.0)
    outcomes = ((0.0,), (60.0, -30.0))


class EarnedGain(Gamble):
    """After no gain the gamble is right, after a gain of 100 it is wrong (tau = .75)."""

    earned = (0.0, 100.0)
    outcomes = ((20.0,), (100.0, -20.0), (-10.0,))


GAMBLES = {
    "OneDecision": (OneDecision, 0.1, 40.0, 30.0),
    "ThreeActions": (ThreeActions, 0.1, 10.0, 8.0),
    "Delayed": (Delayed, 0.1, 40.0, 30.0),
    "BothSigns": (BothSigns, 0.1, -5.0, -50.0),
    "EarnedLoss": (EarnedLoss, 0.75, -170.0 / 3.0, -200.0 / 3.0),
    "EarnedGain": (EarnedGain, 0.75, 200.0 / 3.0, 160.0 / 3.0),
}

for _name, (_gamble, *_) in GAMBLES.items():
    gymnasium.register(f"{_name}-v0", _gamble, max_episode_steps=500)
