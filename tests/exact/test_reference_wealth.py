"""Goal-based wealth management, configured like a user's run, against reference values.

The reference values and their tolerances come from a separate program, which uses a log-wealth grid
of width .001.
"""

import functools

import numpy as np
import pytest
from command_line import composed
from problems import QuietProgress

from rigor.config import config
from rigor.errors import UserError
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import evaluate_policy
from rigor.exact.solve import ExactSolution, solve_finite
from rigor.maths.utility import CVaR

DISCOUNTS = {
    "1": ("discount=exponential", "discount.gamma=1"),
    ".99": ("discount=exponential", "discount.gamma=.99"),
    "k": ("discount=hyperbolic", "discount.k=.05"),
}
RISKS = {
    "cvar": ("risk=cvar", "risk.tau=.1"),
    "mean_cvar .1": ("risk=mean_cvar", "risk.kappa=.1", "risk.tau=.1"),
    "mean_cvar .5": ("risk=mean_cvar", "risk.kappa=.5", "risk.tau=.1"),
    "entropic": ("risk=entropic", "risk.beta=-.0005"),
    "mean_variance": ("risk=mean_variance", "risk.kappa=.0001"),
}
slow = pytest.mark.slow


def solved(*overrides: str, progress: QuietProgress | None = None) -> ExactSolution:
    one = composed("env=gbwm", "agent=backward_induction", "tracker=none", *overrides)
    return solve_finite(config.build(one), progress or QuietProgress())


@functools.cache
def wealth(periods: int, late: int, discount: str, *more: str) -> ExactSolution:
    given = (f"env.periods={periods}", f"env.late_utility={late}", *DISCOUNTS[discount])
    return solved(*given, *more)


def probabilities(found: ExactSolution) -> list[float]:
    return [found.metrics[key] for key in ("p_early_affordable", "p_early", "p_late")]


@pytest.mark.parametrize(
    ("periods", "late", "discount", "objective", "utility", "expected", "close"),
    [
        pytest.param(10, 1000, "1", 1176.23, 1176.2, (0.8950, 0.8950, 0.2812), 0.001, marks=slow),
        pytest.param(10, 1000, ".99", 1105.62, 1176.1, (0.9010, 0.9010, 0.2751), 0.001, marks=slow),
        (10, 1000, "k", 905.03, 1173.9, (0.9183, 0.9183, 0.2556), 0.001),
        pytest.param(10, 2000, "1", 1875.77, 1875.8, (0.9291, 0.1192, 0.8783), 0.001, marks=slow),
        pytest.param(10, 2000, ".99", 1702.73, 1875.0, (0.9117, 0.1498, 0.8626), 0.001, marks=slow),
        (10, 2000, "k", 1273.47, 1864.9, (0.8721, 0.2265, 0.8192), 0.001),
        pytest.param(30, 1000, "1", 1214.77, 1214.8, (0.9175, 0.9175, 0.2972), 0.001, marks=slow),
        pytest.param(30, 1000, ".99", 1010.35, 1213.2, (0.9386, 0.9386, 0.2745), 0.001, marks=slow),
        pytest.param(30, 1000, "k", 647.52, 1207.1, (0.9607, 0.9607, 0.2464), 0.001, marks=slow),
        pytest.param(30, 2000, "1", 1935.63, 1935.6, (0.9216, 0.1721, 0.8818), 0.001, marks=slow),
        pytest.param(30, 2000, ".99", 1455.96, 1930.9, (0.8895, 0.2297, 0.8506), 0.001, marks=slow),
        pytest.param(30, 2000, "k", 817.46, 1885.8, (0.8664, 0.3685, 0.7586), 0.002, marks=slow),
    ],
)
def test_the_mean(periods, late, discount, objective, utility, expected, close):
    found = wealth(periods, late, discount)
    assert found.metrics["objective_optimal"] == pytest.approx(objective, abs=0.05)
    assert found.metrics["regret"] == pytest.approx(0.0, abs=1e-9 * objective)
    assert found.metrics["expected_utility"] == pytest.approx(utility, abs=1)
    assert probabilities(found) == pytest.approx(expected, abs=close)


