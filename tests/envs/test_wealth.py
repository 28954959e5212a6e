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
from gymnasium import spaces

from rigor.envs.gymnasium_forms import WealthEnv
from rigor.envs.wealth import Wealth

L = 15


def gbwm(**changes):
    return built(Wealth, "gbwm", **changes)


def doubling(**changes):
    """Return a market with an asset that doubles in each of two periods: 10/T · mean = log 2."""
    table = {
        "asset_means": [math.log(2) / 5],
        "asset_covariance": [[0.0]],
        "weights": [[1.0], [1.0]],
        "periods": 2,
    }
    return gbwm(**(table | changes))


def steps(spec, *actions):
    """Step one copy; return (wealth, t, reward, terminated, episode_end, dummy) of every step."""
    env = spec.make(1, False)
    env.reset(SEED)
    rows = []
    for action in actions:
        step = env.step(np.array([action]))
        facts = (step.reward, step.terminated, step.episode_end, step.dummy)
        rows.append((*step.observation[0].tolist(), *(fact[0] for fact in facts)))
    return rows


# --- dynamics -------------------------------------------------------------------------------------


def test_every_step_of_an_episode_by_hand():
    # Action 2 is goal 1 with portfolio 0, action 3 with portfolio 1. No goal is on offer at t=0. At
    # t=1 the goal of 60 leaves 140, which doubles; at t=2 the goal of 250 leaves 30.
    spec = doubling(early_cost=60, early_utility=7, late_cost=250, late_utility=11)
    rows = steps(spec, 2, 3, 2, 3, 0)
    expected = [
        (200, 1, 0, 0, 0, 0),
        (280, 2, 7, 0, 0, 0),
        (30, 3, 11, 1, 1, 0),
        (100, 0, 0, 0, 0, 1),
        (200, 1, 0, 0, 0, 0),
    ]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)


def test_a_goal_is_taken_only_when_it_is_chosen_and_affordable():
    assert [row[2] for row in steps(doubling(early_cost=60), 0, 1, 1)] == [0, 0, 0]  # not chosen
    rows = steps(doubling(early_cost=201, late_cost=401), 2, 2, 2)  # just out of reach
    np.testing.assert_allclose([row[:3] for row in rows], [(200, 1, 0), (400, 2, 0), (400, 3, 0)])
    rows = steps(
        doubling(early_cost=199, late_cost=3), 2, 2, 2
    )  # all but 1 is paid, which doubles to 2
    np.testing.assert_allclose([row[:3] for row in rows], [(200, 1, 0), (2, 2, 1000), (2, 3, 0)])


def test_a_goal_that_costs_exactly_the_wealth_is_affordable():
    spec = doubling(periods=1, early_cost=100, asset_means=[0.0])
    rows = steps(spec, 2, 2)
    assert rows[0][:3] == (0, 1, 1000)


def test_with_one_period_the_early_goal_is_at_the_start():
    spec = doubling(periods=1, early_cost=50, late_cost=150, asset_means=[math.log(3) / 10])
    assert (spec.early_time, spec.n_decisions) == (0, 2)
    np.testing.assert_allclose(
        steps(spec, 2, 2), [(150, 1, 1000, 0, 0, 0), (0, 2, 1000, 1, 1, 0)], atol=1e-4
    )


def test_portfolios_have_the_papers_means_and_volatilities():
    spec = gbwm()
    means = spec.drifts + spec.volatilities**2 / 2
    assert means.shape == spec.volatilities.shape == (L,)
    np.testing.assert_allclose(means[[0, -1]], [0.0526, 0.0886], atol=5e-5)
    # From Σ, σ_1 is .03705 and σ_15 is .1955; the paper prints .0374 and .1954 (E25)
    np.testing.assert_allclose(spec.volatilities[[0, -1]], [0.03705, 0.1954], atol=1e-4)
    assert (np.diff(spec.volatilities) > 0).all()


@pytest.mark.parametrize(("scaling", "divisor"), [("volatility", 3**0.5), ("covariance", 3**0.25)])
def test_thirty_periods_scale_means_and_volatilities(scaling, divisor):
    ten, thirty = gbwm(), gbwm(periods=30, scaling=scaling)
    np.testing.assert_allclose(thirty.volatilities, ten.volatilities / divisor)
    means = ten.drifts + ten.volatilities**2 / 2
    np.testing.assert_allclose(thirty.drifts, means / 3 - thirty.volatilities**2 / 2)


@pytest.mark.parametrize("portfolio", [0, 14])
def test_returns_have_the_moments_of_the_closed_form(portfolio):
    n, spec = 200_000, gbwm()
    env = spec.make(n, False)
    env.reset(SEED)
    wealth = env.step(np.full(n, portfolio)).observation[:, 0].astype(np.float64)
    logs, sd = np.log(wealth / 100), spec.volatilities[portfolio]
    # four standard errors
    assert abs(logs.mean() - spec.drifts[portfolio]) < 4 * sd / n**0.5
    assert abs(logs.std() / sd - 1) < 4 / (2 * n) ** 0.5
    growth = math.exp(spec.drifts[portfolio] + sd**2 / 2)  # E W′ / W = exp(μ_p)
    assert abs(wealth.mean() / 100 - growth) < 4 * growth * sd / n**0.5


def test_goals_are_on_offer_at_their_times_only():
    spec = gbwm(wealth=10_000)
    for goal, expected in ((0, 0), (1, 1)):
        rows = steps(spec, *[goal * L] * 11)
        utilities = [0.0] * 11
        utilities[5] = utilities[10] = 1000.0 * expected
        assert [row[2] for row in rows] == utilities
        assert [row[3] for row in rows] == [False] * 10 + [True]


