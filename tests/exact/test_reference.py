"""The exact agents against reference values, as a user asks for them.

The values were computed independently: wealth on a grid of log wealth of width .001, the put on
a grid of prices. The put's losses of inconsistent agents converge slowly, for a boundary moves by
whole cells: those here are of 51,200 cells (four times as many as the model has).
"""

import functools
from typing import Any

import numpy as np
import pytest
from cli import composed

from rigor import config
from rigor.exact.agents import Solved, backward_induction

DISCOUNTS = {
    "1": ("discount=exponential", "discount.gamma=1"),
    ".99": ("discount=exponential", "discount.gamma=.99"),
    "k": ("discount=hyperbolic", "discount.k=.05"),
}
CVAR = ("risk=cvar", "risk.tau=.1")


class Quiet:
    def __init__(self):
        self.said = []

    def __call__(self, stocks):
        pass

    def note(self, text):
        self.said.append(text)


def solved(*overrides: str, working: Quiet | None = None) -> Solved:
    one = composed("agent=backward_induction", "tracker=none", *overrides)
    return backward_induction(config.build(one), working or Quiet())


@functools.cache
def wealth(periods: int, late: int, discount: str, *more: str) -> dict[str, Any]:
    given = (f"env.periods={periods}", f"env.late_utility={late}", *DISCOUNTS[discount])
    return solved("env=gbwm", *given, *more).numbers


def chances(numbers: dict[str, Any]) -> list[float]:
    return [numbers[key] for key in ("p_early_affordable", "p_early", "p_late")]


