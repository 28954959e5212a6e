"""The probabilities of the paper's figure 3 against reference values."""

import functools
import math

import numpy as np
import pytest
from scipy import stats
from synthetic import config_of, make_run

from rigor.maths.discount import Exponential, Hyperbolic
from rigor.report.data.runs import load
from rigor.report.figures import goal_probabilities as figure
from rigor.report.figures.goal_probabilities import (
    EQUIVALENT,
    RISKS,
    SETTINGS,
    goal_probabilities,
    learned_rows,
    papers_problem,
    solve,
)


@functools.cache
def problem(periods, late, scaling="volatility"):
    return papers_problem(periods, late, scaling)


@pytest.mark.parametrize(
    ("periods", "late", "expected"),
    [  # for gamma = 1, .99 and k = .05; computed on a grid of .001 in log wealth
        (10, 1000, [(0.8950, 0.2812), (0.9010, 0.2751), (0.9183, 0.2556)]),
        (10, 2000, [(0.1192, 0.8783), (0.1498, 0.8626), (0.2265, 0.8192)]),
        (30, 1000, [(0.9175, 0.2972), (0.9386, 0.2745), (0.9607, 0.2464)]),
        (30, 2000, [(0.1721, 0.8818), (0.2297, 0.8506), (0.3685, 0.7586)]),
    ],
)
def test_the_points_of_the_mean(periods, late, expected):
    discounts = [Exponential(1.0), Exponential(0.99), Hyperbolic(0.05)]
    found = goal_probabilities(problem(periods, late), RISKS["mean"], discounts)
    np.testing.assert_allclose(found, expected, atol=0.002)


def test_with_covariance_scaling_the_points_are_those_of_the_tables():
    discounts = [Exponential(1.0), Hyperbolic(0.05)]
    found = goal_probabilities(problem(30, 2000, "covariance"), RISKS["mean"], discounts)
    np.testing.assert_allclose(found, [(0.148, 0.849), (0.443, 0.662)], atol=0.002)


@pytest.mark.parametrize("risk", ["mean", "cvar"])
@pytest.mark.parametrize(("periods", "gamma"), [(10, 0.964193), (30, 0.976502)])
def test_one_horizon_does_not_tell_hyperbolic_from_exponential_discounting(periods, gamma, risk):
    """The policy depends only on d_T u_T / (d_{T/2} u_{T/2}), so the points agree (E28)."""
    assert EQUIVALENT[periods] == pytest.approx(gamma, abs=5e-7)
    discounts = [Exponential(EQUIVALENT[periods]), Hyperbolic(0.05)]
    exponential, hyperbolic = goal_probabilities(
        problem(periods, 2000), RISKS[risk], discounts, 0.004
    )
    np.testing.assert_allclose(exponential, hyperbolic, atol=1e-9)


def test_two_horizons_tell_hyperbolic_from_exponential_discounting():
    discounts = [Exponential(EQUIVALENT[10]), Hyperbolic(0.05)]
    exponential, hyperbolic = goal_probabilities(problem(30, 2000), RISKS["mean"], discounts, 0.004)
    assert exponential[0] - hyperbolic[0] > 0.3


@pytest.mark.slow
def test_patience_makes_the_late_goal_more_frequent(monkeypatch):
    coarse = functools.partial(goal_probabilities, step=0.004)  # the order needs no exact values
    monkeypatch.setattr(figure, "goal_probabilities", coarse)
    found = solve("volatility")
    assert len(found) == len(RISKS) * len(SETTINGS)
    for periods, late in SETTINGS:
        mean = found["mean", periods, late]
        # A more patient agent reaches the early goal less often and the late goal more often.
        assert (np.diff(mean.exponential, axis=0) * [-1, 1] > 0).all()
        assert (np.diff(mean.hyperbolic, axis=0) * [1, -1] > 0).all()
        assert (found["cvar", periods, late].hyperbolic[:, 0] > 0.998).all()


@pytest.fixture
def wealth(tmp_path):
    """Return a function that writes a run on the wealth problem and reads it."""

    def wealth(result, seed=0, **env):
        config = config_of("gbwm", "time_consistent", seed)
        config["env"] = {
            "periods": 30,
            "wealth": 100,
            "early_cost": 100,
            "early_utility": 1000,
            "late_cost": 150,
            "late_utility": 2000,
            "scaling": "volatility",
            "_target_": "rigor.envs.wealth.Wealth",
        } | env
        return load(
            make_run(tmp_path, "gbwm", "time_consistent", seed, 1.0, config=config, result=result)
        )

    return wealth


def test_learned_runs_have_intervals_over_seeds(wealth):
    runs = [
        wealth({"episodes": 100, "p_early": early, "p_late": 0.5}, seed)
        for seed, early in enumerate((0.28, 0.3, 0.32))
    ]
    others = [
        wealth({"episodes": 0, "p_early": 0.9, "p_late": 0.9}, 3),  # exact
        wealth({"episodes": 100, "p_early": 0.9, "p_late": 0.9}, 4, scaling="covariance"),
        wealth({"episodes": 100, "p_early": 0.9, "p_late": 0.9}, 5, wealth=90),
        wealth({"episodes": 100}, 6),
    ]
    (row,) = learned_rows([*runs, *others], "volatility")
    assert (row["periods"], row["late_utility"], row["discount"]) == (30, 2000, "k=0.05")
    assert (row["risk"], row["n"]) == ("mean", 3)
    half = stats.t.ppf(0.975, 2) * 0.02 / math.sqrt(3)  # deviation .02
    assert row["p_early"] == pytest.approx((0.3, 0.3 - half, 0.3 + half))
    assert row["p_late"] == pytest.approx((0.5, np.nan, np.nan), nan_ok=True)  # equal ones
    (ten,) = learned_rows(
        [wealth({"episodes": 9, "p_early": 0.9, "p_late": 0.9}, 7, periods=10)], "covariance"
    )
    assert ten["periods"] == 10  # at T = 10 both scalings are the same
