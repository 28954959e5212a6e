"""Agents that learn one return for each exponential horizon, exactly.

Every horizon i keeps the values ξ_i of its own exponential discount γ_i; the agent acts by
Σ_i readout_i ξ_i. With the running clock and a shared bootstrap that is the optimum of the bundle's
own discount; with a clock frozen at t = 0 it is the paper's time-inconsistent agent, which
contradicts tomorrow what it planned today. For the mean.
"""

import numpy as np

from rigor.exact.model import Model
from rigor.exact.solve import TIE, Tables
from rigor.maths.horizons import Bundle


def head_policy(model: Model, bundle: Bundle, *, clock_runs: bool, per_head: bool) -> Tables:
    """Return the policy that an agent of many horizons converges to, with time in its state.

    Args:
      model: the problem.
      bundle: the horizons (Γ, w).
      clock_runs: whether the readout follows the episode's clock, or stays at t = 0.
      per_head: whether each horizon bootstraps from its own greedy action (Fedus et al. 2019), or
        all from the one that the agent takes (the paper).
    """
    value = np.zeros((bundle.n_horizons, model.n_points))  # [M, n]
    actions = []
    for t in reversed(range(model.n_decisions)):
        xi = head_values(model, t, bundle.backup(t)[:, None] * value)  # [A, M, n]
        chosen = greedy(xi, bundle.weights_at(t if clock_runs else 0))  # [n]
        actions.append(chosen[None].astype(np.int16))
        value = xi.max(axis=0) if per_head else np.take_along_axis(xi, chosen[None, None], 0)[0]
    return Tables(actions[::-1], [np.zeros(1) for _ in actions])


def head_values(model: Model, t: int, discounted: np.ndarray) -> np.ndarray:
    """Return ξ_i(point, action) = E[R + γ_i V_i], [A, M, n], of `discounted` γ_i V_i [M, n]."""
    rewards = np.asarray(model.rewards(t))[:, None, None]
    xi = model.expect(t, rewards + discounted)
    stops = model.stops(t)
    return xi if stops is None else np.where(np.isnan(stops[:, None]), xi, stops[:, None])


def greedy(xi: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return argmax_a Σ_i weights_i ξ_i, int64 [n]; the lower action of those tied."""
    q = np.einsum("m,amn->an", weights, xi)
    best = q.max(axis=0)
    return (q >= best - TIE * np.abs(best)).argmax(axis=0)
