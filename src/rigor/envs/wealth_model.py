"""The exact model of goal-based wealth management, on a grid of log wealth.

A step of log wealth is normal and independent of the wealth, so an expectation is a convolution.
Values and distributions are smooth except at the two costs. These lie on edges of cells, because
inside a cell they would cause an error of .002 in probability. The remaining error is of second
order in the cell's width.
"""

from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.fft import next_fast_len
from scipy.special import ndtr

from rigor.envs.model import TRANSFORM_EXPONENT, OccupancyMeasures

SURE = 6.0  # standard deviations; events beyond them, of probability 1e-9, are ignored
TAILS = 8.5  # standard deviations covered by a kernel; 1e-17 lies beyond, below float64's rounding
FINEST = 4.0  # cells per smallest standard deviation of a step


class WealthParameters(Protocol):
    """The part of the wealth environment that its model reads, in the units of that class."""

    periods: int
    wealth: float
    early_cost: float
    early_utility: float
    late_cost: float
    late_utility: float

    @property
    def drifts(self) -> np.ndarray:
        """Mean log return of each portfolio in a period, [L]."""

    @property
    def volatilities(self) -> np.ndarray:
        """Standard deviation of that log return, [L]."""

    @property
    def early_time(self) -> int:
        """The time of the early goal, periods."""

    @property
    def n_decisions(self) -> int:
        """T + 1."""


