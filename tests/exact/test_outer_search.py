from types import SimpleNamespace

import numpy as np
import pytest
from problems import deterministic_spec, random_spec, spec

from rigor.envs import tabular_files
from rigor.envs.tabular_model import TabularModel
from rigor.exact.backward_induction import StockAugmentedProblem
from rigor.exact.outer_search import (
    best_grid_stock,
    best_initial_stock,
    maximise,
    objective_of,
    optimum,
)
from rigor.maths.discount import Exponential, QuasiHyperbolic
from rigor.maths.utility import (
    CVaR,
    Entropic,
    Mean,
    MeanCVaR,
    MeanVariance,
    facts_of,
    steepest_slope,
)

UTILITIES = [Mean(), CVaR(0.3), MeanCVaR(0.4, 0.3), Entropic(-0.5), MeanVariance(0.1)]
D = Exponential(0.83).factor(np.arange(5))


def model_of(seed):
    return TabularModel(random_spec(seed, horizon=5))


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda x: type(x).__name__)
def test_value_stock_and_distribution_agree(utility):
    for seed in range(2):
        best = optimum(model_of(seed), D, utility, 10_000)
        assert objective_of(utility, best.outcome) == pytest.approx(best.value, abs=1e-9)
        assert best.stock_error == 0.0
        x, p = best.outcome.returns, best.outcome.probabilities
        assert p @ utility.f(best.c0 + x) - best.c0 == pytest.approx(best.value, abs=1e-12)


def test_the_mean_has_stock_zero_and_the_entropic_risk_minus_its_value():
    assert optimum(model_of(0), D, Mean(), 100).c0 == 0.0  # erratum E5
    best = optimum(model_of(0), D, Entropic(-0.5), 100)
    assert best.c0 == -best.value


@pytest.mark.parametrize("utility", [CVaR(0.3), MeanCVaR(0.4, 0.3), MeanVariance(0.1)])
def test_a_finer_grid_of_stocks_has_a_smaller_error_and_bounds_it(utility):
    exact = optimum(model_of(1), D, utility, 100_000).value
    errors, bounds = [], []
    for most in (13, 50, 200):
        best = optimum(model_of(1), D, utility, most)
        assert best.reachable.gridded
        errors.append(exact - best.value)
        bounds.append(best.stock_error)
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2] > 0.0
    assert bounds[0] > 2.0 * bounds[1] > 4.0 * bounds[2]
    for error, bound in zip(errors, bounds, strict=True):
        assert error <= bound


@pytest.mark.parametrize("utility", [CVaR(0.25), MeanCVaR(0.5, 0.25), MeanVariance(0.5)])
def test_the_bound_holds_and_is_close_where_finer_grids_agree_on_a_wrong_value(utility):
    discount = QuasiHyperbolic(beta=0.7, gamma=0.99).factor(np.arange(6))
    ladder = SimpleNamespace(tables=lambda: tabular_files.ladder(7), n_decisions=6)
    model = TabularModel(ladder)
    # the first rung's sure reward of 1 is best
    assert optimum(model, discount, utility, 20_001).value == pytest.approx(1.0, abs=1e-9)
    best = optimum(model, discount, utility, 2001)
    error = 1.0 - best.value
    assert 0.0 < error <= best.stock_error < 3.0 * error


def test_the_search_among_candidates_is_exact():
    for utility in (CVaR(0.3), MeanCVaR(0.4, 0.3)):
        problem = StockAugmentedProblem(model_of(2), D, utility, 100_000)
        c0, missed = best_initial_stock(problem)
        outcomes = problem.reachable.offsets[-1][:, 0]
        assert np.abs(outcomes + c0).min() == 0.0
        assert missed <= 1e-11
        assert problem.objective(np.array([c0]))[0] == pytest.approx(
            problem.objective(-outcomes).max(), abs=1e-11
        )


def test_no_neighbouring_stock_is_better_for_mean_variance():
    utility = MeanVariance(0.1)
    best = optimum(model_of(3), D, utility, 10_000)
    near = best.c0 + np.linspace(-0.5, 0.5, 41)
    assert (
        StockAugmentedProblem(model_of(3), D, utility, 10_000).objective(near).max()
        <= best.value + 1e-9
    )
    # f' = 1 on average at the best stock: E (1 − 2 kappa (c0 + G)) = 1 below 1/(2κ), E3
    slope = 1.0 - 2.0 * utility.kappa * np.minimum(best.c0 + best.outcome.returns, 5.0)
    assert best.outcome.probabilities @ slope == pytest.approx(1.0, abs=1e-4)


