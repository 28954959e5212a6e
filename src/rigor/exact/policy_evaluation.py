"""Exact metrics of any policy: objective, regret and the problem's own statistics."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rigor.config.config import Config
from rigor.envs.model import Model
from rigor.envs.tabular_model import TabularModel
from rigor.errors import UserError
from rigor.exact.backward_induction import StockAugmentedProblem, augments_with_stock
from rigor.exact.discount_tail import TailBound, tail_factor
from rigor.exact.fixed_decisions import FixedDecisions
from rigor.exact.infinite_horizon import CompositePolicy, composite_policy
from rigor.exact.outer_search import Optimum, objective_of, optimum
from rigor.exact.reachable_stocks import ReachableStocks, reachable_stocks
from rigor.exact.return_distribution import DecisionRule, PolicyOutcome, evaluate_policy
from rigor.maths.discount import Discount
from rigor.maths.utility import Utility, is_mean

PLANNED = 30  # decisions planned for the optimum of an infinite horizon
NEGLIGIBLE = 1e-6  # discounted rewards omitted from an infinite sum, reward units
ROUNDING = 1e-12  # relative difference of an objective and the optimum that counts as none
ROWS = 8192  # observations in a batch of the network


class GreedyPolicy(Protocol):
    """The part of a learned agent that its exact evaluation uses."""

    initial_stock: float

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return rewards in the learner's units, which are also those of its stock."""

    def greedy(self, observation: np.ndarray, t: np.ndarray, stock: np.ndarray) -> np.ndarray:
        """Return the greedy actions, int64 [E]."""


