"""Goal-based wealth management on a grid of log wealth.

The log wealth moves by a normal step whatever the wealth is, so an expectation is a convolution.
Values and laws are smooth but for the two thresholds of affordability, which lie on edges of
cells: inside a cell they would cost .002 of probability. What is left is of second order in the
cell's width.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.fft import next_fast_len
from scipy.special import ndtr

from rigor.envs.wealth import Wealth
from rigor.exact.model import TRANSFORM_EXPONENT, Laws

SURE = 6.0  # standard deviations that no policy is asked to tell from never: 1e-9
TAILS = 8.5  # standard deviations kept of a kernel: 1e-17 is left, below float64's rounding
FINEST = 4.0  # cells in the smallest standard deviation of a step


class WealthModel:
    """The problem of `Wealth` as a `Model`: 30 actions, goal · 15 + portfolio.

    Attributes:
      points: the wealth at the cells' centres, currency, float64 [n], ascending.
      goals: cost and utility of the goal on offer, by its time.
      width: of a cell in log wealth.
    """

    largest_exponent = TRANSFORM_EXPONENT

    def __init__(self, spec: Wealth, step: float = 0.001) -> None:
        """Lay the grid and transform the portfolios' kernels.

        Args:
          spec: the problem.
          step: about the width of a cell in log wealth; the goals' costs adjust it.
        """
        self.spec = spec
        self.n_portfolios = len(spec.drifts)
        self.n_actions = 2 * self.n_portfolios
        self.n_decisions = spec.n_decisions
        self.goals = {
            spec.early_time: (spec.early_cost, spec.early_utility),
            spec.periods: (spec.late_cost, spec.late_utility),
        }
        edge, self.width = _width(spec, step)
        low, high = _range(spec)
        first = np.floor((low - edge) / self.width) - 1
        last = np.ceil((high - edge) / self.width) + 1
        self._logs = edge + (np.arange(first, last) + 0.5) * self.width
        self.points = np.exp(self._logs)
        self.n_points = len(self.points)
        self.initial = self._split_start()
        self._transform_kernels()
        self._paid = self._payment(spec.early_cost)

    def rewards(self, t: int) -> np.ndarray:
        """Return 0 and the utility of the goal on offer at t, if any, float64 [R], ascending."""
        return np.unique([0.0, self.goals[t][1]]) if t in self.goals else np.zeros(1)

    def affordable(self, t: int) -> np.ndarray:
        """Return where the wealth suffices for the goal on offer at t, bool [n]."""
        return self.points >= self.goals[t][0]

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | wealth, action], [A, L, n].

        Args:
          t: the decision; after the last one nothing moves.
          value: of every reward and next wealth, [R, L, n].
        """
        out = np.empty((2, self.n_portfolios, *value.shape[1:]))
        none, goal = self._places(t)
        without, earned = value[none], value[goal]
        if t not in self.goals:
            self._convolve(without, out[0])
            out[1] = out[0]
        elif t == self.spec.periods:
            out[0] = without
            out[1] = np.where(self.affordable(t), earned, without)
        else:
            self._convolve(without, out[0])
            self._convolve(earned, out[1])
            out[1] = np.where(self.affordable(t), _apply(self._paid, out[1]), out[0])
        return out.reshape(self.n_actions, *value.shape[1:])

    def spread(self, t: int, law: np.ndarray) -> np.ndarray:
        """Return where a law goes, [R, L, n]: the adjoint of `expect`.

        Args:
          t: the decision.
          law: mass on every action and wealth, [A, L, n].
        """
        refused, taken = law.reshape(2, self.n_portfolios, *law.shape[1:])
        if t not in self.goals:
            return self._deconvolve(refused + taken)[None]
        out = np.zeros((len(self.rewards(t)), *law.shape[1:]))
        (none, goal), able = self._places(t), self.affordable(t)
        refused, taken = refused + np.where(able, 0.0, taken), np.where(able, taken, 0.0)
        if t == self.spec.periods:
            out[none] += refused.sum(axis=0)
            out[goal] += taken.sum(axis=0)
        else:
            out[none] += self._deconvolve(refused)
            out[goal] += self._deconvolve(_apply(self._paid.T, taken))
        return out

    def stops(self, t: int) -> None:
        """Return None: no action ends the episode before its last decision."""

    def observations(self, t: int) -> np.ndarray:
        """Return wealth and decision at every point, float32 [n, 2]."""
        return np.stack([self.points, np.full(self.n_points, t)], axis=1).astype(np.float32)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the nearest cell in log wealth of observations [E, 2], int64 [E]."""
        with np.errstate(divide="ignore"):  # no wealth is left: the lowest cell
            logs = np.log(np.maximum(observations[:, 0].astype(np.float64), 0.0))
        # a wealth on an edge belongs to the cell above: it affords the cost that lies there
        places = np.floor((logs - self._logs[0]) / self.width + 0.5 + 1e-6)
        return np.clip(places, 0, self.n_points - 1).astype(np.int64)

    def numbers(self, laws: Laws) -> dict[str, Any]:
        """Return the mean undiscounted utility and the probabilities of the paper's tables."""
        early, late = self.spec.early_time, self.spec.periods
        able = self.affordable(early)
        return {
            "expected_utility": float(laws.undiscounted()),
            "p_early_affordable": float(laws.occupied(early)[able].sum()),
            "p_early": float(laws.taken(early)[self.n_portfolios :, able].sum()),
            "p_late": float(laws.taken(late)[self.n_portfolios :, self.affordable(late)].sum()),
        }

    def _places(self, t: int) -> list[int]:
        """Return the places of 0 and of the goal's utility among the rewards at t."""
        utility = self.goals[t][1] if t in self.goals else 0.0
        return [int(i) for i in np.searchsorted(self.rewards(t), [0.0, utility])]

    def _split_start(self) -> np.ndarray:
        """Return the initial wealth as mass on the two centres around it, float64 [n]."""
        spec = self.spec
        place = (np.log(spec.wealth) - self._logs[0]) / self.width
        below, share = int(place), place % 1.0
        able = self.points[below : below + 2] >= spec.early_cost
        if spec.early_time == 0 and able[0] != able[1]:
            # what is affordable at once matters more than the mean
            share = float(spec.wealth >= spec.early_cost)
        law = np.zeros(self.n_points)
        law[below : below + 2] = 1.0 - share, share
        return law

    def _transform_kernels(self) -> None:
        """Transform the mass that each portfolio moves from a centre into the cells around it.

        Rounding what arrives to the centres adds width² / 12 to the variance (Sheppard), which the
        kernels leave out beforehand.
        """
        drifts, volatilities = np.asarray(self.spec.drifts), np.asarray(self.spec.volatilities)
        # a portfolio (nearly) without risk keeps what it takes to leave its mean in place
        variance = volatilities**2 - self.width**2 / 12.0
        sd = np.sqrt(np.maximum(variance, self.width**2 / 4.0))
        self._down = max(1, int(np.ceil((TAILS * sd - drifts).max() / self.width)))
        self._up = max(1, int(np.ceil((TAILS * sd + drifts).max() / self.width)))
        edges = (np.arange(-self._down, self._up) + 0.5) * self.width
        inner = (edges - drifts[:, None]) / sd[:, None]
        outer = np.full((self.n_portfolios, 1), np.inf)
        z = np.concatenate([-outer, inner, outer], axis=1)  # what is left goes to the last cells
        lower, upper = np.diff(ndtr(z)), -np.diff(ndtr(-z))
        kernels = np.where(z[:, :-1] > 0.0, upper, lower)  # the smaller tail keeps its digits
        self._length = next_fast_len(self.n_points + self._down + self._up, real=True)
        self._kernels = np.fft.rfft(kernels, self._length).conj()  # [15, F]

    def _convolve(self, value: np.ndarray, out: np.ndarray) -> None:
        """Write the means of functions [L, n] over the step of every portfolio, [15, L, n]."""
        # one function at a time, in buffers that stay in the cache
        spectra, means = np.empty_like(self._kernels), np.empty((self.n_portfolios, self._length))
        for i, function in enumerate(value):
            # beyond the grid a function is what it is at the edge
            padded = np.pad(function, (self._down, self._up), mode="edge")
            np.multiply(self._kernels, np.fft.rfft(padded, self._length), out=spectra)
            np.fft.irfft(spectra, self._length, out=means)
            out[:, i] = means[:, : self.n_points]

    def _deconvolve(self, law: np.ndarray) -> np.ndarray:
        """Return where the laws [15, L, n] of all portfolios go, [L, n]: the adjoint."""
        out, first, end = np.empty(law.shape[1:]), self._down, self._down + self.n_points
        for i in range(len(out)):
            spectra = np.fft.rfft(law[:, i], self._length)
            # vecdot conjugates the kernels back
            moved = np.fft.irfft(np.vecdot(self._kernels.T, spectra.T), self._length)
            out[i] = moved[first:end]
            out[i, 0] += moved[:first].sum()
            out[i, -1] += moved[end:].sum()
        return out

    def _payment(self, cost: float) -> sparse.csr_array:
        """Return the matrix [n, n] that reads a function at the wealth left after paying.

        Linear between centres; the lowest cell below them; rows of zeros where the cost is not
        affordable. It follows the convolution, whose means are smooth.
        """
        able = np.flatnonzero(self.points >= cost)
        logs = np.log(self.points[able] - cost)
        place = np.clip((logs - self._logs[0]) / self.width, 0, self.n_points - 1)
        below = np.minimum(place.astype(np.int64), self.n_points - 2)
        share = place - below
        entries, rows = np.concatenate([1.0 - share, share]), np.concatenate([able, able])
        index = (rows, np.concatenate([below, below + 1]))
        return sparse.csr_array((entries, index), shape=(self.n_points, self.n_points))


