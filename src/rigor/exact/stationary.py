"""Stationary policies of an infinite-horizon tabular model, by exact linear solves.

The risk-neutral optimum under one constant factor, which ends Algorithm 1, and the policies that
agents of many horizons converge to where no decision is the last and t is not in their state.
"""

import numpy as np

from rigor.errors import UserError
from rigor.exact.heads import greedy, head_values
from rigor.exact.solve import TIE
from rigor.exact.tabular import TabularModel
from rigor.maths.horizons import Bundle


def risk_neutral(model: TabularModel, gamma: float) -> np.ndarray:
    """Return the stationary policy of the largest E Σ γ^k R, int64 [n], by policy iteration.

    An action is changed only for one that is better by more than rounding, and ties go to the lower
    action, so it ends.

    Args:
      model: the problem; its number of decisions plays no part.
      gamma: the factor of one step, in [0, 1).
    """
    chosen = np.zeros(model.n_points, np.int64)
    while True:
        value = evaluate(model, chosen, np.array([gamma]))
        q = head_values(model, 0, gamma * value)[:, 0]  # [A, n]
        kept = np.take_along_axis(q, chosen[None], 0)[0]
        slack = TIE * max(1.0, float(np.abs(q).max()))
        if not (q.max(axis=0) > kept + slack).any():
            return (q >= q.max(axis=0) - slack).argmax(axis=0)
        chosen = np.where(q.max(axis=0) > kept + slack, q.argmax(axis=0), chosen)


def evaluate(model: TabularModel, actions: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    """Return E Σ_k γ_i^k R of a stationary policy: the solution of (I − γ_i P) V_i = r, [M, n].

    Args:
      model: the problem.
      actions: the policy, integers [n].
      gammas: Γ, each in [0, 1), [M].
    """
    kernel = model.kernel[np.arange(model.n_points), actions]  # [n, R, n]
    earned = kernel.sum(axis=2) @ model.atoms  # [n]
    moves = kernel.sum(axis=1)
    systems = np.eye(model.n_points) - gammas[:, None, None] * moves
    return np.linalg.solve(systems, np.broadcast_to(earned, systems.shape[:2])[..., None])[..., 0]


def stationary_heads(model: TabularModel, bundle: Bundle, per_head: bool) -> list[np.ndarray]:
    """Return the policies that a time-inconsistent agent of many horizons ends in, each int64 [n].

    ξ_i = E[R + γ_i V_i] and a* = argmax Σ_i w_i ξ_i. With `per_head` V_i = max_a ξ_i, which has one
    fixed point and so one policy. Else V_i = ξ_i(a*), of which a pure fixed point need not exist:
    evaluation and greedy improvement in turn, from V = 0, end in a cycle. One policy in it is a
    fixed point, more are an agent that never settles.

    Args:
      model: the problem; its number of decisions plays no part.
      bundle: the horizons (Γ, w), all with γ_i < 1.
      per_head: whether each horizon bootstraps from its own greedy action.

    Raises:
      UserError: a horizon has γ_i = 1 or follows a clock.
    """
    gammas = _constant(bundle)
    if per_head:
        own = [evaluate(model, risk_neutral(model, g), np.array([g]))[0] for g in gammas]
        xi = head_values(model, 0, gammas[:, None] * np.array(own))
        return [greedy(xi, bundle.weights)]
    seen: dict[bytes, int] = {}
    policies: list[np.ndarray] = []
    value = np.zeros((len(gammas), model.n_points))
    while True:
        chosen = greedy(head_values(model, 0, gammas[:, None] * value), bundle.weights)
        if chosen.tobytes() in seen:
            return policies[seen[chosen.tobytes()] :]
        seen[chosen.tobytes()] = len(policies)
        policies.append(chosen)
        value = evaluate(model, chosen, gammas)


def _constant(bundle: Bundle) -> np.ndarray:
    """Return Γ, refusing what no stationary agent can have."""
    gammas = bundle.gammas
    if gammas is None:
        atoms = bundle.discount.atoms
        if atoms is None or len(atoms[0]) > 1:
            raise UserError(
                f"horizons=single follows the clock of discount={type(bundle.discount).__name__}, "
                f"which a stationary agent does not see; use horizons=multi"
            )
        gammas = atoms[0]
    if gammas.max() >= 1.0:
        raise UserError(
            f"horizons: a horizon with gamma={gammas.max():g} has no finite value in an infinite "
            f"horizon; use discount=capped, or a finite env.horizon"
        )
    return gammas