@slow
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
def test_the_mean_with_the_scaling_of_the_published_tables(late, discount, utility, expected):
    # erratum E26
    found = wealth(30, late, discount, "env.scaling=covariance")
    assert found.metrics["expected_utility"] == pytest.approx(utility, abs=1)
    assert probabilities(found) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("periods", "late", "scaling", "discount", "value", "nothing"),
    [
        pytest.param(10, 1000, "volatility", "1", 996.27, 0.00037, marks=slow),
        (10, 1000, "volatility", "k", 796.43, 0.00037),
        pytest.param(10, 2000, "volatility", "1", 996.27, 0.00037, marks=slow),
        pytest.param(10, 2000, "volatility", "k", 797.01, 0.00037, marks=slow),
        pytest.param(30, 1000, "volatility", "1", 997.07, 0.00029, marks=slow),
        pytest.param(30, 1000, "volatility", "k", 569.11, 0.00029, marks=slow),
        pytest.param(30, 2000, "volatility", "1", 997.07, 0.00029, marks=slow),
        pytest.param(30, 2000, "volatility", "k", 569.75, 0.00029, marks=slow),
        pytest.param(30, 1000, "covariance", "1", 968.73, None, marks=slow),
        pytest.param(30, 1000, "covariance", "k", 547.54, None, marks=slow),
        pytest.param(30, 2000, "covariance", "1", 968.73, None, marks=slow),
        pytest.param(30, 2000, "covariance", "k", 553.56, None, marks=slow),
    ],
)
def test_cvar(periods, late, scaling, discount, value, nothing):
    found = wealth(periods, late, discount, f"env.scaling={scaling}", *RISKS["cvar"])
    assert found.metrics["objective_optimal"] == pytest.approx(value, abs=0.3)
    assert found.metrics["regret"] == pytest.approx(0.0, abs=1e-9 * value)
    assert found.metrics["search_gap"] == 0.0
    early = 1.0 if discount == "1" else 1.0 / (1.0 + 0.05 * (periods // 2))
    assert found.metrics["initial_stock"] == pytest.approx(-1000.0 * early, rel=1e-12)
    if nothing is None:
        assert found.metrics["p_early"] == pytest.approx(0.9933, abs=0.002)
    else:
        assert found.outcome.returns[0] == 0.0
        assert found.outcome.probabilities[0] == pytest.approx(nothing, abs=1e-5)


@pytest.mark.parametrize(
    ("periods", "late", "discount", "risk", "value"),
    [
        (10, 1000, "1", "mean_cvar .1", 1000.22),
        pytest.param(10, 1000, "1", "mean_cvar .5", 1033.64, marks=slow),
        (10, 1000, "1", "entropic", 1117.88),
        (10, 1000, "1", "mean_variance", 1149.84),
        pytest.param(10, 1000, "k", "mean_cvar .1", 798.92, marks=slow),
        pytest.param(10, 1000, "k", "mean_cvar .5", 818.97, marks=slow),
        pytest.param(10, 1000, "k", "entropic", 879.29, marks=slow),
        pytest.param(10, 1000, "k", "mean_variance", 893.78, marks=slow),
        pytest.param(10, 2000, "1", "mean_cvar .1", 1026.12, marks=slow),
        pytest.param(10, 2000, "1", "mean_cvar .5", 1272.30, marks=slow),
        pytest.param(10, 2000, "1", "entropic", 1768.11, marks=slow),
        pytest.param(10, 2000, "1", "mean_variance", 1833.84, marks=slow),
        pytest.param(30, 1000, "1", "mean_cvar .1", 1006.48, marks=slow),
        pytest.param(30, 1000, "1", "mean_cvar .5", 1067.31, marks=slow),
        pytest.param(30, 1000, "1", "entropic", 1158.66, marks=slow),
        pytest.param(30, 1000, "1", "mean_variance", 1189.53, marks=slow),
    ],
)
def test_other_risks(periods, late, discount, risk, value):
    found = wealth(periods, late, discount, *RISKS[risk])
    assert found.metrics["objective_optimal"] == pytest.approx(value, abs=0.1)
    assert found.metrics["regret"] == pytest.approx(0.0, abs=1e-7)
    assert found.metrics["search_gap"] < 1e-5


@slow
def test_the_papers_grid_of_stocks_misses_the_optimal_value():
    # 201 points from -4000 to 0, 20 apart (erratum E23), do not contain -571.43
    grid = ("exact.grid=true", "outer.low=-4000", "outer.high=0", "outer.points=201")
    found = wealth(30, 2000, "k", *RISKS["cvar"], *grid).metrics
    assert found["objective_optimal"] == pytest.approx(569.75, abs=0.3)
    assert found["objective_optimal"] - found["objective_grid"] == pytest.approx(11.4, abs=0.05)
    assert found["initial_stock_grid"] == -560.0
    assert found["initial_stock"] == pytest.approx(-4000 / 7)


def test_a_grid_whose_ends_are_the_wrong_way_round_is_refused():
    with pytest.raises(
        UserError, match=r"^outer\.low=10 with outer\.high=0: no initial stock lies"
    ):
        solved("env.periods=4", *DISCOUNTS["1"], *RISKS["cvar"], "exact.grid=true", "outer.low=10")


def test_a_grid_that_misses_the_optimum_is_noted():
    progress = QuietProgress()
    grid = ("exact.grid=true", "outer.low=-500", "outer.high=0", "outer.points=11")
    solved("env.periods=4", *DISCOUNTS["1"], *RISKS["cvar"], *grid, progress=progress)
    (note,) = progress.notes
    assert note.startswith("outer.low=-500, outer.high=0: the best initial stock of the grid")
    assert "the optimum lies at -1000" in note


@pytest.mark.parametrize("risk", [(), RISKS["cvar"]], ids=["mean", "cvar"])
def test_two_goals_depend_only_on_the_ratio_of_their_discounts(risk):
    # erratum E28: (1 + .25) / (1 + .5) = gamma^5
    gamma = (1.25 / 1.5) ** 0.2
    assert gamma == pytest.approx(0.964193, abs=1e-6)
    late = ("env.late_utility=2000", *risk)
    one = solved(*late, *DISCOUNTS["k"])
    two = solved(*late, "discount=exponential", f"discount.gamma={gamma}")
    assert probabilities(two) == pytest.approx(probabilities(one), abs=1e-9)
    np.testing.assert_allclose(two.outcome.probabilities, one.outcome.probabilities, atol=1e-9)
    model, factors = one.policy.model, 1.0 / (1.0 + 0.05 * np.arange(11))
    value = np.zeros((1, model.n_points))  # of continuing, for the mean
    for t in reversed(range(11)):
        a, b = one.policy.tables.actions[t], two.policy.tables.actions[t]
        if risk:
            np.testing.assert_array_equal(a, b)
            continue
        value = model.expect(t, value + factors[t] * model.rewards(t)[:, None, None]).max(axis=0)
        # where the late goal is out of reach all portfolios have value 0, and rounding chooses one
        hopeless = value < 1e-12 * value.max()
        np.testing.assert_array_equal(a[~hopeless], b[~hopeless])


@pytest.mark.parametrize("periods", [10, 30])
def test_the_safest_portfolio_alone_beats_the_published_policies(periods):
    # portfolio 1 at all times, and every affordable goal; published: 990, 960, 210, 510
    one = config.build(
        composed("env=gbwm", "agent=backward_induction", "tracker=none", f"env.periods={periods}")
    )
    model, factors = one.env.problem.model(), np.ones(periods + 1)
    reachable, action = reachable_stocks(model, factors[:, None], 10), model.n_portfolios

    def safest(t):
        return np.full((len(reachable.offsets[t]), model.n_points), action)

    outcome = evaluate_policy(model, factors, reachable, safest)
    value, _ = CVaR(tau=0.1).oce(outcome.returns, outcome.probabilities)
    assert value == pytest.approx(991, abs=1)
    best = {10: 996.27, 30: 997.07}[periods]
    assert 990 < value < best
