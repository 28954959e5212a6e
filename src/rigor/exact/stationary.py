"""Stationary policies of infinite-horizon tabular problems, by exact linear solves.

These are the risk-neutral optimum under a constant discount factor, which is the tail of Algorithm
1, and the policies to which multi-horizon agents without t in their state converge.
"""

import numpy as np

from rigor.envs.tabular_model import TabularModel
from rigor.errors import UserError
from rigor.exact.backward_induction import TIE_TOLERANCE
from rigor.exact.multi_horizon import greedy, horizon_values
from rigor.maths.horizons import Bundle


def risk_neutral(model: TabularModel, gamma: float) -> np.ndarray:
    """Return the stationary policy of the largest E Σ γ^k R, int64 [n], by policy iteration.

    Policy iteration terminates because an action changes only if another is better by more than
    rounding. Ties go to the lower action.

    Args:
      model: the problem; its number of decisions is ignored.
      gamma: the discount factor of a step, in [0, 1).
    """
    policy = np.zeros(model.n_points, np.int64)
    while True:
        value = evaluate(model, policy, np.array([gamma]))
        q = horizon_values(model, 0, gamma * value)[:, 0]  # [A, n]
        current = np.take_along_axis(q, policy[None], 0)[0]
        slack = TIE_TOLERANCE * float(np.abs(q).max())
        if not (q.max(axis=0) > current + slack).any():
            return (q >= q.max(axis=0) - slack).argmax(axis=0)
        policy = np.where(q.max(axis=0) > current + slack, q.argmax(axis=0), policy)


def evaluate(model: TabularModel, actions: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    """Return E Σ_k γ_i^k R of a stationary policy: the solution of (I − γ_i P) V_i = r, [M, n].

    Args:
      model: the problem.
      actions: the policy's actions, integers [n].
      gammas: Γ, each in [0, 1), [M].
    """
    kernel = model.kernel[np.arange(model.n_points), actions]  # [n, R, n]
    earned = kernel.sum(axis=2) @ model.atoms  # [n]
    moves = kernel.sum(axis=1)
    systems = np.eye(model.n_points) - gammas[:, None, None] * moves
    return np.linalg.solve(systems, np.broadcast_to(earned, systems.shape[:2])[..., None])[..., 0]


def stationary_cycle(model: TabularModel, bundle: Bundle, per_head: bool) -> list[np.ndarray]:
    """Return the limit cycle of a time-inconsistent multi-horizon agent, policies int64 [n].

    ξ_i = E[R + γ_i V_i] and a* = argmax Σ_i w_i ξ_i. With `per_head`, V_i = max_a ξ_i has a unique
    fixed point and so a single policy. Otherwise V_i = ξ_i(a*), which need not have a pure fixed
    point. Alternating evaluation and greedy improvement from V = 0 ends in a cycle of policies: a
    cycle of length 1 is a fixed point, and an agent with a longer cycle does not converge.

    Args:
      model: the problem; its number of decisions is ignored.
      bundle: the horizons (Γ, w), all with γ_i < 1.
      per_head: whether each horizon bootstraps from its own greedy action.

    Raises:
      UserError: a horizon has γ_i = 1 or depends on t.
    """
    gammas = _constant_factors(bundle)
    if per_head:
        own = [evaluate(model, risk_neutral(model, g), np.array([g]))[0] for g in gammas]
        xi = horizon_values(model, 0, gammas[:, None] * np.array(own))
        return [greedy(xi, bundle.weights)]
    seen: dict[bytes, int] = {}
    policies: list[np.ndarray] = []
    value = np.zeros((len(gammas), model.n_points))
    while True:
        policy = greedy(horizon_values(model, 0, gammas[:, None] * value), bundle.weights)
        if policy.tobytes() in seen:
            return policies[seen[policy.tobytes()] :]
        seen[policy.tobytes()] = len(policies)
        policies.append(policy)
        value = evaluate(model, policy, gammas)


def _constant_factors(bundle: Bundle) -> np.ndarray:
    """Return Γ, or raise UserError if a stationary agent cannot have these horizons."""
    gammas = bundle.gammas
    if gammas is None:
        atoms = bundle.true_discount.atoms
        if atoms is None or len(atoms[0]) > 1:
            raise UserError(
                "horizons=single: the discount's one-step factors depend on t, which a stationary "
                "agent does not observe; use horizons=multi"
            )
        gammas = atoms[0]
    if gammas.max() >= 1.0:
        raise UserError(
            f"env.horizon=inf: the value of a horizon with gamma={gammas.max():g} is infinite; use "
            f"discount=capped, or a finite env.horizon"
        )
    return gammas
