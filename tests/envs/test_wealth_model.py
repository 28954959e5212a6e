import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from scipy.special import ndtr

from rigor.envs.wealth import Wealth
from rigor.envs.wealth_model import WealthModel
from rigor.errors import UserError
from rigor.exact.backward_induction import StockAugmentedProblem
from rigor.maths.utility import Entropic

CONF = Path(__file__).parents[2] / "conf" / "env" / "gbwm.yaml"


def spec(**changes: Any) -> Wealth:
    values: Any = OmegaConf.to_container(OmegaConf.load(CONF))
    del values["defaults"]
    return Wealth(**{**values, **changes})


@functools.cache
def build(step: float = 0.001, **changes: Any) -> WealthModel:
    return WealthModel(spec(**changes), step)


def solve(model: WealthModel, factors: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Risk-neutral backward induction: the optimum and its actions, each [n]."""
    value, actions = np.zeros((1, model.n_points)), []
    for t in reversed(range(model.n_decisions)):
        q = model.expect(t, value + factors[t] * model.rewards(t)[:, None, None])
        value = q.max(axis=0)
        actions.append(q[:, 0].argmax(axis=0))
    return float(value[0] @ model.initial), actions[::-1]


def statistics(model: WealthModel, actions: list[np.ndarray]) -> dict[str, Any]:
    probability, visits, total = model.initial, [], 0.0
    for t, chosen in enumerate(actions):
        visits.append((chosen == np.arange(model.n_actions)[:, None]) * probability)
        moved = model.push_forward(t, visits[t][:, None])[:, 0]
        total += float(moved.sum(axis=1) @ model.rewards(t))
        probability = moved.sum(axis=0)
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)
    occupancy = SimpleNamespace(
        of_actions=lambda t: visits[t], of_points=lambda t: visits[t].sum(axis=0), mean_score=total
    )
    return model.statistics(occupancy)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"periods": 1},
        {"periods": 30, "scaling": "covariance"},
        {"early_cost": 150, "late_cost": 90, "wealth": 2000},
        {"early_cost": 150, "late_cost": 150.01, "wealth": 1.5},
    ],
)
def test_costs_lie_on_edges_and_the_start_keeps_its_mean(changes):
    model = build(**changes)
    wealth, logs = model.spec.wealth, np.log(model.points)
    np.testing.assert_allclose(np.diff(logs), model.width, rtol=1e-9)
    assert model.width == pytest.approx(0.001, rel=0.01)
    for cost in (model.spec.early_cost, model.spec.late_cost):
        place = (np.log(cost) - logs[0]) / model.width
        assert place % 1.0 == pytest.approx(0.5, abs=0.07 if "wealth" in changes else 1e-6)
    assert model.initial.sum() == pytest.approx(1.0)
    kept = model.width / 2 if changes.get("periods") == 1 else 1e-12
    assert model.initial @ logs == pytest.approx(np.log(wealth), abs=kept + 1e-12)


def test_the_size_of_the_grid():
    assert 5000 < build().n_points < 9000
    assert 5000 < build(periods=30).n_points < 9000
    # small volatilities make the cells narrower: 1000 periods of .0037 each
    assert build(periods=1000).width < 0.00095


def test_very_small_and_very_large_initial_wealth():
    # From 3 the late goal is 5.2 deviations of the riskiest portfolio away and the early goal 7.2.
    # The optimum is slightly above the probability of the late goal for that portfolio alone,
    # because it can switch to a safer portfolio close to the goal.
    value, _ = solve(build(wealth=3), np.ones(11))
    drift, volatility = build().spec.drifts[-1], build().spec.volatilities[-1]
    p_late = ndtr((10 * drift - np.log(50.0)) / (volatility * np.sqrt(10.0)))
    assert p_late < 1.2e-7
    assert 1000.0 * p_late < value < 1100.0 * p_late
    value, _ = solve(build(wealth=1e6), np.ones(11))
    assert value == pytest.approx(2000.0)


def test_rewards_are_0_and_the_utility_of_a_goal():
    model = build(step=0.004, periods=11, late_utility=0)
    assert [model.rewards(t).tolist() for t in (4, 5, 6, 11)] == [[0], [0, 1000], [0], [0]]
    assert model.terminal_payoff(5) is None
    assert (model.n_actions, model.n_decisions) == (30, 12)


@pytest.mark.parametrize("utility", [0, 1000])
@pytest.mark.parametrize("t", [0, 5, 7, 10])
def test_push_forward_is_the_adjoint_of_expect(t, utility):
    model = build(step=0.004, early_utility=utility, late_utility=utility)
    rng = np.random.default_rng(t)
    probability = rng.random((30, 3, model.n_points))
    value = rng.standard_normal((len(model.rewards(t)), 3, model.n_points))
    moved = model.push_forward(t, probability)
    assert moved.shape == value.shape
    forward, backward = (probability * model.expect(t, value)).sum(), (moved * value).sum()
    assert forward == pytest.approx(backward, abs=1e-12 * probability.sum())
    np.testing.assert_allclose(moved.sum(axis=(0, 2)), probability.sum(axis=(0, 2)), rtol=1e-12)


def test_expect_is_exact_for_a_threshold_and_for_moments():
    model = build()
    logs, drifts, sds = np.log(model.points), model.spec.drifts, model.spec.volatilities
    inside = slice(model.n_points // 2 - 300, model.n_points // 2 + 300)
    value = np.stack([model.points >= 150.0, logs, logs**2])[None].astype(float)
    reach, mean, square = model.expect(1, value)[:15, :, inside].transpose(1, 0, 2)
    expected = logs[inside] + drifts[:, None]
    np.testing.assert_allclose(mean, expected, atol=1e-11)
    # the kernels correct for rounding to centres (Sheppard)
    variance = np.broadcast_to(sds[:, None] ** 2, mean.shape)
    np.testing.assert_allclose(square - mean**2, variance, rtol=1e-7)
    # the correction shifts a threshold by width² / (24 σ²) of a deviation
    np.testing.assert_allclose(
        reach, ndtr((expected - np.log(150.0)) / sds[:, None]), atol=3e-5 * 0.25
    )


def test_a_goal_is_paid_for_only_where_it_is_affordable():
    model = build()
    n, able = model.n_points, model.points >= 100.0
    np.testing.assert_array_equal(able, model.affordable(5))
    # the value is 0 without the goal, and 1 + log(wealth after paying) with it
    logs = np.log(model.points)
    q = model.expect(5, np.stack([np.zeros(n), 1.0 + logs])[:, None])[:, 0]
    np.testing.assert_allclose(q[:15], 0.0, atol=1e-12)
    np.testing.assert_allclose(q[15:, ~able], 0.0, atol=1e-12)
    rich = (model.points > 150.0) & (model.points < 400.0)
    left = np.log(model.points[rich] - 100.0) + model.spec.drifts[:, None]
    np.testing.assert_allclose(q[15:, rich], 1.0 + left, atol=1e-9)
    # the last decision leaves the wealth unchanged
    q = model.expect(10, np.stack([np.zeros(n), np.ones(n)])[:, None])[:, 0]
    np.testing.assert_array_equal(q, np.repeat([np.zeros(n), model.points >= 150.0], 15, axis=0))


def test_observations_are_located_at_their_point_or_the_nearest():
    model = build()
    seen = model.observations(4)
    assert (seen.dtype, seen.shape) == (np.float32, (model.n_points, 2))
    assert (seen[:, 1] == 4).all()
    np.testing.assert_array_equal(model.locate(seen), np.arange(model.n_points))
    others = np.array([[0.0, 4], [-1.0, 4], [np.inf, 4], [100.01, 4]], np.float32)
    above = np.searchsorted(model.points, 100.0)
    assert model.locate(others).tolist() == [0, 0, model.n_points - 1, above]


@pytest.mark.parametrize(("wealth", "expected"), [(100.0, 1000.0), (99.99, 0.0), (100.01, 1000.0)])
def test_an_immediate_goal_depends_on_the_exact_initial_wealth(wealth, expected):
    model = build(periods=1, wealth=wealth, late_cost=1000, late_utility=0)
    assert solve(model, np.ones(2))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("mean", "expected"), [(0.0403, 0.0), (0.0408, 1000.0)])
def test_a_portfolio_without_risk_keeps_its_mean(mean, expected):
    # 100 becomes 149.6 or 150.4 in ten periods
    table = {"asset_means": [mean], "asset_covariance": [[0.0]], "weights": [[1.0]]}
    model = WealthModel(spec(early_utility=0, **table))
    assert model.n_actions == 2
    assert solve(model, np.ones(11))[0] == pytest.approx(expected, abs=1.0)


# Reference values computed on the same grid spacing, to the digits given there.
@pytest.mark.parametrize(
    ("periods", "late_utility", "references"),
    [
        (10, 1000, (1176.23, 1105.62, 905.03)),
        (10, 2000, (1875.77, 1702.73, 1273.47)),
        (30, 1000, (1214.77, 1010.35, 647.52)),
        (30, 2000, (1935.63, 1455.96, 817.46)),
    ],
)
def test_risk_neutral_optima_equal_the_reference(periods, late_utility, references):
    model, t = build(periods=periods, late_utility=late_utility), np.arange(periods + 1)
    factors = (np.ones(periods + 1), 0.99**t, 1 / (1 + 0.05 * t))
    values = [solve(model, factor)[0] for factor in factors]
    np.testing.assert_allclose(values, references, atol=0.05)


def test_statistics_of_the_optimum_equal_the_reference():
    model = build()
    value, actions = solve(model, np.ones(11))
    found = statistics(model, actions)
    assert found["expected_utility"] == pytest.approx(value, abs=1e-8)
    assert found["p_early_affordable"] == pytest.approx(0.8950, abs=1e-3)
    assert found["p_early"] == pytest.approx(0.8950, abs=1e-3)
    assert found["p_late"] == pytest.approx(0.2812, abs=1e-3)
    model = build(periods=30, scaling="covariance")
    found = statistics(model, solve(model, np.ones(31))[1])
    assert found["expected_utility"] == pytest.approx(1183.5, abs=1.0)
    assert found["p_early_affordable"] == pytest.approx(0.881, abs=2e-3)
    assert found["p_early"] == pytest.approx(0.881, abs=2e-3)
    assert found["p_late"] == pytest.approx(0.302, abs=2e-3)


def test_the_error_is_of_second_order_in_the_width():
    fine, middle, coarse = (
        solve(build(step=step, late_utility=2000), np.ones(11))[0] for step in (0.001, 0.002, 0.004)
    )
    assert 3.0 < (coarse - middle) / (middle - fine) < 7.0
    assert abs(middle - fine) < 0.005


def test_the_range_does_not_matter(monkeypatch):
    monkeypatch.setattr("rigor.envs.wealth_model.SURE", 8.0)
    wide = WealthModel(spec())
    assert wide.n_points > 1.2 * build().n_points
    assert solve(wide, np.ones(11))[0] == pytest.approx(solve(build(), np.ones(11))[0], abs=1e-5)


def test_the_largest_exponent_is_that_of_a_transform():
    """A transform of values of 1 has an error of 1e-16, so e^−100 would be noise."""
    model = build()
    with pytest.raises(UserError, match=r"risk\.beta=-0\.05: exp\(beta x\) spans too much"):
        StockAugmentedProblem(model, np.ones(model.n_decisions), Entropic(-0.05), 3)
    StockAugmentedProblem(model, np.ones(model.n_decisions), Entropic(-0.01), 3)
