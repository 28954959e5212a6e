import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from scipy.special import ndtr

from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.exact.solve import Problem
from rigor.exact.wealth import WealthModel
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


def numbers(model: WealthModel, actions: list[np.ndarray]) -> dict[str, Any]:
    law, mass, total = model.initial, [], 0.0
    for t, chosen in enumerate(actions):
        mass.append((chosen == np.arange(model.n_actions)[:, None]) * law)
        moved = model.spread(t, mass[t][:, None])[:, 0]
        total += float(moved.sum(axis=1) @ model.rewards(t))
        law = moved.sum(axis=0)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    laws = SimpleNamespace(
        taken=lambda t: mass[t], occupied=lambda t: mass[t].sum(axis=0), undiscounted=lambda: total
    )
    return model.numbers(laws)


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
def test_thresholds_lie_on_edges_and_the_start_keeps_its_mean(changes):
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


def test_the_grid_is_as_wide_as_the_problem_asks():
    assert 5000 < build().n_points < 9000
    assert 5000 < build(periods=30).n_points < 9000
    # Cells follow volatilities that shrink: 1000 periods of .0037 each.
    assert build(periods=1000).width < 0.00095


def test_hopeless_and_boundless_wealth_end_where_no_policy_can_tell():
    # From 3 only the late goal is worth hoping for, 5.2 deviations of the riskiest portfolio away
    # (the early one is 7.2); one may play safe as soon as it is near, which adds a little.
    value, _ = solve(build(wealth=3), np.ones(11))
    drift, volatility = build().spec.drifts[-1], build().spec.volatilities[-1]
    chance = ndtr((10 * drift - np.log(50.0)) / (volatility * np.sqrt(10.0)))
    assert chance < 1.2e-7
    assert 1000.0 * chance < value < 1100.0 * chance
    value, _ = solve(build(wealth=1e6), np.ones(11))
    assert value == pytest.approx(2000.0)


def test_rewards_are_nothing_and_the_goal_on_offer():
    model = build(step=0.004, periods=11, late_utility=0)
    assert [model.rewards(t).tolist() for t in (4, 5, 6, 11)] == [[0], [0, 1000], [0], [0]]
    assert model.stops(5) is None
    assert (model.n_actions, model.n_decisions) == (30, 12)


@pytest.mark.parametrize("utility", [0, 1000])
@pytest.mark.parametrize("t", [0, 5, 7, 10])
def test_spread_is_the_adjoint_of_expect(t, utility):
    model = build(step=0.004, early_utility=utility, late_utility=utility)
    rng = np.random.default_rng(t)
    law = rng.random((30, 3, model.n_points))
    value = rng.standard_normal((len(model.rewards(t)), 3, model.n_points))
    moved = model.spread(t, law)
    assert moved.shape == value.shape
    forward, backward = (law * model.expect(t, value)).sum(), (moved * value).sum()
    assert forward == pytest.approx(backward, abs=1e-12 * law.sum())
    np.testing.assert_allclose(moved.sum(axis=(0, 2)), law.sum(axis=(0, 2)), rtol=1e-12)


