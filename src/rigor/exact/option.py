"""The American put on a grid of prices.

The price moves by a normal step around a mean that follows it, so an expectation is a product with
a banded matrix of cells' masses. What is left is of second order in the cell's width.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from rigor.envs.option import EXERCISE, HOLD, Put
from rigor.exact.model import Laws

SURE = 8.0  # standard deviations of the price over the whole life that the grid reaches
TAILS = 8.5  # standard deviations kept of a step: 1e-17 is left, below float64's rounding
CELLS = 1600  # cells in the grid's width, at least, where the mean does not move
FINEST = 4.0  # cells in the standard deviation of a step, at least
MOST = 8_000  # cells, at most: a mean that moves far under little noise asks for more


class PutModel:
    """The problem of `Put` as a `Model`: action 0 holds, action 1 exercises and ends.

    Attributes:
      points: the prices at the cells' centres, currency, float64 [n], ascending.
      width: of a cell, currency.
    """

    n_actions = 2

    def __init__(self, spec: Put) -> None:
        """Lay the grid and the matrix of one step.

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
        self._step = _transition(spec, self.points, self.width)
        self._back = self._step.T.tocsr()

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
        out[HOLD] = (self._step @ value[0].T).T
        return out

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where a law goes, [1, L, n]: the adjoint of `expect`.

        Args:
          t: the decision.
          law: mass on every action and price, [2, L, n].
        """
        return (self._back @ law[HOLD].T).T[None]

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


def _transition(spec: Put, points: np.ndarray, width: float) -> sparse.csr_array:
    """Return the mass that one step moves from every centre into every cell, [n, n].

    Rounding what arrives to the centres adds width² / 12 to the variance (Sheppard), which the
    step leaves out beforehand. The cells at the edges take what lies beyond them.
    """
    # without (nearly) any noise it keeps what it takes to leave the mean in place
    sd = float(np.sqrt(max(spec.noise**2 - width**2 / 12.0, width**2 / 4.0)))
    n, reach = len(points), int(np.ceil(TAILS * sd / width)) + 1
    mean = spec.zeta + (points - spec.zeta) * spec.decay
    nearest = np.rint((mean - points[0]) / width).astype(np.int64)
    columns = np.arange(-reach, reach + 1)
    offsets = (nearest * width + points[0] - mean)[:, None]  # of the nearest centre from the mean
    edges = (np.arange(-reach, reach) + 0.5) * width
    outer = np.full((n, 1), np.inf)
    z = np.concatenate([-outer, (edges + offsets) / sd, outer], axis=1)  # rows sum to one
    lower, upper = np.diff(ndtr(z)), -np.diff(ndtr(-z))
    masses = np.where(z[:, :-1] > 0.0, upper, lower)  # the smaller tail keeps its digits
    to = np.clip(nearest[:, None] + columns, 0, n - 1)
    origin = np.broadcast_to(np.arange(n)[:, None], to.shape)
    # masses on the same cell, at the edges, add up
    return sparse.csr_array((masses.ravel(), (origin.ravel(), to.ravel())), shape=(n, n))