class WealthModel:
    """Goal-based wealth management as a `Model`; the actions are goal · L + portfolio.

    Attributes:
      points: the wealth at the cells' centres, currency, float64 [n], ascending.
      goals: cost and utility of each goal, by its time.
      width: of a cell in log wealth.
    """

    largest_exponent = TRANSFORM_EXPONENT

    def __init__(self, spec: WealthParameters, step: float = 0.001) -> None:
        """Build the grid and the Fourier transforms of the portfolios' kernels.

        Args:
          spec: the problem.
          step: approximate width of a cell in log wealth; it is adjusted to the goals' costs.
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
        """Return 0 and the utility of a goal at t, if there is one, float64 [R], ascending."""
        return np.unique([0.0, self.goals[t][1]]) if t in self.goals else np.zeros(1)

    def affordable(self, t: int) -> np.ndarray:
        """Return where the wealth suffices for the goal at t, bool [n]."""
        return self.points >= self.goals[t][0]

    def expect(self, t: int, value: np.ndarray) -> np.ndarray:
        """Return E[value | wealth, action], [A, L, n].

        Args:
          t: the decision; the last decision leaves the wealth unchanged.
          value: of every reward and next wealth, [R, L, n].
        """
        out = np.empty((2, self.n_portfolios, *value.shape[1:]))
        none, goal = self._reward_indices(t)
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

    def push_forward(self, t: int, probability: np.ndarray) -> np.ndarray:
        """Return the distribution of reward and next wealth, [R, L, n]: the adjoint of `expect`.

        Args:
          t: the decision.
          probability: of every action and wealth, [A, L, n].
        """
        declined, paid = probability.reshape(2, self.n_portfolios, *probability.shape[1:])
        if t not in self.goals:
            return self._deconvolve(declined + paid)[None]
        out = np.zeros((len(self.rewards(t)), *probability.shape[1:]))
        (none, goal), able = self._reward_indices(t), self.affordable(t)
        declined, paid = declined + np.where(able, 0.0, paid), np.where(able, paid, 0.0)
        if t == self.spec.periods:
            out[none] += declined.sum(axis=0)
            out[goal] += paid.sum(axis=0)
        else:
            out[none] += self._deconvolve(declined)
            out[goal] += self._deconvolve(_apply(self._paid.T, paid))
        return out

    def terminal_payoff(self, t: int) -> None:
        """Return None: no action ends the episode before its last decision."""

    def observations(self, t: int) -> np.ndarray:
        """Return wealth and t at every point, float32 [n, 2]."""
        return np.stack([self.points, np.full(self.n_points, t)], axis=1).astype(np.float32)

    def locate(self, observations: np.ndarray) -> np.ndarray:
        """Return the nearest cell in log wealth of observations [E, 2], int64 [E]."""
        with np.errstate(divide="ignore"):  # a wealth of 0 is in the lowest cell
            logs = np.log(np.maximum(observations[:, 0].astype(np.float64), 0.0))
        # a wealth on an edge belongs to the cell above, where the cost on that edge is affordable
        cells = np.floor((logs - self._logs[0]) / self.width + 0.5 + 1e-6)
        return np.clip(cells, 0, self.n_points - 1).astype(np.int64)

    def statistics(self, occupancy: OccupancyMeasures) -> dict[str, Any]:
        """Return the mean undiscounted utility and the probabilities of the paper's tables."""
        early, late = self.spec.early_time, self.spec.periods
        able = self.affordable(early)
        return {
            "expected_utility": float(occupancy.mean_score),
            "p_early_affordable": float(occupancy.of_points(early)[able].sum()),
            "p_early": float(occupancy.of_actions(early)[self.n_portfolios :, able].sum()),
            "p_late": float(
                occupancy.of_actions(late)[self.n_portfolios :, self.affordable(late)].sum()
            ),
        }

    def _reward_indices(self, t: int) -> list[int]:
        """Return the indices of 0 and of the goal's utility among the rewards at t."""
        utility = self.goals[t][1] if t in self.goals else 0.0
        return [int(i) for i in np.searchsorted(self.rewards(t), [0.0, utility])]

    def _split_start(self) -> np.ndarray:
        """Return the initial wealth as probabilities of the two centres around it, float64 [n]."""
        spec = self.spec
        place = (np.log(spec.wealth) - self._logs[0]) / self.width
        below, above_fraction = int(place), place % 1.0
        able = self.points[below : below + 2] >= spec.early_cost
        if spec.early_time == 0 and able[0] != able[1]:
            # the first decision must see whether the goal is affordable, at the cost of the mean
            above_fraction = float(spec.wealth >= spec.early_cost)
        initial = np.zeros(self.n_points)
        initial[below : below + 2] = 1.0 - above_fraction, above_fraction
        return initial

    def _transform_kernels(self) -> None:
        """Transform each portfolio's distribution over cells, starting from a centre.

        Rounding to centres adds width² / 12 to the variance (Sheppard's correction), so the kernels
        use a variance that is smaller by this.
        """
        drifts, volatilities = np.asarray(self.spec.drifts), np.asarray(self.spec.volatilities)
        # a portfolio without risk needs some variance for its mean to be exact on the grid
        variance = volatilities**2 - self.width**2 / 12.0
        sd = np.sqrt(np.maximum(variance, self.width**2 / 4.0))
        self._down = max(1, int(np.ceil((TAILS * sd - drifts).max() / self.width)))
        self._up = max(1, int(np.ceil((TAILS * sd + drifts).max() / self.width)))
        edges = (np.arange(-self._down, self._up) + 0.5) * self.width
        inner = (edges - drifts[:, None]) / sd[:, None]
        outer = np.full((self.n_portfolios, 1), np.inf)
        z = np.concatenate([-outer, inner, outer], axis=1)  # the outer cells hold the tails
        lower, upper = np.diff(ndtr(z)), -np.diff(ndtr(-z))
        kernels = np.where(
            z[:, :-1] > 0.0, upper, lower
        )  # differences of the smaller tail are exact
        self._length = next_fast_len(self.n_points + self._down + self._up, real=True)
        self._kernels = np.fft.rfft(kernels, self._length).conj()  # [15, F]

    def _convolve(self, value: np.ndarray, out: np.ndarray) -> None:
        """Write E[functions [L, n]] after a step of every portfolio, [15, L, n]."""
        # one function at a time, so that the buffers stay in the cache
        spectra, means = np.empty_like(self._kernels), np.empty((self.n_portfolios, self._length))
        for i, function in enumerate(value):
            # beyond the grid a function has its value at the edge
            padded = np.pad(function, (self._down, self._up), mode="edge")
            np.multiply(self._kernels, np.fft.rfft(padded, self._length), out=spectra)
            np.fft.irfft(spectra, self._length, out=means)
            out[:, i] = means[:, : self.n_points]

    def _deconvolve(self, probability: np.ndarray) -> np.ndarray:
        """Return the distribution after a step, [L, n], from [15, L, n]: the adjoint."""
        out, first, end = np.empty(probability.shape[1:]), self._down, self._down + self.n_points
        for i in range(len(out)):
            spectra = np.fft.rfft(probability[:, i], self._length)
            # vecdot conjugates the kernels back
            moved = np.fft.irfft(np.vecdot(self._kernels.T, spectra.T), self._length)
            out[i] = moved[first:end]
            out[i, 0] += moved[:first].sum()
            out[i, -1] += moved[end:].sum()
        return out

    def _payment(self, cost: float) -> sparse.csr_array:
        """Return the matrix [n, n] that interpolates a function at the wealth after paying.

        It is linear between centres and constant below the lowest; rows are 0 where the cost is not
        affordable. It is applied after the convolution, whose result is smooth.
        """
        able = np.flatnonzero(self.points >= cost)
        logs = np.log(self.points[able] - cost)
        place = np.clip((logs - self._logs[0]) / self.width, 0, self.n_points - 1)
        below = np.minimum(place.astype(np.int64), self.n_points - 2)
        above_weight = place - below
        entries = np.concatenate([1.0 - above_weight, above_weight])
        rows = np.concatenate([able, able])
        index = (rows, np.concatenate([below, below + 1]))
        return sparse.csr_array((entries, index), shape=(self.n_points, self.n_points))


def _width(spec: WealthParameters, step: float) -> tuple[float, float]:
    """Return an edge and a width near `step` for which both costs' logarithms are edges.

    Costs that differ by less than half a step share an edge. Small volatilities make the cells
    narrower, down to an eighth of `step`.
    """
    step = float(np.clip(min(spec.volatilities) / FINEST, step / 8.0, step))
    low, high = np.log(sorted([spec.early_cost, spec.late_cost]))
    between = round((high - low) / step)
    return float(low), float((high - low) / between) if between else step


def _range(spec: WealthParameters) -> tuple[float, float]:
    """Return the range of log wealth outside which no policy's value changes.

    To fall to the low end and rise to a goal's cost again, or to rise to the high end and fall
    below the costs again, takes more than `SURE` standard deviations of the riskiest portfolio.
    After paying for the early goal the wealth can be any number, and only the late goal matters.
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
