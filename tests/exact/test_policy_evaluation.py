from types import SimpleNamespace

import numpy as np
import pytest
from problems import random_spec

from rigor.envs.tabular_model import TabularModel
from rigor.exact.outer_search import optimum
from rigor.exact.policy_evaluation import (
    greedy_rule,
    measure,
    policy_objective,
    reachable_under_both_discounts,
)
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import decision_rule, evaluate_policy
from rigor.maths.discount import Hyperbolic
from rigor.maths.horizons import Multi, Single
from rigor.maths.utility import CVaR, Entropic, Mean

D = Hyperbolic(0.5).factor(np.arange(3))


class OptimalAgent:
    """A learned agent, in units of half a reward, that knows the optimal policy."""

    def __init__(self, best, model):
        self.best, self.model, self.initial_stock = best, model, best.c0 / 2.0

    def learner_reward(self, reward):
        return reward / 2.0

    def greedy(self, observation, t, stock):
        offsets = self.best.tables.offsets[t[0]]
        index = np.abs(offsets - 2.0 * (stock - self.initial_stock)[:, None]).argmin(axis=1)
        return self.best.tables.actions[t[0]][index, observation.argmax(axis=1)]


def problem(seed):
    """Return a model whose observations are one-hot states."""
    model = TabularModel(random_spec(seed))
    model.observations = lambda t: np.eye(2, dtype=np.float32)
    return model


@pytest.mark.parametrize("risk", [Mean(), CVaR(0.3), Entropic(-0.5)], ids=str)
def test_an_agent_with_the_optimal_policy_has_no_regret(risk):
    model = problem(0)
    best = optimum(model, D, risk, 100)
    facts = SimpleNamespace(n_decisions=3, model=lambda: model)
    config = SimpleNamespace(
        env=SimpleNamespace(problem=facts),
        discount=Hyperbolic(0.5),
        bundle=Single().bundle(Hyperbolic(0.5)),
        risk=risk,
        exact=SimpleNamespace(max_stocks=100),
    )
    metrics = measure(config, OptimalAgent(best, model))
    assert metrics["objective_optimal"] == best.value
    assert metrics["regret"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["initial_stock_optimal"] == best.c0


def test_the_greedy_rule_asks_the_agent_at_every_offset():
    model = problem(1)
    best = optimum(model, D, CVaR(0.3), 100)
    reachable = reachable_stocks(model, D[:, None], 100)
    rule = greedy_rule(OptimalAgent(best, model), model, reachable)
    for t in range(3):
        np.testing.assert_array_equal(rule(t), best.tables.actions[t])


@pytest.mark.parametrize("risk", [Mean(), CVaR(0.3), Entropic(-0.5)], ids=str)
def test_the_objective_of_the_optimal_policy_is_the_optimum(risk):
    model = problem(2)
    best = optimum(model, D, risk, 100)
    rule = decision_rule(best.tables, best.reachable)
    value = policy_objective(risk, model, D, rule, best.outcome)
    assert value == pytest.approx(best.value, abs=1e-12)


def test_offsets_of_two_discounts():
    model = problem(3)
    own = Multi(2, 0.9, "lower").bundle(Hyperbolic(0.5)).discount(np.arange(3))
    both = reachable_under_both_discounts(model, own, D, uses_stock=True, max_stocks=1000)
    true = reachable_stocks(model, D[:, None], 1000)
    assert both.offsets[3].shape[1] == 2
    np.testing.assert_allclose(np.unique(both.offsets[1][:, 1]), true.offsets[1][:, 0])
    # an agent without a stock has the true offsets twice
    same = reachable_under_both_discounts(model, own, D, uses_stock=False, max_stocks=1000)
    np.testing.assert_array_equal(same.offsets[2], np.repeat(true.offsets[2], 2, axis=1))
    outcome = evaluate_policy(model, D, same, lambda t: np.zeros((1, 2), int), discount_index=1)
    plain = evaluate_policy(model, D, true, lambda t: np.zeros((1, 2), int))
    np.testing.assert_array_equal(outcome.returns, plain.returns)
