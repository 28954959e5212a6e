import numpy as np
import pytest
from problems import random_spec, spec, sure

from rigor.exact.optimum import best_stock, grid_stock, objective_of, optimum
from rigor.exact.solve import Problem
from rigor.exact.tabular import TabularModel
from rigor.maths.discount import Exponential
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance

UTILITIES = [Mean(), CVaR(0.3), MeanCVaR(0.4, 0.3), Entropic(-0.5), MeanVariance(0.1)]
D = Exponential(0.83).factor(np.arange(5))


def model_of(seed):
    return TabularModel(random_spec(seed, horizon=5))


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda x: type(x).__name__)
def test_value_stock_and_law_agree(utility):
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


@pytest.mark.parametrize("utility", [CVaR(0.3), MeanVariance(0.1)])
def test_a_finer_grid_of_stocks_comes_closer_and_says_how_close(utility):
    exact = optimum(model_of(1), D, utility, 100_000).value
    errors, said = [], []
    for most in (13, 50, 200):
        best = optimum(model_of(1), D, utility, most)
        assert best.levels.gridded
        errors.append(exact - best.value)
        said.append(best.stock_error)
    assert errors[0] > 2.0 * errors[1] > 4.0 * errors[2] > 0.0  # splitting mass only adds risk
    for error, stated in zip(errors, said, strict=True):
        assert error / 3.0 < stated < 30.0 * error


def test_candidates_are_ruled_out_and_nothing_is_missed():
    for utility in (CVaR(0.3), MeanCVaR(0.4, 0.3)):
        problem = Problem(model_of(2), D, utility, 100_000)
        c0, missed = best_stock(problem)
        outcomes = problem.levels.offsets[-1][:, 0]
        assert np.abs(outcomes + c0).min() == 0.0
        assert missed <= 1e-11
        assert problem.objective(np.array([c0]))[0] == pytest.approx(
            problem.objective(-outcomes).max(), abs=1e-11
        )


def test_mean_variance_is_polished_to_a_stock_that_no_neighbour_beats():
    utility = MeanVariance(0.1)
    best = optimum(model_of(3), D, utility, 10_000)
    near = best.c0 + np.linspace(-0.5, 0.5, 41)
    assert Problem(model_of(3), D, utility, 10_000).objective(near).max() <= best.value + 1e-9
    # f' = 1 on average at the best stock: E (1 − 2 kappa (c0 + G)) = 1 below the bend, E3
    slope = 1.0 - 2.0 * utility.kappa * np.minimum(best.c0 + best.outcome.returns, 5.0)
    assert best.outcome.probabilities @ slope == pytest.approx(1.0, abs=1e-4)


def test_a_sure_thing_is_worth_itself_under_every_risk():
    # 1 + .5·2 = 2 by the better action at both times
    model = TabularModel(sure([[1, 1], [0, 0]], [[0.0, 1.0], [2.0, 1.0]], 2))
    for utility in UTILITIES:
        assert optimum(model, np.array([1.0, 0.5]), utility, 99).value == pytest.approx(2.0)


def test_grid_of_stocks():
    # J(c) of the sure outcome 2 under CVaR_{1/2}: −c + 2 min(c + 2, 0): 2 at −2, falling either way
    model = TabularModel(spec(np.ones((1, 1, 1)), [2.0], [1.0], 1))
    problem = Problem(model, np.ones(1), CVaR(0.5), 9)
    assert grid_stock(problem, np.array([-3.0, -2.0, -1.0])) == (-2.0, 2.0, False)
    assert grid_stock(problem, np.array([-1.0, 0.0])) == (-1.0, 1.0, True)
    # under the mean all tie: the stock nearest 0 (erratum E5)
    assert grid_stock(Problem(model, np.ones(1), Mean(), 9), np.array([-3.0, 1.0, 2.0]))[0] == 1.0
