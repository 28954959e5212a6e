"""Exact evaluation: where a policy leads, and the whole law of its discounted return."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rigor.exact.levels import Levels
from rigor.exact.model import Model
from rigor.exact.solve import Tables

# What a policy does: (t, offset indices are those of the levels) -> actions, integers [L_t, n].
Choose = Callable[[int], np.ndarray]


@dataclass
class Outcome:
    """What a policy does to a problem.

    Attributes:
      returns, probabilities: the law of the discounted return, each [k], ascending.
      mean_undiscounted: the mean of the undiscounted return.
      mass: on every action and point at each decision, each [A, n].
    """

    returns: np.ndarray
    probabilities: np.ndarray
    mean_undiscounted: float
    mass: list[np.ndarray] = field(repr=False)

    def occupied(self, t: int) -> np.ndarray:
        """Return the mass on every point at decision t, [n]; less than one once some have ended."""
        return self.mass[t].sum(axis=0)

    def taken(self, t: int) -> np.ndarray:
        """Return the mass on every action and point at decision t, [A, n]."""
        return self.mass[t]

    def undiscounted(self) -> float:
        """Return the mean undiscounted return."""
        return self.mean_undiscounted


def follow(
    model: Model,
    factors: np.ndarray,
    levels: Levels,
    choose: Choose,
    epsilon: float = 0.0,
    clock: int = 0,
) -> Outcome:
    """Propagate the law of (point, offset) forward under a policy.

    Args:
      model: the problem.
      factors: d_t of the T decisions under the true discount, [T].
      levels: its reachable offsets; the policy may look at any of its clocks.
      choose: the actions at decision t, integers [L_t, n].
      epsilon: chance that a uniformly random action is taken instead.
      clock: which of the levels' discounts is the true one.
    """
    law = model.initial[None].copy()  # [L, n]
    returns, probabilities, mass = [], [], []
    undiscounted = 0.0
    actions = np.arange(model.n_actions)[:, None, None]
    for t in range(model.n_decisions):
        rewards = np.asarray(model.rewards(t))
        share = (choose(t)[None] == actions) * (1.0 - epsilon) + epsilon / model.n_actions
        taken = share * law  # [A, L, n]
        mass.append(taken.sum(axis=1))
        stops = model.stops(t)
        if stops is not None:
            ends = ~np.isnan(stops)
            ended = np.where(ends[:, None], taken, 0.0)
            payoff = np.where(ends, stops, 0.0)
            totals = levels.offsets[t][:, clock, None] + factors[t] * payoff[:, None]  # [A, L, n]
            kept = ended > 0.0
            returns.append(totals[kept])
            probabilities.append(ended[kept])
            undiscounted += float((ended.sum(axis=1) * payoff).sum())
            taken = np.where(ends[:, None], 0.0, taken)
        moved = model.spread(t, taken)  # [R, L, n]
        undiscounted += float(moved.sum(axis=(1, 2)) @ rewards)
        law = levels.scatter(t, moved)
    returns.append(levels.offsets[-1][:, clock])
    probabilities.append(law.sum(axis=1))
    values, masses = _law(np.concatenate(returns), np.concatenate(probabilities))
    return Outcome(values, masses, undiscounted, mass)


def tabulated(tables: Tables, levels: Levels) -> Choose:
    """Return the choices of a policy's tables at the offsets of some levels, by the nearest one."""

    def choose(t: int) -> np.ndarray:
        own, asked = tables.offsets[t], levels.offsets[t][:, 0]
        return tables.actions[t][nearest(own, asked)]

    return choose


def nearest(grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of the nearest point of an ascending grid, int64 in the shape of values."""
    if len(grid) == 1:
        return np.zeros(np.shape(values), np.int64)
    above = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    return above - (values - grid[above - 1] <= grid[above] - values)


def _law(values: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct values, ascending, and their probabilities, which sum to one."""
    kept = masses > 0.0  # however small: exp(βx) may weigh it heavily
    distinct, place = np.unique(values[kept], return_inverse=True)
    probabilities = np.bincount(place, weights=masses[kept])
    return distinct, probabilities / probabilities.sum()