def policy_metrics(
    risk: Utility,
    model: Model,
    factors: np.ndarray,
    rule: DecisionRule,
    outcome: PolicyOutcome,
    target: Optimum,
) -> dict[str, Any]:
    """Return a policy's exact objective, its regret and the problem's statistics.

    Args:
      risk: the risk measure's utility. model: the problem. factors: d_t of the T decisions, [T].
      rule, outcome: the policy, and its outcome.
      target: the optimum.
    """
    objective = policy_objective(risk, model, factors, rule, outcome)
    is_optimal = math.isclose(objective, target.value, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return {
        "objective_exact": objective,
        "objective_optimal": target.value,
        "initial_stock_optimal": target.c0,
        "stock_error": target.stock_error,
        "regret": 0.0 if is_optimal else target.value - objective,
        **model.statistics(outcome),
    }


def policy_objective(
    risk: Utility, model: Model, factors: np.ndarray, rule: DecisionRule, outcome: PolicyOutcome
) -> float:
    """Return the OCE of a policy's discounted return.

    For an exponential utility, a policy that takes no stock is evaluated by backward induction
    without stocks, which is exact even if the outcome was computed on a grid of stocks.
    """
    if augments_with_stock(risk) or is_mean(risk):
        return objective_of(risk, outcome)
    decisions = []
    for t in range(model.n_decisions):
        actions = rule(t)
        if (actions != actions[0]).any():
            return objective_of(risk, outcome)
        decisions.append(actions[0])
    fixed = FixedDecisions(model, model.n_decisions, decisions.__getitem__)
    return StockAugmentedProblem(fixed, factors, risk, 3).policy(0.0)[0]


def reachable_under_both_discounts(
    model: Model, discount: np.ndarray, factors: np.ndarray, uses_stock: bool, max_stocks: int
) -> ReachableStocks:
    """Return offsets under the agent's discount (index 0) and the true one (index 1).

    The true offsets stand for both if the agent does not use its stock.
    """
    own = discount if uses_stock else factors
    if np.array_equal(own, factors):
        reachable = reachable_stocks(model, factors[:, None], max_stocks)
        reachable.offsets = [np.repeat(offsets, 2, axis=1) for offsets in reachable.offsets]
        return reachable
    return reachable_stocks(model, np.stack([own, factors], axis=1), max_stocks)


@dataclass
class LearnedOutcome:
    """The exact outcome of a learned agent's greedy policy.

    Attributes:
      model: the problem, without decisions of negligible discount if it has no last one.
      factors: d_t of its T decisions, [T].
      reachable: offsets under the agent's discount and the true one.
      rule, outcome: the policy, and its outcome under the true discount.
    """

    model: Model
    factors: np.ndarray
    reachable: ReachableStocks
    rule: DecisionRule
    outcome: PolicyOutcome


def learned_outcome(config: Config, agent: GreedyPolicy) -> LearnedOutcome:
    """Return the exact outcome of a learned agent's greedy policy.

    Raises:
      UserError: two discounts at once need too many stocks, or an infinite horizon has no tail.
    """
    infinite = config.env.problem.n_decisions is None
    model: Model = (
        truncated_model(config.env, config.discount) if infinite else config.env.problem.model()
    )
    times = np.arange(model.n_decisions)
    factors, discount = config.discount.factor(times), config.bundle.discount(times)
    reachable = reachable_under_both_discounts(
        model, discount, factors, config.risk.needs_stock, config.exact.max_stocks
    )
    rule = greedy_rule(agent, model, reachable)
    outcome = evaluate_policy(model, factors, reachable, rule, discount_index=1)
    return LearnedOutcome(model, factors, reachable, rule, outcome)


def measure(config: Config, agent: GreedyPolicy) -> dict[str, Any]:
    """Return the exact metrics of a learned agent's greedy policy.

    Raises:
      UserError: two discounts at once need too many stocks, or an infinite horizon has no tail.
    """
    learned = learned_outcome(config, agent)
    model, factors, rule, outcome = learned.model, learned.factors, learned.rule, learned.outcome
    max_stocks = config.exact.max_stocks
    if config.env.problem.n_decisions is not None:
        target = optimum(model, factors, config.risk, max_stocks)
        random = evaluate_policy(
            model,
            factors,
            learned.reachable,
            lambda t: np.zeros((1, 1), np.int64),  # no action is greedy at epsilon = 1
            epsilon=1.0,
            discount_index=1,
        )
        return {
            **policy_metrics(config.risk, model, factors, rule, outcome, target),
            "objective_random": objective_of(config.risk, random),
            "return_low": float(random.returns[0]),
            "return_high": float(random.returns[-1]),
        }
    best = composite_policy(config.env, config.discount, config.risk, PLANNED, max_stocks)
    objective = policy_objective(config.risk, model, factors, rule, outcome)
    return {**certified_metrics(best, objective), "stock_error": best.stock_error}


def grid_note(max_stocks: int, stock_error: float) -> str:
    """Return what a user reads where a grid of stocks replaces the reachable ones."""
    return (
        f"exact.max_stocks={max_stocks}: more stocks are reachable, so values are interpolated on "
        f"a grid, and the optimum may be up to {stock_error:.2g} higher; raise exact.max_stocks"
    )


def certified_metrics(best: CompositePolicy, objective: float) -> dict[str, Any]:
    """Return the exact metrics of an infinite-horizon policy, relative to Algorithm 1.

    The optimum lies between the value of Algorithm 1 and that value plus its certificate.
    """
    high = None if best.bound is None else best.objective + best.bound
    return {
        "objective_exact": objective,
        "optimum_low": best.objective,
        "optimum_high": high,
        "regret_low": best.objective - objective,
        "regret_high": None if high is None else high - objective,
    }


def greedy_rule(agent: GreedyPolicy, model: Model, reachable: ReachableStocks) -> DecisionRule:
    """Return the greedy actions of a learned agent at every offset (index 0) and point."""
    scale = float(agent.learner_reward(np.ones(1))[0])  # its stock is in learned reward units

    def rule(t: int) -> np.ndarray:
        observations = model.observations(t)  # [n, *shape]
        stocks = agent.initial_stock + scale * reachable.offsets[t][:, 0]  # [L]
        stock = np.repeat(stocks, len(observations))
        observation = np.tile(observations, (len(stocks),) + (1,) * (observations.ndim - 1))
        actions = [
            agent.greedy(observation[i : i + ROWS], np.full(len(part), t), part)
            for i in range(0, len(stock), ROWS)
            for part in (stock[i : i + ROWS],)
        ]
        return np.concatenate(actions).reshape(len(stocks), len(observations))

    return rule


def truncated_model(env: Any, discount: Discount) -> TabularModel:
    """Return an infinite-horizon problem without the decisions of negligible discount."""
    bounds = TailBound(discount, 0, tail_factor(discount, 0))
    n_decisions, _ = bounds.n_true(NEGLIGIBLE / max(env.reward_bound, 1e-300))
    if n_decisions > env.max_time:
        raise UserError(
            f"env.max_steps={env.max_steps}: the discount is not negligible before step "
            f"{n_decisions}, beyond the agent's clock; use env.max_steps={n_decisions}"
        )
    return TabularModel(env, n_decisions)