def test_expect_is_exact_for_a_threshold_and_for_moments():
    model = build()
    logs, drifts, sds = np.log(model.points), model.spec.drifts, model.spec.volatilities
    inside = slice(model.n_points // 2 - 300, model.n_points // 2 + 300)
    value = np.stack([model.points >= 150.0, logs, logs**2])[None].astype(float)
    reach, mean, square = model.expect(1, value)[:15, :, inside].transpose(1, 0, 2)
    expected = logs[inside] + drifts[:, None]
    np.testing.assert_allclose(mean, expected, atol=1e-11)
    # Rounding to centres included, thanks to Sheppard's correction.
    variance = np.broadcast_to(sds[:, None] ** 2, mean.shape)
    np.testing.assert_allclose(square - mean**2, variance, rtol=1e-7)
    # The correction in turn costs width² / (24 σ²) of a deviation at a threshold.
    np.testing.assert_allclose(
        reach, ndtr((expected - np.log(150.0)) / sds[:, None]), atol=3e-5 * 0.25
    )


def test_a_goal_is_paid_where_it_is_affordable_and_only_then():
    model = build()
    n, able = model.n_points, model.points >= 100.0
    np.testing.assert_array_equal(able, model.affordable(5))
    # Without the goal 0, with it 1 + the log of the wealth that is left.
    logs = np.log(model.points)
    q = model.expect(5, np.stack([np.zeros(n), 1.0 + logs])[:, None])[:, 0]
    np.testing.assert_allclose(q[:15], 0.0, atol=1e-12)
    np.testing.assert_allclose(q[15:, ~able], 0.0, atol=1e-12)
    rich = (model.points > 150.0) & (model.points < 400.0)
    left = np.log(model.points[rich] - 100.0) + model.spec.drifts[:, None]
    np.testing.assert_allclose(q[15:, rich], 1.0 + left, atol=1e-9)
    # The last decision moves nothing.
    q = model.expect(10, np.stack([np.zeros(n), np.ones(n)])[:, None])[:, 0]
    np.testing.assert_array_equal(q, np.repeat([np.zeros(n), model.points >= 150.0], 15, axis=0))


def test_observations_are_found_again_and_others_go_to_the_nearest_cell():
    model = build()
    seen = model.observations(4)
    assert (seen.dtype, seen.shape) == (np.float32, (model.n_points, 2))
    assert (seen[:, 1] == 4).all()
    np.testing.assert_array_equal(model.locate(seen), np.arange(model.n_points))
    others = np.array([[0.0, 4], [-1.0, 4], [np.inf, 4], [100.01, 4]], np.float32)
    above = np.searchsorted(model.points, 100.0)
    assert model.locate(others).tolist() == [0, 0, model.n_points - 1, above]


@pytest.mark.parametrize(("wealth", "expected"), [(100.0, 1000.0), (99.99, 0.0), (100.01, 1000.0)])
def test_a_goal_on_offer_at_once_knows_the_initial_wealth(wealth, expected):
    model = build(periods=1, wealth=wealth, late_cost=1000, late_utility=0)
    assert solve(model, np.ones(2))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("mean", "expected"), [(0.0403, 0.0), (0.0408, 1000.0)])
def test_a_portfolio_without_risk_keeps_its_mean(mean, expected):
    # 100 becomes 149.6 or 150.4 in ten periods.
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


def test_what_the_optimum_reaches_equals_the_reference():
    model = build()
    value, actions = solve(model, np.ones(11))
    found = numbers(model, actions)
    assert found["expected_utility"] == pytest.approx(value, abs=1e-8)
    assert found["p_early_affordable"] == pytest.approx(0.8950, abs=1e-3)
    assert found["p_early"] == pytest.approx(0.8950, abs=1e-3)
    assert found["p_late"] == pytest.approx(0.2812, abs=1e-3)
    model = build(periods=30, scaling="covariance")
    found = numbers(model, solve(model, np.ones(31))[1])
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
    monkeypatch.setattr("rigor.exact.wealth.SURE", 8.0)
    wide = WealthModel(spec())
    assert wide.n_points > 1.2 * build().n_points
    assert solve(wide, np.ones(11))[0] == pytest.approx(solve(build(), np.ones(11))[0], abs=1e-5)


def test_a_transform_does_not_resolve_what_float64_could():
    """Beside values of 1 it rounds to 1e-16: e^−100 would be noise, and its logarithm nan."""
    model = build()
    with pytest.raises(UserError, match=r"risk\.beta=-0\.05: exp\(beta x\) spans too much"):
        Problem(model, np.ones(model.n_decisions), Entropic(-0.05), 3)
    Problem(model, np.ones(model.n_decisions), Entropic(-0.01), 3)
