"""The exact value of any policy, such as one that another library has trained."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from rigor.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from rigor.envs.model import Model
    from rigor.exact.return_distribution import DecisionRule
    from rigor.maths.discount import Discount
    from rigor.maths.utility import Utility

ObservationPolicy = Callable[["np.ndarray", "np.ndarray"], "np.ndarray"]
"""From observations [n, ...] and t [n] to actions [n]."""

StockPolicy = Callable[["np.ndarray", "np.ndarray", "np.ndarray"], "np.ndarray"]
"""From observations [n, ...], t [n] and stocks S_t [n] to actions [n]."""


@dataclass(frozen=True)
class ExactValue:
    """The exact value of a policy beside the optimum.

    Attributes:
      objective: the risk measure of the policy's discounted return.
      optimum: the largest objective of any policy. Of a problem without a last decision, the value
        of Algorithm 1, which a better policy may exceed.
      initial_stock: c₀ with which the policy's stock began.
      initial_stock_optimal: c₀ of the optimal policy.
    """

    objective: float
    optimum: float
    initial_stock: float
    initial_stock_optimal: float

    @property
    def regret(self) -> float:
        """The optimum less the objective."""
        return self.optimum - self.objective


def exact_value(
    env: Any,
    policy: ObservationPolicy | StockPolicy,
    *,
    discount: "Discount",
    risk: "Utility",
    initial_stock: float | None = None,
) -> ExactValue:
    """Return the exact value of a policy, the optimum and the regret; nothing is sampled.

    Args:
      env: an environment of `rigor.gym`, or the `env` of a config; its model must be known.
      policy: called as policy(observation, t), or as policy(observation, t, stock) if it takes
        three arguments, with n observations of the environment [n, ...], times int64 [n] and
        stocks S_t float64 [n]; returns n actions.
      discount: such as `rigor.maths.discount.Hyperbolic(k=0.05)`.
      risk: such as `rigor.maths.utility.CVaR(tau=0.1)`.
      initial_stock: c₀ of a policy of three arguments, raw reward units; None for the optimal one.

    Raises:
      UserError: an argument is of another kind, the environment has no model, a wrapper changes
        its actions or rewards, or the policy returns something other than n actions.
    """
    import numpy as np

    from rigor.config.defaults import option
    from rigor.exact.infinite_horizon import composite_policy
    from rigor.exact.outer_search import optimum
    from rigor.exact.policy_evaluation import (
        PLANNED,
        greedy_rule,
        policy_objective,
        truncated_model,
    )
    from rigor.exact.reachable_stocks import reachable_stocks
    from rigor.exact.return_distribution import evaluate_policy

    _refuse_other_arguments(policy, discount, risk, initial_stock)
    spec, seen = _understood(env)
    max_stocks = option("exact", "default").max_stocks
    if spec.problem.n_decisions is None:
        model = truncated_model(spec, discount)
        best = composite_policy(spec, discount, risk, PLANNED, max_stocks)
        value, c0 = best.objective, best.c0
    else:
        model = spec.problem.model()
        found = optimum(model, discount.factor(np.arange(model.n_decisions)), risk, max_stocks)
        value, c0 = found.value, found.c0
    begin = c0 if initial_stock is None else initial_stock
    own = _ForeignPolicy(policy, seen, model.n_actions, begin)
    factors = discount.factor(np.arange(model.n_decisions))
    reachable = reachable_stocks(model, factors[:, None], max_stocks)
    rule = greedy_rule(own, model, reachable) if own.takes_stock else own.rule(model)
    outcome = evaluate_policy(model, factors, reachable, rule)
    objective = policy_objective(risk, model, factors, rule, outcome)
    return ExactValue(objective, value, own.initial_stock, c0)


def _refuse_other_arguments(policy: Any, discount: Any, risk: Any, initial_stock: Any) -> None:
    if not callable(policy):
        raise UserError(
            f"policy={policy!r}: must be a function of (observation, t) or (observation, t, stock)"
        )
    if not hasattr(discount, "factor"):
        raise UserError(
            f"discount={discount!r}: must be an object, such as "
            "rigor.maths.discount.Exponential(gamma=0.9)"
        )
    if not hasattr(risk, "oce"):
        raise UserError(
            f"risk={risk!r}: must be an object, such as rigor.maths.utility.CVaR(tau=0.1)"
        )
    if initial_stock is None:
        return
    if not _takes(policy, 3):
        raise UserError(
            f"initial_stock={initial_stock!r}: needs a policy of (observation, t, stock), and this "
            "one takes no stock; leave it out"
        )
    if not isinstance(initial_stock, Real) or not math.isfinite(initial_stock):
        raise UserError(f"initial_stock={initial_stock!r}: must be a finite number")


class _ForeignPolicy:
    """A policy behind the interface with which learned agents are evaluated.

    Args:
      policy: of the user.
      seen: from a model's observations [n, *shape] and t [n] to those of the user's environment.
      n_actions: A. initial_stock: c₀.
    """

    def __init__(
        self,
        policy: Callable[..., Any],
        seen: "Callable[[np.ndarray, np.ndarray], np.ndarray]",
        n_actions: int,
        initial_stock: float,
    ) -> None:
        self._policy, self._seen, self._n_actions = policy, seen, n_actions
        self.takes_stock = _takes(policy, 3)
        self.initial_stock = initial_stock if self.takes_stock else 0.0

    def learner_reward(self, reward: "np.ndarray") -> "np.ndarray":
        """Return the rewards: the stock is in raw units."""
        return reward

    def greedy(
        self, observation: "np.ndarray", t: "np.ndarray", stock: "np.ndarray"
    ) -> "np.ndarray":
        """Return the user's actions, int64 [n]."""
        import numpy as np

        given = (self._seen(observation, t), t, stock)
        returned = self._policy(*(given if self.takes_stock else given[:2]))
        if isinstance(returned, tuple):  # as of the `predict` of Stable-Baselines3
            raise UserError(
                "policy: returned a tuple; pass a function of (observation, t) that returns the "
                "actions alone, as in lambda observation, t: model.predict(observation)[0]"
            )
        actions = np.asarray(returned)
        whole = np.issubdtype(actions.dtype, np.integer)
        if actions.shape != t.shape or not whole or not self._in_range(actions):
            raise UserError(
                f"policy: returned {actions.dtype} of shape {actions.shape} for {len(t)} "
                f"observations; must be integers of shape ({len(t)},) in 0...{self._n_actions - 1}"
            )
        return actions.astype(np.int64)

    def _in_range(self, actions: "np.ndarray") -> bool:
        return bool((actions >= 0).all() and (actions < self._n_actions).all())

    def rule(self, model: "Model") -> "DecisionRule":
        """Return the actions at every point, whatever the stock."""
        import numpy as np

        def at(t: int) -> np.ndarray:
            observations = model.observations(t)
            times = np.full(len(observations), t, np.int64)
            return self.greedy(observations, times, np.zeros(len(times)))[None]

        return at


