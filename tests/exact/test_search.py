import numpy as np
import pytest

from rigor.exact.search import curvature, kinked_at_zero, maximise, steepest_slope
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance

UTILITIES = [CVaR(0.2), MeanCVaR(0.3, 0.2), MeanVariance(0.2)]


def random_objective(seed, utility, policies=6, outcomes=40):
    """Return J(c) = max over policies of −c + E f(c + G), and all outcomes."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=outcomes) * 3.0, 2)
    p = rng.dirichlet(np.full(outcomes, 0.2), policies)

    def objective(stocks):
        return (utility.f(stocks[:, None] + x) @ p.T).max(axis=1) - stocks

    return objective, x


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda x: type(x).__name__)
def test_no_stock_of_a_dense_grid_is_better_than_found_and_missed(utility):
    for seed in range(12):
        objective, x = random_objective(seed, utility)
        low, high = -x.max(), -x.min()
        slope = steepest_slope(utility, low + x.min())
        found = maximise(objective, low, high, slope, curvature(utility), 1e-4)
        dense = objective(np.linspace(low, high, 1001)).max()
        assert dense <= found.value + found.missed + 1e-4
        assert found.value == pytest.approx(objective(np.array([found.c0]))[0], abs=1e-12)
        assert low <= found.c0 <= high
        if found.solved < 96:  # it ended because no interval can hold more
            assert found.missed <= 1e-4


@pytest.mark.parametrize("utility", UTILITIES[:2], ids=lambda x: type(x).__name__)
def test_the_best_candidate_is_found_among_many_with_nothing_missed(utility):
    for seed in range(5):
        objective, x = random_objective(seed, utility, outcomes=800)
        candidates = -np.unique(x)
        found = maximise(
            objective, -x.max(), -x.min(), utility.lipschitz, np.inf, 1e-12, candidates
        )
        assert found.value == pytest.approx(objective(candidates).max(), abs=1e-12)
        assert found.c0 in candidates
        assert found.missed <= 1e-12
        assert found.solved < 401


def test_few_candidates_are_all_solved():
    objective, x = random_objective(0, CVaR(0.2))
    found = maximise(objective, -x.max(), -x.min(), 5.0, np.inf, 1e-12, -x)
    assert found.missed == 0.0
    assert found.solved == len(np.unique(x))
    assert found.value == objective(-x).max()


def test_the_bend_bounds_where_the_slopes_cannot():
    # −c²/10, whose slope changes by .2 per unit; its slopes alone leave much to be missed
    def objective(stocks):
        return -0.1 * (stocks - 1.23456) ** 2

    smooth = maximise(objective, -5.0, 5.0, 3.0, 0.2, 1e-9)
    kinked = maximise(objective, -5.0, 5.0, 3.0, np.inf, 1e-9)
    assert smooth.value == pytest.approx(0.0, abs=1e-9)
    assert smooth.missed <= 1e-9
    assert kinked.missed > 1e-3
    assert smooth.solved < kinked.solved


@pytest.mark.parametrize("candidates", [None, np.array([-4.0, -2.0, 1.0, 3.0])])
def test_ties_go_to_the_stock_nearest_zero(candidates):
    found = maximise(lambda c: np.zeros(len(c)), -4.0, 4.0, 1.0, np.inf, 1e-9, candidates)
    assert abs(found.c0) == (0.0 if candidates is None else 1.0)


def test_a_single_stock():
    found = maximise(lambda c: -c, 2.0, 2.0, 1.0, np.inf, 1e-9)
    assert (found.c0, found.value, found.missed, found.solved) == (2.0, -2.0, 0.0, 1)


def test_what_is_known_of_a_utility():
    assert kinked_at_zero(CVaR(0.1))
    assert kinked_at_zero(MeanCVaR(0.1, 0.1))
    assert not kinked_at_zero(MeanVariance(1.0))
    assert not kinked_at_zero(Mean())
    assert steepest_slope(CVaR(0.1), -5.0) == 10.0
    # f' = 1 − 2 kappa x = 3 at −5, and e^{−x/2}
    assert steepest_slope(MeanVariance(0.2), -5.0) == pytest.approx(3.0, rel=1e-4)
    assert steepest_slope(MeanVariance(0.2), -5.0) >= 3.0
    assert steepest_slope(Entropic(-0.5), -4.0) == pytest.approx(np.exp(2.0), rel=1e-4)
    assert curvature(MeanVariance(0.2)) == 0.4
    assert curvature(CVaR(0.1)) == np.inf
