"""Facts that an environment may know of itself, beyond how to step it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rigor.envs.model import Model

Transitions = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """Facts about a problem; None where the environment does not know a fact.

    Attributes:
      n_decisions: decisions of an episode, at t = 0 ... n_decisions − 1; None if unbounded.
      return_bounds: the lowest and the highest discounted return, raw reward units, for the
        discount d_t of every decision, float64 [n_decisions].
      attainable_returns: all discounted returns where there are few, float64 [J], for the same d_t.
      coordinates: inputs of a network that place an observation relative to the problem's
        thresholds, float32 [B, K], for observations [B, *shape] in numpy or torch.
      action_basis: basis functions of the actions, float64 [n_actions, D]; similar actions have
        similar rows.
      next_states: k possible successors of each of n transitions, sampled by stratified noise:
        next observations [n · k, *shape], rewards and terminated [n · k]. Its arguments are
        observations [n, *shape], t and actions, int64 [n], k, and the random generator.
      model: the exact model of the problem, built anew by each call.
    """

    n_decisions: int | None = None
    return_bounds: Callable[[np.ndarray], tuple[float, float]] | None = None
    attainable_returns: Callable[[np.ndarray], np.ndarray] | None = None
    coordinates: Callable[[Any], Any] | None = None
    action_basis: np.ndarray | None = None
    next_states: (
        Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.random.Generator], Transitions] | None
    ) = None
    model: "Callable[[], Model] | None" = None


@dataclass(frozen=True)
class ReturnToGo:
    """Sums of discounted rewards from t on, Σ_{k≥t} d̃_k R_{k+1}, in units of the stock S_t.

    Attributes:
      low, high: the smallest and the largest sum, float64 [times]; 0 after the last decision.
      attainable: all J sums where there are few, float64 [times, J]; otherwise None.
    """

    low: np.ndarray
    high: np.ndarray
    attainable: np.ndarray | None


def return_to_go(problem: Problem | None, discount: np.ndarray) -> ReturnToGo | None:
    """Return bounds on the return-to-go at every t, or None if the problem does not know them.

    Args:
      problem: the facts of the environment, if it has any.
      discount: d̃_t, float64 [times].
    """
    if problem is None or problem.n_decisions is None or problem.return_bounds is None:
        return None
    n = problem.n_decisions
    past = np.tri(n, k=-1, dtype=bool)  # [t, k]: decision k comes before t
    factors = np.where(past, 0.0, discount[:n])
    low, high = np.zeros((2, len(discount)))
    low[:n], high[:n] = np.transpose([problem.return_bounds(row) for row in factors])
    if problem.attainable_returns is None:
        return ReturnToGo(low, high, None)
    sums = np.array([problem.attainable_returns(row) for row in factors])  # [n, J]
    return ReturnToGo(low, high, np.pad(sums, ((0, len(discount) - n), (0, 0))))
