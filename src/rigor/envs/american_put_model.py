"""The exact model of the American put, on a grid of prices.

A step moves the price to its conditional mean and adds normal noise. So an expectation is a
convolution with the noise, by fast Fourier transforms, interpolated at the mean. The error is of
second order in the cell's width for the optimum, and of first order for a policy whose exercise
boundary is not optimal, because the boundary moves by whole cells.
"""

from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.fft import next_fast_len
from scipy.special import ndtr

from rigor.envs.model import TRANSFORM_EXPONENT, OccupancyMeasures

HOLD, EXERCISE = 0, 1  # the actions of rigor.envs.american_put
SURE = 8.0  # standard deviations of the last price covered by the grid
TAILS = 8.5  # standard deviations covered by a step; 1e-17 lies beyond, below float64's rounding
CELLS = 12_800  # smallest number of cells in the grid if the mean does not move
FINEST = 4.0  # smallest number of cells per standard deviation of a step
MOST = 40_000  # largest number of cells, reached if the mean moves far under little noise


class PutParameters(Protocol):
    """The part of the put's environment that its model reads, in the units of that class."""

    steps: int
    strike: float
    start: float
    zeta: float

    @property
    def decay(self) -> float:
        """The factor of P − ζ in a step."""

    @property
    def noise(self) -> float:
        """The standard deviation of a step, currency."""

    @property
    def n_decisions(self) -> int:
        """N + 1."""

    def payoff(self, price: np.ndarray) -> np.ndarray:
        """Return (K − P)₊."""


class PutModel:
    """The American put as a `Model`: action 0 holds, action 1 exercises and ends the episode.

    Attributes:
      points: the prices at the cells' centres, currency, float64 [n], ascending.
      width: of a cell, currency.
    """

    largest_exponent = TRANSFORM_EXPONENT
    n_actions = 2

    def __init__(self, spec: PutParameters) -> None:
        """Build the grid, the matrix of the mean and the transform of the noise."""
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
        """Return 0, the reward of holding, float64 [1]."""
        return np.zeros(1)

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | price, action], [2, L, n]; 0 for exercising, which ends the episode.

        Args:
          t: the decision; every step has the same distribution.
          value: of every next price, [1, L, n].
        """
        out = np.zeros((2, *value.shape[1:]))
        padded = np.pad(value[0], ((0, 0), (self._reach, self._reach)), mode="edge")
        means = np.fft.irfft(np.fft.rfft(padded, self._length) * self._kernel.conj(), self._length)
        out[HOLD] = (self._drift @ means[:, : self.n_points].T).T
        return out

    def push_forward(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of the next price, [1, L, n]: the adjoint of `expect`.

        Args:
          t: the decision.
          probability: of every action and price, [2, L, n].
        """
        means = (self._drift.T @ probability[HOLD].T).T
        moved = np.fft.irfft(np.fft.rfft(means, self._length) * self._kernel, self._length)
        first, end = self._reach, self._reach + self.n_points
        out = moved[:, first:end].copy()
        out[:, 0] += moved[:, :first].sum(axis=1)
        out[:, -1] += moved[:, end:].sum(axis=1)
        return out[None]

    def terminal_payoff(self, t: int) -> np.ndarray:
        """Return the payoff of exercising, currency, [2, n]; at t = N both actions exercise."""
        holds = self._payoff if t == self.spec.steps else np.full(self.n_points, np.nan)
        return np.stack([holds, self._payoff])

    def observations(self, t: int) -> np.ndarray:
        """Return price and t at every point, float32 [n, 2]."""
        return np.stack([self.points, np.full(self.n_points, t)], axis=1).astype(np.float32)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the nearest cell of observations [E, 2], int64 [E]."""
        prices = observations[:, 0].astype(np.float64)
        cells = np.rint((prices - self.points[0]) / self.width)
        return np.clip(cells, 0, self.n_points - 1).astype(np.int64)

    def statistics(self, occupancy: OccupancyMeasures) -> dict[str, Any]:
        """Return the mean undiscounted return, the mean time of exercise and the boundary.

        The time is in steps; an option that expires without value counts as exercised at t = N. The
        boundary is, for every t, the highest price at which exercising is more likely than holding,
        currency, or None if there is no such price.
        """
        last = self.spec.steps
        exercised = [float(occupancy.of_actions(t)[EXERCISE].sum()) for t in range(last)]
        exercised.append(float(occupancy.of_points(last).sum()))
        boundary: list[float | None] = []
        for t in range(last + 1):
            held, ended = occupancy.of_actions(t)
            exercises = np.flatnonzero((ended > held) & (self.points < self.spec.strike))
            boundary.append(float(self.points[exercises[-1]]) if len(exercises) else None)
        boundary[last] = self.spec.strike  # at t = N every option with a payoff is exercised
        return {
            "score_exact": float(occupancy.mean_score),
            "mean_exercise_time": float(np.dot(exercised, np.arange(last + 1))),
            "boundary": boundary,
        }


def _grid(spec: PutParameters) -> tuple[np.ndarray, float]:
    """Return equally spaced prices [n] that include the start, and their distance.

    They cover `SURE` standard deviations around the mean's path from the start towards ζ.
    """
    ages = np.arange(spec.steps)
    sd = spec.noise * float(np.sqrt((spec.decay ** (2.0 * ages)).sum()))
    last_mean = spec.zeta + (spec.start - spec.zeta) * spec.decay**spec.steps
    low, high = sorted([spec.start, last_mean])
    # a constant price still needs a cell
    margin = max(SURE * sd, 1e-6 * spec.strike)
    width = min(2.0 * margin / CELLS, spec.noise / FINEST)
    width = max(width, (high - low + 2.0 * margin) / MOST)
    # `_noise` has a standard deviation of at least half a cell
    margin = max(margin, SURE * np.sqrt(spec.steps) * width / 2.0)
    first = np.floor((low - margin - spec.start) / width)
    last = np.ceil((high + margin - spec.start) / width)
    return spec.start + np.arange(first, last + 1) * width, width


def _drift(spec: PutParameters, points: np.ndarray, width: float) -> sparse.csr_array:
    """Return the matrix [n, n] that interpolates a function linearly at the next mean price."""
    n = len(points)
    place = (spec.zeta + (points - spec.zeta) * spec.decay - points[0]) / width
    below = np.clip(np.floor(place).astype(np.int64), 0, n - 2)
    above_weight = np.clip(place - below, 0.0, 1.0)
    origin = np.arange(n)
    entries = np.concatenate([1.0 - above_weight, above_weight])
    index = (np.concatenate([origin, origin]), np.concatenate([below, below + 1]))
    return sparse.csr_array((entries, index), shape=(n, n))


def _noise(spec: PutParameters, width: float) -> tuple[int, np.ndarray]:
    """Return the reach of the noise in cells, and its distribution over cells, [2 reach + 1].

    Rounding to centres adds width² / 12 to the variance (Sheppard's correction), and interpolation
    between two centres adds width² / 6 on average, so the noise uses a variance smaller by both.
    """
    # without noise some variance is needed for the mean to be exact on the grid
    sd = float(np.sqrt(max(spec.noise**2 - width**2 / 4.0, width**2 / 4.0)))
    reach = int(np.ceil(TAILS * sd / width)) + 1
    edges = (np.arange(reach + 1) + 0.5) * width / sd
    upper = -np.diff(ndtr(-edges))  # differences of the smaller tail are exact
    half = np.append(upper, ndtr(-edges[-1]))[:reach]
    middle = 1.0 - 2.0 * half.sum()
    return reach, np.concatenate([half[::-1], [middle], half])
