import numpy as np
import pytest
from problems import deterministic_spec, random_spec, spec

from rigor.envs.tabular_model import TabularModel
from rigor.exact.backward_induction import StockAugmentedProblem
from rigor.exact.outer_search import objective_of
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import decision_rule, evaluate_policy, nearest
from rigor.maths.discount import Hyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance

FACTORS = Hyperbolic(0.5).factor(np.arange(4))


def setting(seed, most=10_000):
    model = TabularModel(random_spec(seed, states=3, horizon=4))
    return model, reachable_stocks(model, FACTORS[:, None], most)


@pytest.mark.parametrize("most", [10_000, 15])
@pytest.mark.parametrize("utility", [CVaR(0.3), MeanCVaR(0.4, 0.3), MeanVariance(0.1)])
def test_the_distribution_has_the_value_of_the_induction(utility, most):
    for seed in range(5):
        model, reachable = setting(seed, most)
        value, tables = StockAugmentedProblem(model, FACTORS, utility, most).policy(-1.3)
        outcome = evaluate_policy(model, FACTORS, reachable, decision_rule(tables, reachable))
        expected = outcome.probabilities @ utility.f(outcome.returns - 1.3) + 1.3
        assert expected == pytest.approx(value, abs=1e-12)
        assert objective_of(utility, outcome) >= value - 1e-12


@pytest.mark.parametrize("utility", [Mean(), Entropic(-0.5)])
def test_without_stock_the_distribution_has_the_value_of_the_induction(utility):
    for seed in range(5):
        model, reachable = setting(seed)
        value, tables = StockAugmentedProblem(model, FACTORS, utility, 10_000).policy(0.0)
        outcome = evaluate_policy(model, FACTORS, reachable, decision_rule(tables, reachable))
        assert objective_of(utility, outcome) == pytest.approx(value, abs=1e-12)


def test_the_return_distribution_of_a_fixed_policy_by_hand():
    # two rewards of 0 or 1 (probability .25) with d = 1, .5: the distribution of X + Y/2
    model = TabularModel(spec(np.ones((1, 1, 1)), [0.0, 1.0], [0.75, 0.25], 2))
    d = np.array([1.0, 0.5])
    outcome = evaluate_policy(
        model, d, reachable_stocks(model, d[:, None], 10), lambda t: np.zeros((1, 1), int)
    )
    assert outcome.returns.tolist() == [0.0, 0.5, 1.0, 1.5]
    np.testing.assert_allclose(outcome.probabilities, [0.5625, 0.1875, 0.1875, 0.0625], rtol=1e-12)
    assert outcome.mean_score == 0.5
    assert outcome.of_points(1).tolist() == [1.0]


def test_random_actions_with_probability_epsilon():
    # action 0 earns 0 and action 1 earns 1; epsilon = .4 gives action 1 the probability .2
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]], 2))
    reachable = reachable_stocks(model, np.ones((2, 1)), 10)
    outcome = evaluate_policy(
        model, np.ones(2), reachable, lambda t: np.zeros((1, 1), int), epsilon=0.4
    )
    np.testing.assert_allclose(outcome.probabilities, [0.64, 0.32, 0.04], rtol=1e-12)
    np.testing.assert_allclose(outcome.of_actions(1)[:, 0], [0.8, 0.2], rtol=1e-12)


def test_tiny_probabilities_are_kept():
    # a loss of 60 with probability 1e-20 dominates the entropic risk of beta = −1: e^{60 − 46}
    model = TabularModel(spec(np.ones((1, 1, 1)), [0.0, -60.0], [1.0, 1e-20], 1))
    outcome = evaluate_policy(
        model,
        np.ones(1),
        reachable_stocks(model, np.ones((1, 1)), 9),
        lambda t: np.zeros((1, 1), int),
    )
    assert outcome.returns.tolist() == [-60.0, 0.0]
    np.testing.assert_allclose(outcome.probabilities, [1e-20, 1.0], rtol=1e-12)


def test_a_policy_may_use_the_stock_of_another_discount():
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]], 2))
    factors = np.stack([np.ones(2), np.array([1.0, 0.5])], axis=1)
    reachable = reachable_stocks(model, factors, 10)
    outcome = evaluate_policy(
        model, factors[:, 1], reachable, lambda t: np.ones((1, 1), int), discount_index=1
    )
    assert outcome.returns.tolist() == [1.5]


def test_the_nearest_point_is_the_lower_of_two_equally_near():
    grid = np.array([0.0, 1.0, 3.0])
    assert nearest(grid, np.array([-9.0, 0.4, 0.5, 0.6, 2.1, 99.0])).tolist() == [0, 0, 0, 1, 2, 2]
    assert nearest(np.array([5.0]), np.zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]
