"""Mean and standard deviation of the observations of training."""

from typing import Any

import numpy as np


class ObservationsSeen:
    """Running moments of the numbers of an observation.

    Args:
      shape: of an observation.

    Attributes:
      mean: float64 [F], for F numbers of an observation.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        n_features = int(np.prod(shape))
        self.count = 0
        self.mean, self._squares = np.zeros((2, n_features))

    def observe(self, observations: np.ndarray) -> None:
        """Take note of observations [E, *shape] (Chan et al.'s update of mean and squares)."""
        new = observations.reshape(len(observations), -1).astype(np.float64)
        total = self.count + len(new)
        off = new.mean(axis=0) - self.mean
        self._squares = self._squares + new.var(axis=0) * len(new)
        self._squares += off**2 * self.count * len(new) / total
        self.mean = self.mean + off * len(new) / total
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviations, float64 [F]; 1 for a number that never changed."""
        variance = self._squares / max(self.count, 1)
        return np.where(variance > 0.0, np.sqrt(variance), 1.0)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        vars(self).update(state)
