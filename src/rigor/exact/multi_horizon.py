"""Exact policies of agents that learn a return for each exponential horizon.

Every horizon i has the action values ξ_i under its own discount factor γ_i, and the agent maximises
Σ_i mixture_i ξ_i. With a running clock and a shared bootstrap this is the optimum under the
bundle's discount. With a clock frozen at t = 0 it is the paper's time-inconsistent agent, which
later departs from its own plan. Defined for the mean.
"""

import numpy as np

from rigor.envs.model import Model
from rigor.exact.backward_induction import TIE_TOLERANCE, PolicyTables
from rigor.maths.horizons import Bundle


def multi_horizon_policy(
    model: Model, bundle: Bundle, *, clock_runs: bool, per_head: bool
) -> PolicyTables:
    """Return the policy to which a multi-horizon agent with t in its state converges.

    Args:
      model: the problem.
      bundle: the horizons (Γ, w).
      clock_runs: whether the mixture follows the episode's clock or stays at t = 0.
      per_head: whether each horizon bootstraps from its own greedy action (Fedus et al. 2019), or
        all horizons from the agent's action (the paper).
    """
    value = np.zeros((bundle.n_horizons, model.n_points))  # [M, n]
    actions = []
    for t in reversed(range(model.n_decisions)):
        xi = horizon_values(model, t, bundle.step_factors(t)[:, None] * value)  # [A, M, n]
        best = greedy(xi, bundle.normalised_weights(t if clock_runs else 0))  # [n]
        actions.append(best[None].astype(np.int16))
        value = xi.max(axis=0) if per_head else np.take_along_axis(xi, best[None, None], 0)[0]
    return PolicyTables(actions[::-1], [np.zeros(1) for _ in actions])


def horizon_values(model: Model, t: int, discounted: np.ndarray) -> np.ndarray:
    """Return ξ_i(point, action) = E[R + γ_i V_i], [A, M, n], of `discounted` γ_i V_i [M, n]."""
    rewards = np.asarray(model.rewards(t))[:, None, None]
    xi = model.expect(t, rewards + discounted)
    payoff = model.terminal_payoff(t)
    return xi if payoff is None else np.where(np.isnan(payoff[:, None]), xi, payoff[:, None])


def greedy(xi: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return argmax_a Σ_i weights_i ξ_i, int64 [n]; ties go to the lower action."""
    q = np.einsum("m,amn->an", weights, xi)
    best = q.max(axis=0)
    return (q >= best - TIE_TOLERANCE * np.abs(best)).argmax(axis=0)