def _takes(policy: Callable[..., Any], n: int) -> bool:
    """Tell whether a policy can be called with n positional arguments."""
    try:
        inspect.signature(policy).bind(*range(n))
    except (TypeError, ValueError):  # ValueError: a function of C code has no signature
        return False
    return True


def _understood(env: Any) -> "tuple[Any, Callable[[np.ndarray, np.ndarray], np.ndarray]]":
    """Return a problem's schema, and how its model's observations look in the user's environment.

    Raises:
      UserError: there is no model, or a wrapper changes the problem.
    """
    import gymnasium
    import numpy as np

    wrappers = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.ActionWrapper | gymnasium.RewardWrapper):
            raise UserError(
                f"env: {type(env).__name__} changes actions or rewards, which the model does not "
                "know; pass env.unwrapped, and let the policy translate"
            )
        if isinstance(env, gymnasium.ObservationWrapper):
            wrappers.append(env)
        env = env.env
    form = env if isinstance(env, gymnasium.Env) else None
    spec = env if form is None else getattr(form, "schema", None)
    problem = getattr(spec, "problem", None)
    if problem is None or problem.model is None:
        raise UserError(
            f"env: {type(env).__name__} has no exact model; use rigor/GoalBasedWealth-v0, "
            "rigor/AmericanPut-v0 or rigor/Tabular-v0 of rigor.gym"
        )
    if form is not None and not isinstance(form.action_space, gymnasium.spaces.Discrete):
        raise UserError(f"env: its actions are {form.action_space}; make it with action=flat")
    shown = getattr(form, "shown", lambda observation, t: observation)

    def seen(observation: np.ndarray, t: np.ndarray) -> np.ndarray:
        rows = shown(observation, t)
        for wrapper in reversed(wrappers):
            rows = np.stack([wrapper.observation(row) for row in rows])
        return rows

    return spec, seen
