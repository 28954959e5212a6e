import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rigor.envs.american_put import AmericanPut
from rigor.envs.american_put_model import PutModel


def spec(**changes: Any) -> AmericanPut:
    values = {"maturity": 1.0, "strike": 100.0, "start": 100.0, "kappa": 2.0, "zeta": 100.0}
    return AmericanPut(**{**values, "steps": 20, "sigma": 20.0, "num_envs": 1, **changes})


@functools.cache
def build(**changes: Any) -> PutModel:
    return PutModel(spec(**changes))


def solve(model: PutModel, factors: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """Risk-neutral backward induction: the optimum and its actions, each [n]."""
    value, actions = np.zeros((1, model.n_points)), []
    for t in reversed(range(model.n_decisions)):
        payoff = model.terminal_payoff(t)[:, None]
        q = np.where(np.isnan(payoff), model.expect(t, value[None]), factors[t] * payoff)
        value = q.max(axis=0)
        actions.append(q[:, 0].argmax(axis=0))
    return float(value[0] @ model.initial), actions[::-1]


def statistics(model: PutModel, actions: list[np.ndarray]) -> dict[str, Any]:
    p, visits, total = model.initial, [], 0.0
    for t, chosen in enumerate(actions):
        visits.append((chosen == np.arange(2)[:, None]) * p)
        payoff = model.terminal_payoff(t)
        total += float(np.nansum(visits[t] * payoff))
        p = model.push_forward(t, np.where(np.isnan(payoff), visits[t], 0.0)[:, None])[0, 0]
    assert sum(
        m[~np.isnan(model.terminal_payoff(t))].sum() for t, m in enumerate(visits)
    ) == pytest.approx(1.0)
    occupancy = SimpleNamespace(
        of_actions=lambda t: visits[t], of_points=lambda t: visits[t].sum(axis=0), mean_score=total
    )
    return model.statistics(occupancy)


@pytest.mark.parametrize(
    "changes", [{}, {"steps": 1}, {"kappa": 0.0}, {"start": 130.03, "zeta": 90.0, "steps": 1000}]
)
def test_the_grid_covers_the_start_and_eight_deviations(changes):
    model = build(**changes)
    put = model.spec
    assert np.count_nonzero(model.initial) == 1
    assert model.points @ model.initial == put.start
    np.testing.assert_allclose(np.diff(model.points), model.width, rtol=1e-9)
    variance = (put.noise**2 * put.decay ** (2.0 * np.arange(put.steps))).sum()
    end = put.zeta + (put.start - put.zeta) * put.decay**put.steps
    assert model.points[0] <= min(put.start, end) - 8.0 * np.sqrt(variance)
    assert model.points[-1] >= max(put.start, end) + 8.0 * np.sqrt(variance) - 1e-9
    assert model.width <= put.noise / 4.0


def test_only_exercising_earns_and_it_ends_the_episode():
    model = build()
    assert model.rewards(3).tolist() == [0.0]
    holds, exercises = model.terminal_payoff(19)
    assert np.isnan(holds).all()
    np.testing.assert_array_equal(exercises, np.maximum(100.0 - model.points, 0.0))
    np.testing.assert_array_equal(model.terminal_payoff(20), [exercises, exercises])


def test_expect_has_the_moments_of_a_step():
    model = build()
    put, x = model.spec, model.points
    inside = (x > 60.0) & (x < 140.0)
    value = np.stack([np.ones_like(x), x, x**2])[None]
    total, mean, square = model.expect(0, value)[0][:, inside]
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    np.testing.assert_allclose(mean, 100.0 + (x[inside] - 100.0) * put.decay, rtol=1e-12)
    # the noise is corrected for rounding to centres exactly, and for interpolation on average over
    # the position of the mean between two centres
    variance = square - mean**2
    np.testing.assert_allclose(variance, put.noise**2, rtol=1e-5)
    assert variance.mean() == pytest.approx(put.noise**2, rel=2e-7)


def test_push_forward_is_the_adjoint_of_expect():
    model, rng = build(steps=50), np.random.default_rng(0)
    p, value = (
        rng.random((2, 3, model.n_points)),
        rng.standard_normal((1, 3, model.n_points)),
    )
    moved = model.push_forward(7, p)
    assert moved.shape == value.shape
    forward, backward = (p * model.expect(7, value)).sum(), (moved * value).sum()
    assert forward == pytest.approx(backward, abs=1e-12 * p.sum())
    np.testing.assert_allclose(moved.sum(axis=(0, 2)), p[0].sum(axis=1), rtol=1e-12)


def test_observations_are_located_at_their_point_or_the_nearest():
    model = build()
    seen = model.observations(4)
    assert (seen.dtype, seen.shape) == (np.float32, (model.n_points, 2))
    assert (seen[:, 1] == 4).all()
    np.testing.assert_array_equal(model.locate(seen), np.arange(model.n_points))
    others = np.array([[-1e9, 4], [1e9, 4], [100.0, 4]], np.float32)
    assert model.locate(others).tolist() == [0, model.n_points - 1, model.initial.argmax()]


# Values of a grid-free solution with an error of 1e-9: quadrature on both sides of the boundary,
# and a polynomial of degree 239.
@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (lambda t: 1.0**t, 6.853803),
        (lambda t: 0.99**t, 6.222764),
        (lambda t: 0.95**t, 4.502850),
        (lambda t: 1 / (1 + 0.05 * t), 4.859448),
        (lambda t: 1 / (1 + t), 1.331796),
    ],
)
def test_risk_neutral_optima_equal_those_without_a_grid(factor, expected):
    model = build()
    assert solve(model, factor(np.arange(21.0)))[0] == pytest.approx(expected, abs=4e-5)


# Reference values computed on the same grid spacing. The undiscounted return changes by .01 when
# the boundary moves by a cell.
@pytest.mark.parametrize(
    ("steps", "k", "optimum", "undiscounted"),
    [
        (10, 0.05, 5.4325, 6.619),
        (10, 1.0, 1.7537, 5.801),
        (20, 0.05, 4.8596, 6.680),
        (20, 0.2, 3.0606, 6.137),
        (20, 1.0, 1.3318, 5.315),
        (50, 0.05, 3.7778, 6.457),
        (50, 1.0, 0.8802, 4.560),
    ],
)
def test_hyperbolic_optima_equal_the_reference(steps, k, optimum, undiscounted):
    model = build(steps=steps)
    value, actions = solve(model, 1 / (1 + k * np.arange(steps + 1)))
    assert value == pytest.approx(optimum, abs=1e-3)
    found = statistics(model, actions)
    assert found["score_exact"] == pytest.approx(undiscounted, abs=0.03)
    assert 0.0 < found["mean_exercise_time"] < steps


def test_mean_exercise_time_of_exercising_at_once_and_never():
    model = build(start=90.0)
    at_once = [np.ones(model.n_points, int)] * 21
    found = statistics(model, at_once)
    assert found.pop("boundary") == [90.0, *[None] * 19, 100.0]
    assert found == {"score_exact": 10.0, "mean_exercise_time": 0.0}
    never = [np.zeros(model.n_points, int)] * 21
    assert statistics(model, never)["mean_exercise_time"] == pytest.approx(20.0)


@pytest.mark.parametrize(("start", "zeta", "expected"), [(95.0, 95.0, 5.0), (120.0, 80.0, 14.587)])
def test_a_price_without_noise_follows_its_mean(start, zeta, expected):
    # 80 + 40 exp(−2) = 85.413
    value, _ = solve(build(sigma=0.0, start=start, zeta=zeta), np.ones(21))
    assert value == pytest.approx(expected, abs=0.002)
