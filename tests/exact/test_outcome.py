import numpy as np
import pytest
from problems import random_spec, spec, sure

from rigor.exact.levels import reachable
from rigor.exact.optimum import objective_of
from rigor.exact.outcome import follow, nearest, tabulated
from rigor.exact.solve import Problem
from rigor.exact.tabular import TabularModel
from rigor.maths.discount import Hyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance

FACTORS = Hyperbolic(0.5).factor(np.arange(4))


def setting(seed, most=10_000):
    model = TabularModel(random_spec(seed, states=3, horizon=4))
    return model, reachable(model, FACTORS[:, None], most)


@pytest.mark.parametrize("most", [10_000, 15])
@pytest.mark.parametrize("utility", [CVaR(0.3), MeanCVaR(0.4, 0.3), MeanVariance(0.1)])
def test_the_law_has_the_value_that_the_induction_promised(utility, most):
    for seed in range(5):
        model, levels = setting(seed, most)
        value, tables = Problem(model, FACTORS, utility, most).policy(-1.3)
        law = follow(model, FACTORS, levels, tabulated(tables, levels))
        promised = law.probabilities @ utility.f(law.returns - 1.3) + 1.3
        assert promised == pytest.approx(value, abs=1e-12)
        assert objective_of(utility, law) >= value - 1e-12


@pytest.mark.parametrize("utility", [Mean(), Entropic(-0.5)])
def test_without_stock_the_law_has_the_value_of_the_induction(utility):
    for seed in range(5):
        model, levels = setting(seed)
        value, tables = Problem(model, FACTORS, utility, 10_000).policy(0.0)
        law = follow(model, FACTORS, levels, tabulated(tables, levels))
        assert objective_of(utility, law) == pytest.approx(value, abs=1e-12)


def test_the_law_of_a_fixed_policy_by_hand():
    # two tosses of 0 or 1 (chance .25) with d = 1, .5: the law of X + Y/2
    model = TabularModel(spec(np.ones((1, 1, 1)), [0.0, 1.0], [0.75, 0.25], 2))
    d = np.array([1.0, 0.5])
    law = follow(model, d, reachable(model, d[:, None], 10), lambda t: np.zeros((1, 1), int))
    assert law.returns.tolist() == [0.0, 0.5, 1.0, 1.5]
    np.testing.assert_allclose(law.probabilities, [0.5625, 0.1875, 0.1875, 0.0625], rtol=1e-12)
    assert law.mean_undiscounted == law.undiscounted() == 0.5
    assert law.occupied(1).tolist() == [1.0]


def test_a_random_action_now_and_then():
    # action 0 earns 0 and action 1 earns 1; epsilon = .4 leaves .2 to the other one
    model = TabularModel(sure([[0, 0]], [[0.0, 1.0]], 2))
    levels = reachable(model, np.ones((2, 1)), 10)
    law = follow(model, np.ones(2), levels, lambda t: np.zeros((1, 1), int), epsilon=0.4)
    np.testing.assert_allclose(law.probabilities, [0.64, 0.32, 0.04], rtol=1e-12)
    np.testing.assert_allclose(law.taken(1)[:, 0], [0.8, 0.2], rtol=1e-12)


def test_small_chances_stay_in_the_law():
    # chance 1e-20 of losing 60 is most of what an entropic risk of beta = −1 sees: e^{60 − 46}
    model = TabularModel(spec(np.ones((1, 1, 1)), [0.0, -60.0], [1.0, 1e-20], 1))
    law = follow(
        model, np.ones(1), reachable(model, np.ones((1, 1)), 9), lambda t: np.zeros((1, 1), int)
    )
    assert law.returns.tolist() == [-60.0, 0.0]
    np.testing.assert_allclose(law.probabilities, [1e-20, 1.0], rtol=1e-12)


def test_a_policy_may_look_at_another_clock():
    model = TabularModel(sure([[0, 0]], [[0.0, 1.0]], 2))
    clocks = np.stack([np.ones(2), np.array([1.0, 0.5])], axis=1)
    levels = reachable(model, clocks, 10)
    law = follow(model, clocks[:, 1], levels, lambda t: np.ones((1, 1), int), clock=1)
    assert law.returns.tolist() == [1.5]


def test_nearest_point_the_lower_where_two_are_as_near():
    grid = np.array([0.0, 1.0, 3.0])
    assert nearest(grid, np.array([-9.0, 0.4, 0.5, 0.6, 2.1, 99.0])).tolist() == [0, 0, 0, 1, 2, 2]
    assert nearest(np.array([5.0]), np.zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]