def _width(spec: Wealth, step: float) -> tuple[float, float]:
    """Return an edge and a width near `step` that put both costs' logarithms on edges.

    Costs that differ by less than half a step share an edge. Where a step's volatility is small the
    cells follow it, down to an eighth of `step`.
    """
    step = float(np.clip(min(spec.volatilities) / FINEST, step / 8.0, step))
    low, high = np.log(sorted([spec.early_cost, spec.late_cost]))
    between = round((high - low) / step)
    return float(low), float((high - low) / between) if between else step


def _range(spec: Wealth) -> tuple[float, float]:
    """Return the ends of the log wealth beyond which nothing matters, under any policy.

    Who falls to the low end and rises to a goal's cost again, or rises to the high end and falls
    below the costs again, has moved by more than `SURE` standard deviations of the riskiest
    portfolio. After paying, the wealth is anything, and only the late goal is left.
    """
    drift, volatility = np.abs(spec.drifts).max(), max(spec.volatilities)

    def swing(periods: int) -> float:
        return float(periods * drift + SURE * volatility * np.sqrt(periods))

    early, late = spec.early_time, spec.periods
    start, cost_early, cost_late = np.log([spec.wealth, spec.early_cost, spec.late_cost])
    low_unpaid = min(cost_early - swing(early), cost_late - swing(late))
    low_paid = cost_late - swing(late - early)
    high = (start + np.log(spec.early_cost + spec.late_cost) + swing(late)) / 2.0
    return float(min(start, (start + low_unpaid) / 2.0, low_paid)), float(max(start, high))


def _apply(matrix: sparse.sparray, functions: np.ndarray) -> np.ndarray:
    """Return a matrix [n, n] applied to the last axis of functions [..., n]."""
    out = np.empty_like(functions)
    for index in np.ndindex(functions.shape[:-1]):
        out[index] = matrix @ functions[index]
    return out