def test_a_certain_return_is_its_own_value_under_every_risk():
    # 1 + .5·2 = 2 by the better action at both times
    model = TabularModel(deterministic_spec([[1, 1], [0, 0]], [[0.0, 1.0], [2.0, 1.0]], 2))
    for utility in UTILITIES:
        assert optimum(model, np.array([1.0, 0.5]), utility, 99).value == pytest.approx(2.0)


def test_grid_of_stocks():
    # the certain outcome 2 under CVaR_{1/2}: J(c) = −c + 2 min(c + 2, 0), with its maximum 2 at −2
    model = TabularModel(spec(np.ones((1, 1, 1)), [2.0], [1.0], 1))
    problem = StockAugmentedProblem(model, np.ones(1), CVaR(0.5), 9)
    assert best_grid_stock(problem, np.array([-3.0, -2.0, -1.0])) == (-2.0, 2.0, False)
    assert best_grid_stock(problem, np.array([-1.0, 0.0])) == (-1.0, 1.0, True)
    # under the mean all tie: the stock nearest 0 (erratum E5)
    assert (
        best_grid_stock(
            StockAugmentedProblem(model, np.ones(1), Mean(), 9), np.array([-3.0, 1.0, 2.0])
        )[0]
        == 1.0
    )


# maximise

WITH_STOCK = [CVaR(0.2), MeanCVaR(0.3, 0.2), MeanVariance(0.2)]


def random_objective(seed, utility, policies=6, outcomes=40):
    """Return J(c) = max over policies of −c + E f(c + G), and all outcomes."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=outcomes) * 3.0, 2)
    p = rng.dirichlet(np.full(outcomes, 0.2), policies)

    def objective(stocks):
        return (utility.f(stocks[:, None] + x) @ p.T).max(axis=1) - stocks

    return objective, x


@pytest.mark.parametrize("utility", WITH_STOCK, ids=lambda x: type(x).__name__)
def test_no_stock_of_a_dense_grid_exceeds_the_value_plus_the_gap(utility):
    for seed in range(12):
        objective, x = random_objective(seed, utility)
        low, high = -x.max(), -x.min()
        slope = steepest_slope(utility, low + x.min())
        found = maximise(objective, low, high, slope, facts_of(utility).curvature, 1e-4)
        dense = objective(np.linspace(low, high, 1001)).max()
        assert dense <= found.value + found.search_gap + 1e-4
        assert found.value == pytest.approx(objective(np.array([found.c0]))[0], abs=1e-12)
        assert low <= found.c0 <= high
        if found.solved < 96:  # the search ended because no bound exceeds the tolerance
            assert found.search_gap <= 1e-4


@pytest.mark.parametrize("utility", WITH_STOCK[:2], ids=lambda x: type(x).__name__)
def test_the_best_of_many_candidates_is_found_without_a_gap(utility):
    for seed in range(5):
        objective, x = random_objective(seed, utility, outcomes=800)
        candidates = -np.unique(x)
        found = maximise(
            objective, -x.max(), -x.min(), utility.lipschitz, np.inf, 1e-12, candidates
        )
        assert found.value == pytest.approx(objective(candidates).max(), abs=1e-12)
        assert found.c0 in candidates
        assert found.search_gap <= 1e-12
        assert found.solved < 401


def test_few_candidates_are_all_solved():
    objective, x = random_objective(0, CVaR(0.2))
    found = maximise(objective, -x.max(), -x.min(), 5.0, np.inf, 1e-12, -x)
    assert found.search_gap == 0.0
    assert found.solved == len(np.unique(x))
    assert found.value == objective(-x).max()


def test_the_curvature_gives_tighter_bounds_than_the_slopes():
    # −c²/10 has curvature .2; the slopes alone leave a large gap
    def objective(stocks):
        return -0.1 * (stocks - 1.23456) ** 2

    smooth = maximise(objective, -5.0, 5.0, 3.0, 0.2, 1e-9)
    kinked = maximise(objective, -5.0, 5.0, 3.0, np.inf, 1e-9)
    assert smooth.value == pytest.approx(0.0, abs=1e-9)
    assert smooth.search_gap <= 1e-9
    assert kinked.search_gap > 1e-3
    assert smooth.solved < kinked.solved


@pytest.mark.parametrize("candidates", [None, np.array([-4.0, -2.0, 1.0, 3.0])])
def test_ties_go_to_the_stock_nearest_zero(candidates):
    found = maximise(lambda c: np.zeros(len(c)), -4.0, 4.0, 1.0, np.inf, 1e-9, candidates)
    assert abs(found.c0) == (0.0 if candidates is None else 1.0)


def test_a_single_stock():
    found = maximise(lambda c: -c, 2.0, 2.0, 1.0, np.inf, 1e-9)
    assert (found.c0, found.value, found.search_gap, found.solved) == (2.0, -2.0, 0.0, 1)