# --- facts ----------------------------------------------------------------------------------------


def test_facts():
    spec = gbwm(early_utility=5, late_utility=9)
    env = spec.make(3, True)
    assert (env.n_envs, env.n_actions, env.observation_shape) == (3, 30, (2,))
    assert (env.max_time, env.time_scale, env.frame_stack) == (11, 11.0, 1)
    assert env.observation_dtype == env.reset(SEED).dtype == np.float32
    learned = env.learner_reward(np.array([5, 9]))
    assert (learned.tolist(), learned.dtype) == ([5, 9], np.float64)
    env.close()


def test_returns_lie_between_none_and_both_goals():
    factor = 0.5 ** np.arange(11)
    spec = gbwm(early_utility=1000, late_utility=2000)
    assert spec.return_bounds(factor) == (0.0, 1000 / 32 + 2000 / 1024)
    with pytest.raises(ValueError, match=r"factor must have shape \(11,\), got \(10,\)"):
        spec.return_bounds(factor[:10])


def test_an_unknown_action_and_a_step_before_the_reset_are_refused():
    env = gbwm().make(2, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.array([0, 0]))
    env.reset(SEED)
    with pytest.raises(ValueError, match=r"0\.\.\.29"):
        env.step(np.array([0, 30]))


def test_the_exact_model_has_the_sizes_of_the_problem():
    model = gbwm().problem.model()
    assert (model.n_actions, model.n_decisions) == (30, 11)


# --- the two forms --------------------------------------------------------------------------------


def test_one_copy_is_the_gymnasium_form():
    spec = gbwm()
    check_one_copy_is_the_gymnasium_form(spec, WealthEnv(spec))


def test_a_batch_is_single_copies_with_the_batchs_noise():
    spec = gbwm(periods=4)
    assert not check_batch_is_single_copies(spec, lambda: WealthEnv(spec))  # all end together


def test_restored_continues_bit_for_bit(tmp_path):
    check_restored_continues(gbwm(), tmp_path)


@pytest.mark.parametrize("action", ["flat", "factored"])
def test_is_a_gymnasium_environment(action):
    check_is_gymnasium(WealthEnv(gbwm(action=action)))


def test_factored_actions_are_pairs_of_flat_actions():
    spec = gbwm(action="factored")
    factored, flat = WealthEnv(spec), WealthEnv(gbwm())
    assert factored.action_space == spaces.MultiDiscrete([2, L])
    factored.reset(seed=1)
    flat.reset(seed=1)
    for pair in np.random.default_rng(0).integers(0, [2, L], (11, 2)):
        of_pair, of_flat = factored.step(pair), flat.step(int(pair[0] * L + pair[1]))
        np.testing.assert_array_equal(of_pair[0], of_flat[0])
        assert of_pair[1:] == of_flat[1:]
    assert spec.make(1, False).n_actions == 30
    with pytest.raises(ValueError, match=r"30 is not in Discrete\(30\)"):
        flat.step(30)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("periods", 0),
        ("num_envs", 0),
        ("wealth", 0.0),
        ("wealth", float("inf")),
        ("early_cost", 0.0),
        ("late_cost", -1.0),
        ("early_utility", -1.0),
        ("late_utility", float("nan")),
        ("scaling", "sigma"),
        ("action", "pair"),
        ("asset_means", []),
    ],
)
def test_a_value_out_of_range_is_refused(key, value):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        gbwm(**{key: value})
    assert str(caught.value).startswith(f"env.{key}={value}: ")


SIGMA = [[0.04, 0.0], [0.0, 0.09]]


@pytest.mark.parametrize(
    ("weights", "covariance", "message"),
    [
        ([[1, 0], [0.6, 0.5]], SIGMA, r"env\.weights\[1\]=\[0\.6, 0\.5\]: sums to 1\.1; .* 1 with"),
        ([[1, 0], [0.6, 0.398]], SIGMA, r"env\.weights\[1\].*: sums to 0\.998;"),
        ([[0.5, 0.3, 0.2]], SIGMA, r"env\.weights=.*: must be rows of 2 finite numbers"),
        ([[1, 0], [1]], SIGMA, r"env\.weights=.*: must be rows of 2"),
        ([], SIGMA, r"env\.weights=\[\]: must be rows of 2"),
        ([["a", "b"]], SIGMA, r"env\.weights=.*: must be rows of 2"),
        ([[1, 0]], [[0.04, 0.0]], r"env\.asset_covariance=.*: must be a symmetric matrix, 2 by 2"),
        ([[1, 0]], [[0.04, 0.1], [0.0, 0.09]], r"env\.asset_covariance=.*: must be a symmetric"),
        ([[1, 0]], [[0.04, 0], [0, float("nan")]], r"env\.asset_covariance=.* finite"),
        ([[0, 1], [1, 0]], [[-1, 0], [0, 1]], r"env\.asset_covariance=.* 1 a negative variance"),
    ],
)
def test_a_wrong_table_is_refused(weights, covariance, message):
    with pytest.raises(ValueError, match=message):
        gbwm(asset_means=[0.1, 0.1], asset_covariance=covariance, weights=weights)


def test_weights_that_sum_to_one_as_closely_as_the_papers_are_accepted():
    table = {"asset_means": [0.1, 0.3], "asset_covariance": SIGMA}
    spec = gbwm(weights=[[1, 0], [0.6, 0.3991]], **table)
    np.testing.assert_allclose(spec.volatilities, [0.2, (0.0144 + 0.09 * 0.3991**2) ** 0.5])
