"""The American put on a grid of prices.

A step moves the price to its mean and adds normal noise: an expectation is a convolution, by fast
Fourier transforms, read at the mean between two centres. Values are of second order in the cell's
width; where a policy that is not optimal changes its mind inside a cell, of first.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.fft import next_fast_len
from scipy.special import ndtr

from rigor.envs.option import EXERCISE, HOLD, Put
from rigor.exact.model import TRANSFORM_EXPONENT, Laws

SURE = 8.0  # standard deviations of the price over the whole life that the grid reaches
TAILS = 8.5  # standard deviations kept of a step: 1e-17 is left, below float64's rounding
CELLS = 12_800  # cells in the grid's width, at least, where the mean does not move
FINEST = 4.0  # cells in the standard deviation of a step, at least
MOST = 40_000  # cells, at most: a mean that moves far under little noise asks for more


class PutModel:
    """The problem of `Put` as a `Model`: action 0 holds, action 1 exercises and ends.

    Attributes:
      points: the prices at the cells' centres, currency, float64 [n], ascending.
      width: of a cell, currency.
    """

    largest_exponent = TRANSFORM_EXPONENT

    n_actions = 2

    def __init__(self, spec: Put) -> None:
        """Lay the grid and what a step does on it.

        Args:
          spec: the problem.
        """
        self.spec = spec
        self.n_decisions = spec.n_decisions
        self.points, self.width = _grid(spec)
        self.n_points = len(self.points)
        self.initial = np.zeros(self.n_points)
        self.initial[np.argmin(np.abs(self.points - spec.start))] = 1.0
        self._payoff = spec.payoff(self.points)
        self._drift = _drift(spec, self.points, self.width)
        self._reach, kernel = _noise(spec, self.width)
        self._length = next_fast_len(self.n_points + 2 * self._reach, real=True)
        self._kernel = np.fft.rfft(kernel, self._length)

    def rewards(self, t: int) -> np.ndarray:
        """Return 0: to hold earns nothing, float64 [1]."""
        return np.zeros(1)

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | price, action], [2, L, n]; zero for exercising, which ends.

        Args:
          t: the decision; every step has the same law.
          value: of every next price, [1, L, n].
        """
        out = np.zeros((2, *value.shape[1:]))
        padded = np.pad(value[0], ((0, 0), (self._reach, self._reach)), mode="edge")
        means = np.fft.irfft(np.fft.rfft(padded, self._length) * self._kernel.conj(), self._length)
        out[HOLD] = (self._drift @ means[:, : self.n_points].T).T
        return out

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where a law goes, [1, L, n]: the adjoint of `expect`.

        Args:
          t: the decision.
          law: mass on every action and price, [2, L, n].
        """
        moved = (self._drift.T @ law[HOLD].T).T
        spread = np.fft.irfft(np.fft.rfft(moved, self._length) * self._kernel, self._length)
        first, end = self._reach, self._reach + self.n_points
        out = spread[:, first:end].copy()
        out[:, 0] += spread[:, :first].sum(axis=1)
        out[:, -1] += spread[:, end:].sum(axis=1)
        return out[None]

    def stops(self, t: int) -> np.ndarray:
        """Return the payoff of exercising, currency, float64 [2, n]; at t = N both actions do."""
        holds = self._payoff if t == self.spec.steps else np.full(self.n_points, np.nan)
        return np.stack([holds, self._payoff])

    def observations(self, t: int) -> np.ndarray:
        """Return price and decision at every point, float32 [n, 2]."""
        return np.stack([self.points, np.full(self.n_points, t)], axis=1).astype(np.float32)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the nearest cell of observations [E, 2], int64 [E]."""
        prices = observations[:, 0].astype(np.float64)
        places = np.rint((prices - self.points[0]) / self.width)
        return np.clip(places, 0, self.n_points - 1).astype(np.int64)

    def numbers(self, laws: Laws) -> dict[str, Any]:
        """Return the mean undiscounted return, the mean time of exercise and the boundary.

        The time is in steps; an option that expires without value counts as exercised at t = N. The
        boundary is the highest price at which more episodes exercise than hold, currency, for every
        t, None where there is none.
        """
        last = self.spec.steps
        exercised = [float(laws.taken(t)[EXERCISE].sum()) for t in range(last)]
        exercised.append(float(laws.occupied(last).sum()))
        boundary: list[float | None] = []
        for t in range(last + 1):
            held, ended = laws.taken(t)
            exercises = np.flatnonzero((ended > held) & (self.points < self.spec.strike))
            boundary.append(float(self.points[exercises[-1]]) if len(exercises) else None)
        boundary[last] = self.spec.strike  # what is worth something is exercised in the end
        return {
            "undiscounted_return": float(laws.undiscounted()),
            "mean_exercise_time": float(np.dot(exercised, np.arange(last + 1))),
            "boundary": boundary,
        }


def _grid(spec: Put) -> tuple[np.ndarray, float]:
    """Return equally spaced prices [n], the start among them, and their distance.

    They cover `SURE` standard deviations around the mean's path from the start towards ζ.
    """
    ages = np.arange(spec.steps)
    sd = spec.noise * float(np.sqrt((spec.decay ** (2.0 * ages)).sum()))
    last_mean = spec.zeta + (spec.start - spec.zeta) * spec.decay**spec.steps
    low, high = sorted([spec.start, last_mean])
    # a price that never moves still needs a cell
    margin = max(SURE * sd, 1e-6 * spec.strike)
    width = min(2.0 * margin / CELLS, spec.noise / FINEST)
    width = max(width, (high - low + 2.0 * margin) / MOST)
    # room for the half cell of noise that no step is without
    margin = max(margin, SURE * np.sqrt(spec.steps) * width / 2.0)
    first = np.floor((low - margin - spec.start) / width)
    last = np.ceil((high + margin - spec.start) / width)
    return spec.start + np.arange(first, last + 1) * width, width


def _drift(spec: Put, points: np.ndarray, width: float) -> sparse.csr_array:
    """Return the matrix [n, n] that reads a function at the mean of the next price.

    Linear between the two centres around it.
    """
    n = len(points)
    place = (spec.zeta + (points - spec.zeta) * spec.decay - points[0]) / width
    below = np.clip(np.floor(place).astype(np.int64), 0, n - 2)
    share = np.clip(place - below, 0.0, 1.0)
    origin = np.arange(n)
    entries = np.concatenate([1.0 - share, share])
    index = (np.concatenate([origin, origin]), np.concatenate([below, below + 1]))
    return sparse.csr_array((entries, index), shape=(n, n))


def _noise(spec: Put, width: float) -> tuple[int, np.ndarray]:
    """Return the mass that the noise moves into every cell around, [2 reach + 1], and the reach.

    Rounding what arrives to the centres adds width² / 12 to the variance (Sheppard), and reading
    between two centres width² / 6 on average; the noise leaves both out beforehand.
    """
    # without (nearly) any noise it keeps what it takes to leave the mean in place
    sd = float(np.sqrt(max(spec.noise**2 - width**2 / 4.0, width**2 / 4.0)))
    reach = int(np.ceil(TAILS * sd / width)) + 1
    edges = (np.arange(reach + 1) + 0.5) * width / sd
    upper = -np.diff(ndtr(-edges))  # the smaller tail keeps its digits
    half = np.append(upper, ndtr(-edges[-1]))[:reach]
    middle = 1.0 - 2.0 * half.sum()
    return reach, np.concatenate([half[::-1], [middle], half])