@pytest.mark.parametrize(
    ("periods", "late", "discount", "objective", "utility", "expected"),
    [
        (10, 1000, "1", 1176.23, 1176.2, (0.8950, 0.8950, 0.2812)),
        (10, 1000, ".99", 1105.62, 1176.1, (0.9010, 0.9010, 0.2751)),
        (10, 1000, "k", 905.03, 1173.9, (0.9183, 0.9183, 0.2556)),
        (10, 2000, "1", 1875.77, 1875.8, (0.9291, 0.1192, 0.8783)),
        (10, 2000, ".99", 1702.73, 1875.0, (0.9117, 0.1498, 0.8626)),
        (10, 2000, "k", 1273.47, 1864.9, (0.8721, 0.2265, 0.8192)),
        (30, 1000, "1", 1214.77, 1214.8, (0.9175, 0.9175, 0.2972)),
        (30, 1000, ".99", 1010.35, 1213.2, (0.9386, 0.9386, 0.2745)),
        (30, 1000, "k", 647.52, 1207.1, (0.9607, 0.9607, 0.2464)),
        (30, 2000, "1", 1935.63, 1935.6, (0.9216, 0.1721, 0.8818)),
        (30, 2000, ".99", 1455.96, 1930.9, (0.8895, 0.2297, 0.8506)),
        (30, 2000, "k", 817.46, 1885.8, (0.8664, 0.3685, 0.7586)),
    ],
)
def test_wealth_by_the_mean(periods, late, discount, objective, utility, expected):
    found = wealth(periods, late, discount)
    assert found["objective_optimal"] == pytest.approx(objective, abs=0.05)
    assert found["objective_exact"] == pytest.approx(found["objective_optimal"], rel=1e-12)
    assert found["expected_utility"] == pytest.approx(utility, abs=1)
    assert chances(found) == pytest.approx(expected, abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "discount", "utility", "expected"),
    [
        (1000, "1", 1183.5, (0.881, 0.881, 0.302)),
        (1000, ".99", 1180.6, (0.922, 0.922, 0.258)),
        (1000, "k", 1172.9, (0.950, 0.950, 0.223)),
        (2000, "1", 1845.5, (0.901, 0.148, 0.849)),
        (2000, ".99", 1839.4, (0.856, 0.221, 0.809)),
        (2000, "k", 1767.3, (0.793, 0.443, 0.662)),
    ],
)
def test_wealth_with_the_scaling_of_the_published_tables(late, discount, utility, expected):
    # erratum E26
    found = wealth(30, late, discount, "env.scaling=covariance")
    assert found["expected_utility"] == pytest.approx(utility, abs=1)
    assert chances(found) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("periods", "late", "scaling", "undiscounted", "hyperbolic"),
    [
        pytest.param(10, 1000, "volatility", 996.27, 796.43, marks=pytest.mark.slow),
        (10, 2000, "volatility", 996.27, 797.01),
        pytest.param(30, 1000, "volatility", 997.07, 569.11, marks=pytest.mark.slow),
        (30, 2000, "volatility", 997.07, 569.75),
        pytest.param(30, 1000, "covariance", 968.73, 547.54, marks=pytest.mark.slow),
        pytest.param(30, 2000, "covariance", 968.73, 553.56, marks=pytest.mark.slow),
    ],
)
def test_wealth_by_cvar(periods, late, scaling, undiscounted, hyperbolic):
    for discount, value in (("1", undiscounted), ("k", hyperbolic)):
        found = wealth(periods, late, discount, f"env.scaling={scaling}", *CVAR)
        assert found["objective_optimal"] == pytest.approx(value, abs=0.3)
        early = 1.0 if discount == "1" else 1.0 / (1.0 + 0.05 * (periods // 2))
        assert found["initial_stock"] == pytest.approx(-1000.0 * early)
        assert found["search_gap"] == 0.0


RISKS = (
    ("risk=mean_cvar", "risk.kappa=.1", "risk.tau=.1"),
    ("risk=mean_cvar", "risk.kappa=.5", "risk.tau=.1"),
    ("risk=entropic", "risk.beta=-.0005"),
    ("risk=mean_variance", "risk.kappa=.0001"),
)


@pytest.mark.parametrize(
    ("periods", "late", "discount", "values"),
    [
        (10, 1000, "1", (1000.22, 1033.64, 1117.88, 1149.84)),
        pytest.param(10, 1000, "k", (798.92, 818.97, 879.29, 893.78), marks=pytest.mark.slow),
        pytest.param(10, 2000, "1", (1026.12, 1272.30, 1768.11, 1833.84), marks=pytest.mark.slow),
        pytest.param(30, 1000, "1", (1006.48, 1067.31, 1158.66, 1189.53), marks=pytest.mark.slow),
    ],
)
def test_wealth_by_other_risks(periods, late, discount, values):
    for risk, value in zip(RISKS, values, strict=True):
        found = wealth(periods, late, discount, *risk)
        assert found["objective_optimal"] == pytest.approx(value, abs=0.1)
        assert found["search_gap"] < 1e-5


@pytest.mark.slow
def test_a_grid_that_holds_no_outcome_is_told_from_the_optimum():
    grid = ("exact.grid=true", "outer.low=-4000", "outer.high=0", "outer.points=201")
    found = solved(
        "env=gbwm", "env.periods=30", "env.late_utility=2000", *DISCOUNTS["k"], *CVAR, *grid
    ).numbers
    assert found["objective_optimal"] - found["objective_grid"] == pytest.approx(11.4, abs=0.05)
    assert found["initial_stock_grid"] == -560.0
    assert found["initial_stock"] == pytest.approx(-4000 / 7)


def test_a_grid_that_misses_the_optimum_is_told():
    quiet = Quiet()
    grid = ("exact.grid=true", "outer.low=-500", "outer.high=0", "outer.points=11")
    solved("env=gbwm", "env.periods=4", *DISCOUNTS["1"], *CVAR, *grid, working=quiet)
    (said,) = quiet.said
    assert said.startswith("outer.low=-500, outer.high=0: the best initial stock of the grid")
    assert "the optimum lies at -1000" in said


@pytest.mark.parametrize("risk", [(), CVAR])
def test_two_goals_see_only_the_ratio_of_their_discounts(risk):
    # erratum E28: k = .05 at T = 10 is gamma = .964193, (1 + .25)/(1 + .5) = gamma^5
    gamma = (1.25 / 1.5) ** 0.2
    assert gamma == pytest.approx(0.964193, abs=1e-6)
    late = ("env=gbwm", "env.late_utility=2000", *risk)
    one = solved(*late, *DISCOUNTS["k"])
    two = solved(*late, "discount=exponential", f"discount.gamma={gamma}")
    assert chances(two.numbers) == pytest.approx(chances(one.numbers), abs=1e-9)
    # the same policy: the same chance of every combination of goals
    np.testing.assert_allclose(two.outcome.probabilities, one.outcome.probabilities, atol=1e-9)


@functools.cache
def put(n: int, k: float, *more: str) -> dict[str, Any]:
    given = (f"env.steps={n}", "discount=hyperbolic", f"discount.k={k}")
    return solved("env=american_put", *given, *more).numbers


ACCURATE = ("horizons=multi", "horizons.quadrature=gauss_legendre", "variant=time_inconsistent")


@pytest.mark.parametrize(
    ("n", "k", "objective", "undiscounted", "per_head", "shared"),
    [
        (10, 0.05, 5.4325, 6.619, (0.011, -0.14), (0.017, -0.22)),
        (10, 1.0, 1.7537, 5.801, (3.216, -14.55), (3.727, -15.83)),
        (20, 0.05, 4.8596, 6.680, (0.06, -0.5), (0.12, -1.0)),
        (20, 0.2, 3.0606, 6.137, (1.1, -6.1), (1.7, -8.9)),
        pytest.param(
            20, 1.0, 1.3318, 5.315, (4.915, -24.35), (5.957, -26.90), marks=pytest.mark.slow
        ),
        pytest.param(
            50, 0.05, 3.7778, 6.457, (0.371, -1.41), (0.923, -5.20), marks=pytest.mark.slow
        ),
        pytest.param(
            50, 1.0, 0.8802, 4.560, (6.534, -37.80), (8.165, -41.49), marks=pytest.mark.slow
        ),
    ],
)
def test_the_put_and_what_inconsistency_costs(n, k, objective, undiscounted, per_head, shared):
    best = put(n, k)
    assert best["objective_optimal"] == pytest.approx(objective, abs=0.001)
    assert best["undiscounted_return"] == pytest.approx(undiscounted, abs=0.03)
    for bootstrap, (loss, change) in (("per_head", per_head), ("shared", shared)):
        found = put(n, k, *ACCURATE, f"agent.bootstrap={bootstrap}")
        ratio = found["undiscounted_return"] / best["undiscounted_return"]
        assert 100 * found["regret"] / objective == pytest.approx(loss, abs=0.1)
        assert 100 * (ratio - 1) == pytest.approx(change, abs=0.6)


@pytest.mark.slow
def test_most_of_what_the_released_quadrature_loses_is_not_inconsistency():
    for n, loss in ((10, 8.8), (20, 15.1), (50, 23.84)):
        found = put(n, 0.05, "horizons=multi", "variant=time_inconsistent")
        assert 100 * found["regret"] / found["objective_optimal"] == pytest.approx(loss, abs=0.1)


def test_an_exponential_agent_with_a_frozen_clock_is_consistent():
    for gamma, value in ((1.0, 6.8538), (0.99, 6.2228), (0.95, 4.5029)):
        found = solved(
            "env=american_put",
            "discount=exponential",
            f"discount.gamma={gamma}",
            "variant=time_inconsistent",
        ).numbers
        assert found["regret"] == pytest.approx(0.0, abs=1e-12)
        assert found["objective_exact"] == pytest.approx(value, abs=2e-4)
    boundary = np.array(found["boundary"], dtype=float)
    assert boundary[-1] == 100.0
    assert (np.diff(boundary[1:]) >= 0).all()  # ever less is asked for as time runs out
