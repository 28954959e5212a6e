"""Exact policy evaluation: occupancy measures and the distribution of the discounted return."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rigor.envs.model import Model
from rigor.exact.backward_induction import PolicyTables
from rigor.exact.reachable_stocks import ReachableStocks

DecisionRule = Callable[[int], np.ndarray]
"""A policy: t -> the action at every reachable offset and point, integers [L_t, n]."""


@dataclass
class PolicyOutcome:
    """The return distribution and the occupancy measures of a policy.

    Attributes:
      returns, probabilities: the distribution of the discounted return, each [k], ascending.
      mean_score: the expected undiscounted return.
      visits: P(action, point) at each decision, each [A, n].
    """

    returns: np.ndarray
    probabilities: np.ndarray
    mean_score: float
    visits: list[np.ndarray] = field(repr=False)

    def of_points(self, t: int) -> np.ndarray:
        """Return P(point) at decision t, [n]; the sum is the probability of not having ended."""
        return self.visits[t].sum(axis=0)

    def of_actions(self, t: int) -> np.ndarray:
        """Return P(action, point) at decision t, [A, n]."""
        return self.visits[t]


def evaluate_policy(
    model: Model,
    factors: np.ndarray,
    reachable: ReachableStocks,
    rule: DecisionRule,
    epsilon: float = 0.0,
    discount_index: int = 0,
) -> PolicyOutcome:
    """Propagate the distribution of (point, offset) forward under a policy.

    Args:
      model: the problem.
      factors: d_t of the T decisions under the true discount, [T].
      reachable: its reachable offsets; the policy may use the offsets of another discount.
      rule: the actions at decision t, integers [L_t, n].
      epsilon: probability of a uniformly random action.
      discount_index: which of the offsets' discounts is the true one.
    """
    probability = model.initial[None].copy()  # [L, n]
    returns, probabilities, visits = [], [], []
    score = 0.0
    actions = np.arange(model.n_actions)[:, None, None]
    for t in range(model.n_decisions):
        rewards = np.asarray(model.rewards(t))
        policy = (rule(t)[None] == actions) * (1.0 - epsilon) + epsilon / model.n_actions
        chosen = policy * probability  # [A, L, n]
        visits.append(chosen.sum(axis=1))
        payoff = model.terminal_payoff(t)
        if payoff is not None:
            ends = ~np.isnan(payoff)
            ended = np.where(ends[:, None], chosen, 0.0)
            payoff = np.where(ends, payoff, 0.0)
            total = (
                reachable.offsets[t][:, discount_index, None] + factors[t] * payoff[:, None]
            )  # [A, L, n]
            possible = ended > 0.0
            returns.append(total[possible])
            probabilities.append(ended[possible])
            score += float((ended.sum(axis=1) * payoff).sum())
            chosen = np.where(ends[:, None], 0.0, chosen)
        moved = model.push_forward(t, chosen)  # [R, L, n]
        score += float(moved.sum(axis=(1, 2)) @ rewards)
        probability = reachable.scatter(t, moved)
    returns.append(reachable.offsets[-1][:, discount_index])
    probabilities.append(probability.sum(axis=1))
    distinct, merged = _merge_equal(np.concatenate(returns), np.concatenate(probabilities))
    return PolicyOutcome(distinct, merged, score, visits)


def decision_rule(tables: PolicyTables, reachable: ReachableStocks) -> DecisionRule:
    """Return the actions of a policy's tables at reachable offsets, by the nearest table entry."""

    def rule(t: int) -> np.ndarray:
        return tables.actions[t][nearest(tables.offsets[t], reachable.offsets[t][:, 0])]

    return rule


def nearest(grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the index of the nearest point of an ascending grid, int64 in the shape of values."""
    if len(grid) == 1:
        return np.zeros(np.shape(values), np.int64)
    above = np.clip(np.searchsorted(grid, values), 1, len(grid) - 1)
    return above - (values - grid[above - 1] <= grid[above] - values)


def _merge_equal(values: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values, ascending, and their probabilities, which sum to one."""
    possible = probabilities > 0.0  # tiny probabilities count, because exp(βx) can be huge
    distinct, index = np.unique(values[possible], return_inverse=True)
    merged = np.bincount(index, weights=probabilities[possible])
    return distinct, merged / merged.sum()
