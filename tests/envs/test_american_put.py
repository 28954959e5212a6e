import math

import numpy as np
import pytest
from forms import (
    SEED,
    built,
    check_batch_is_single_copies,
    check_is_gymnasium,
    check_one_copy_is_the_gymnasium_form,
    check_restored_continues,
)

from rigor.envs.american_put import AmericanPut
from rigor.envs.gymnasium_forms import PutEnv


def put(**changes):
    return built(AmericanPut, "american_put", **changes)


# --- dynamics -------------------------------------------------------------------------------------


def test_every_step_of_copies_that_exercise_at_different_times():
    # Without noise, each step halves the distance to 100: 80, 90, 95. Copy 0 exercises at t=1, copy
    # 1 at t=0. Copy 2 holds, but at t=2 every action exercises.
    halving = {"steps": 2, "maturity": 1, "kappa": 2 * math.log(2), "sigma": 0}
    env = put(start=80, **halving).make(3, False)
    np.testing.assert_array_equal(env.reset(SEED), [[80, 0]] * 3)
    # per step and copy: observation, reward, terminated and episode_end, dummy
    expected = [
        [((90, 1), 0, 0, 0), ((80, 1), 20, 1, 0), ((90, 1), 0, 0, 0)],
        [((90, 2), 10, 1, 0), ((80, 0), 0, 0, 1), ((95, 2), 0, 0, 0)],
        [((80, 0), 0, 0, 1), ((90, 1), 0, 0, 0), ((95, 3), 5, 1, 0)],
        [((90, 1), 0, 0, 0), ((95, 2), 0, 0, 0), ((80, 0), 0, 0, 1)],
    ]
    actions = [[0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]]
    for number, (action, rows) in enumerate(zip(actions, expected, strict=True)):
        step = env.step(np.array(action))
        parts = (step.observation, step.reward, step.terminated, step.dummy)
        for part, column in zip(parts, zip(*rows, strict=True), strict=True):
            np.testing.assert_allclose(part, column, rtol=1e-6, err_msg=f"step {number}")
        np.testing.assert_array_equal(step.terminated, step.episode_end)


def test_the_payoff_is_never_negative():
    spec = put(strike=100)
    np.testing.assert_array_equal(
        spec.payoff(np.array([90.0, 100.0, 101.0, -5.0])), [10, 0, 0, 105]
    )
    env = put(start=130).make(1, False)
    env.reset(SEED)
    step = env.step(np.array([1]))
    assert (step.reward[0], step.terminated[0]) == (0, True)


def test_decay_and_noise_by_hand():
    # κΔ = .1: s² = 400 (1 − e^{−.2}) / 4
    spec = put()
    assert spec.decay == pytest.approx(math.exp(-0.1), rel=1e-12)
    assert spec.noise == pytest.approx((100 * (1 - math.exp(-0.2))) ** 0.5, rel=1e-12)
    assert (spec.n_decisions, put(steps=1).n_decisions) == (21, 2)


def test_two_short_steps_are_one_long_step():
    long, short = put(steps=10), put(steps=20)
    assert long.decay == pytest.approx(short.decay**2, rel=1e-12)
    assert long.noise**2 == pytest.approx(short.noise**2 * (1 + short.decay**2), rel=1e-12)


def test_no_reversion_is_brownian_motion_and_its_limit():
    still = put(kappa=0)
    assert (still.decay, still.noise) == (1.0, pytest.approx(20 * (1 / 20) ** 0.5, rel=1e-12))
    assert put(kappa=1e-12).noise == pytest.approx(still.noise, rel=1e-10)


@pytest.mark.parametrize("kappa", [0, 2])
def test_prices_have_the_moments_of_the_closed_form(kappa):
    # after 7 of 20 steps (.35 years) without exercise
    n, spec = 100_000, put(kappa=kappa, start=80, zeta=110)
    env = spec.make(n, False)
    env.reset(SEED)
    for _ in range(7):
        price = env.step(np.zeros(n, dtype=np.int64)).observation[:, 0].astype(np.float64)
    mean = 110 - 30 * math.exp(-0.35 * kappa)
    variance = 400 * (1 - math.exp(-1.4)) / 4 if kappa else 400 * 0.35
    # four standard errors
    assert abs(price.mean() - mean) < 4 * (variance / n) ** 0.5
    assert abs(price.var() / variance - 1) < 4 * (2 / n) ** 0.5


# --- facts ----------------------------------------------------------------------------------------


def test_facts():
    env = put().make(3, True)
    assert (env.n_envs, env.n_actions, env.observation_shape) == (3, 2, (2,))
    assert (env.max_time, env.time_scale, env.frame_stack) == (21, 21.0, 1)
    assert env.observation_dtype == env.reset(SEED).dtype == np.float32
    # six standard deviations below ζ at t = N: 400 (1 − e^{−4}) / 4 is the variance
    assert put().reward_bound == pytest.approx(6 * (100 * (1 - math.exp(-4))) ** 0.5)


def test_returns_are_bounded_by_the_best_time():
    spec = put(steps=2, kappa=0)
    # bounds before discounting: 0 at t = 0, 6 · 20 / √2 at t = 1 (half a year), 6 · 20 at t = 2
    assert spec.return_bounds(np.array([1.0, 0.9, 0.1])) == (0.0, pytest.approx(0.9 * 120 / 2**0.5))
    assert spec.return_bounds(np.array([1.0, 0.9, 0.9])) == (0.0, pytest.approx(0.9 * 120))
    assert put(sigma=0, start=120, zeta=120).return_bounds(np.ones(21)) == (0.0, 0.0)
    assert put(sigma=0, start=70, kappa=0).return_bounds(np.ones(21)) == (0.0, 30.0)
    with pytest.raises(ValueError, match=r"factor must have shape \(3,\), got \(2,\)"):
        spec.return_bounds(np.ones(2))


def test_no_payoff_of_many_episodes_exceeds_the_bound():
    spec = put(start=60)
    env = spec.make(20_000, False)
    env.reset(SEED)
    for _ in range(21):
        step = env.step(np.zeros(20_000, dtype=np.int64))
        assert step.reward.max() <= spec.reward_bound
    assert step.terminated.all()
    assert step.reward.max() > 0.3 * spec.reward_bound


def test_the_exact_model_has_the_sizes_of_the_problem():
    model = put().problem.model()
    assert (model.n_actions, model.n_decisions) == (2, 21)


# --- the two forms --------------------------------------------------------------------------------


def test_one_copy_is_the_gymnasium_form():
    spec = put(steps=4)
    check_one_copy_is_the_gymnasium_form(spec, PutEnv(spec))


def test_a_batch_is_single_copies_with_the_batchs_noise():
    spec = put(steps=4)
    assert check_batch_is_single_copies(spec, lambda: PutEnv(spec))  # copies out of phase


def test_restored_continues_bit_for_bit(tmp_path):
    check_restored_continues(put(), tmp_path)


def test_is_a_gymnasium_environment():
    check_is_gymnasium(PutEnv(put()))
    with pytest.raises(ValueError, match=r"2 is not in Discrete\(2\)"):
        PutEnv(put()).step(2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("steps", 0),
        ("num_envs", 0),
        ("maturity", 0.0),
        ("strike", -1.0),
        ("strike", float("inf")),
        ("kappa", -0.5),
        ("sigma", -20.0),
        ("sigma", float("nan")),
        ("start", float("nan")),
        ("zeta", float("inf")),
    ],
)
def test_a_value_out_of_range_is_refused(key, value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        put(**{key: value})
    assert str(caught.value).startswith(f"env.{key}={value}: ")
