"""The paper's figure 3 against reference values; the whole of it is solved in the slow test."""

import functools

import numpy as np
import pytest
from synthetic import config_of, make_run

from rigor.maths.discount import Exponential, Hyperbolic
from rigor.report import published
from rigor.report.reversal import (
    EQUIVALENT,
    GAMMAS,
    RATES,
    RISKS,
    SETTINGS,
    Chances,
    chances,
    learned_rows,
    papers_problem,
    reversal_figure,
    solve,
)
from rigor.report.runs import load


@functools.cache
def problem(periods, late, scaling="volatility"):
    return papers_problem(periods, late, scaling)


@pytest.mark.parametrize(
    ("periods", "late", "expected"),
    [  # of gamma = 1, .99 and k = .05; computed on a log-wealth grid of .001
        (10, 1000, [(0.8950, 0.2812), (0.9010, 0.2751), (0.9183, 0.2556)]),
        (10, 2000, [(0.1192, 0.8783), (0.1498, 0.8626), (0.2265, 0.8192)]),
        (30, 1000, [(0.9175, 0.2972), (0.9386, 0.2745), (0.9607, 0.2464)]),
        (30, 2000, [(0.1721, 0.8818), (0.2297, 0.8506), (0.3685, 0.7586)]),
    ],
)
def test_the_points_of_the_mean(periods, late, expected):
    discounts = [Exponential(1.0), Exponential(0.99), Hyperbolic(0.05)]
    found = chances(problem(periods, late), RISKS["mean"], discounts)
    np.testing.assert_allclose(found, expected, atol=0.002)


def test_with_covariance_scaling_the_points_are_the_tables_own():
    discounts = [Exponential(1.0), Hyperbolic(0.05)]
    found = chances(problem(30, 2000, "covariance"), RISKS["mean"], discounts)
    np.testing.assert_allclose(found, [(0.148, 0.849), (0.443, 0.662)], atol=0.002)


@pytest.mark.parametrize("risk", ["mean", "cvar"])
@pytest.mark.parametrize(("periods", "gamma"), [(10, 0.964193), (30, 0.976502)])
def test_one_horizon_does_not_tell_hyperbolic_from_exponential(periods, gamma, risk):
    """Erratum E28: only d_T u_T / (d_{T/2} u_{T/2}) matters, so the points are the same."""
    assert EQUIVALENT[periods] == pytest.approx(gamma, abs=5e-7)
    discounts = [Exponential(EQUIVALENT[periods]), Hyperbolic(0.05)]
    one, other = chances(problem(periods, 2000), RISKS[risk], discounts, 0.004)
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_two_horizons_do():
    discounts = [Exponential(EQUIVALENT[10]), Hyperbolic(0.05)]
    one, other = chances(problem(30, 2000), RISKS["mean"], discounts, 0.004)
    assert one[0] - other[0] > 0.3


@pytest.mark.slow
def test_all_of_it_is_solved_in_a_minute_and_ordered():
    found = solve("volatility")
    assert len(found) == len(RISKS) * len(SETTINGS)
    for periods, late in SETTINGS:
        one = found["mean", periods, late]
        # the more patient, the rarer the early goal and the more frequent the late one
        assert (np.diff(one.exponential, axis=0) * [-1, 1] > 0).all()
        assert (np.diff(one.hyperbolic, axis=0) * [1, -1] > 0).all()
        assert (found["cvar", periods, late].hyperbolic[:, 0] > 0.998).all()


@pytest.fixture
def wealth(tmp_path):
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


def test_learned_runs_are_points_with_intervals_over_seeds(wealth):
    runs = [
        wealth({"episodes": 100, "p_early": early, "p_late": 0.5}, seed)
        for seed, early in enumerate((0.2, 0.4))
    ]
    others = [
        wealth({"episodes": 0, "p_early": 0.9, "p_late": 0.9}, 2),  # exact
        wealth({"episodes": 100, "p_early": 0.9, "p_late": 0.9}, 3, scaling="covariance"),
        wealth({"episodes": 100, "p_early": 0.9, "p_late": 0.9}, 4, wealth=90),
        wealth({"episodes": 100}, 5),
    ]
    (row,) = learned_rows([*runs, *others], "volatility")
    assert (row["periods"], row["late_utility"], row["discount"]) == (30, 2000, "k=0.05")
    assert (row["risk"], row["n"]) == ("mean", 2)
    assert row["p_early"] == pytest.approx((0.3, 0.2, 0.4))
    assert row["p_late"] == pytest.approx((0.5, 0.5, 0.5))
    (ten,) = learned_rows(
        [wealth({"episodes": 9, "p_early": 0.9, "p_late": 0.9}, 6, periods=10)], "covariance"
    )
    assert ten["periods"] == 10  # where every scaling is the same


def test_the_figure_has_every_point():
    rng = np.random.default_rng(0)
    found = {
        (risk, *setting): Chances(rng.random((len(GAMMAS), 2)), rng.random((len(RATES), 2)))
        for risk in RISKS
        for setting in SETTINGS
    }
    learned = {"risk": "cvar", "periods": 10, "late_utility": 1000, "discount": "k=0.05", "n": 1}
    learned |= {"p_early": (0.1, np.nan, np.nan), "p_late": (0.2, np.nan, np.nan)}
    mean, cvar, pair = reversal_figure(found, [learned], "x").axes
    # two curves and three named points for each of four problems, and the published points
    assert len(mean.lines) == 4 * 5 + 12
    assert len(cvar.lines) == 4 * 5 + 8 + 1
    published_x = {one.get_xdata()[0] for one in cvar.lines if len(one.get_xdata()) == 1}
    table = published.wealth_table()
    assert set(table[table["risk"] == "cvar"]["p_early"]) <= published_x
    texts = [text.get_text() for text in pair.texts]
    assert any("0.964193" in text for text in texts)
    assert (found["mean", 10, 2000].of("gamma=1") == found["mean", 10, 2000].exponential[-1]).all()
