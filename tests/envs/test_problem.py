import numpy as np
import pytest
import torch
from forms import built

from rigor.envs.american_put import AmericanPut
from rigor.envs.problem import Problem, return_to_go
from rigor.envs.tabular import Tabular
from rigor.envs.wealth import Wealth

PROBLEMS = [
    (Wealth, "gbwm", {}, [[120.0, 3.0], [500.0, 5.0], [160.0, 10.0]], [4, 17, 29]),
    (AmericanPut, "american_put", {}, [[95.0, 3.0], [80.0, 20.0], [100.0, 0.0]], [0, 0, 1]),
]


@pytest.mark.parametrize(("schema", "option", "changes", "seen", "action"), PROBLEMS)
def test_next_state_samples_are_steps_of_the_environment(schema, option, changes, seen, action):
    spec = built(schema, option, **changes)
    seen, action, k = np.array(seen, np.float32), np.array(action), 5
    t = seen[:, 1].astype(np.int64)
    observation, reward, terminated = spec.problem.next_states(
        seen, t, action, k, np.random.default_rng(3)
    )
    noise = spec.stratified_noise(3, k, np.random.default_rng(3))
    rows = np.repeat(np.arange(3), k)
    state, want, over = spec.move(t[rows], seen[rows, 0].astype(float), action[rows], noise)
    np.testing.assert_array_equal(observation, spec.observe(t[rows] + 1, state))
    np.testing.assert_array_equal(reward, want)
    np.testing.assert_array_equal(terminated, over)


def test_the_mean_over_next_state_samples_has_little_noise():
    """E[W'] = W exp(drift + σ²/2); the mean of stratified samples varies less."""
    spec = built(Wealth, "gbwm")
    seen = np.tile(np.float32([[100.0, 1.0]]), (400, 1))
    after, _, _ = spec.problem.next_states(
        seen, np.ones(400, np.int64), np.full(400, 14), 16, np.random.default_rng(0)
    )
    means = after[:, 0].reshape(400, 16).mean(1)
    want = 100 * np.exp(spec.drifts[14] + spec.volatilities[14] ** 2 / 2)
    assert means.mean() == pytest.approx(want, rel=1e-3)
    assert means.std() < 0.4 * after[:, 0].std() / 4


def test_next_state_samples_of_tables_follow_the_probabilities():
    spec = built(Tabular, "tabular", builtin="chain")
    env = spec.make(64, False)
    seen = env.reset(np.random.SeedSequence(0))
    t, action = np.zeros(64, np.int64), np.arange(64) % env.n_actions
    after, _, _ = env.problem.next_states(seen, t, action, 200, np.random.default_rng(0))
    arrived = spec.recover(after).reshape(64, 200)
    probability = spec.tables().P[spec.recover(seen), action]
    counts = np.stack([np.bincount(row, minlength=spec.n_states) for row in arrived])
    assert np.abs(counts / 200 - probability).max() < 0.02


@pytest.mark.parametrize(("schema", "option", "changes", "seen", "action"), PROBLEMS)
def test_coordinates_are_the_same_of_arrays_and_tensors(schema, option, changes, seen, action):
    spec = built(schema, option, **changes)
    seen = np.array(
        [*seen, [50.0, spec.max_time]], np.float32
    )  # the last possible observation, too
    of_arrays, of_tensors = spec.coordinates(seen), spec.coordinates(torch.from_numpy(seen))
    assert np.isfinite(of_arrays).all()
    np.testing.assert_allclose(of_tensors.numpy(), of_arrays, rtol=1e-5, atol=1e-5)


def test_coordinates_of_wealth_by_hand():
    spec = built(Wealth, "gbwm")
    sigma = spec.volatilities.mean()
    late, early, both, start, time = spec.coordinates(np.float32([[100.0, 5.0]]))[0]
    assert late == pytest.approx(np.log(100 / 150) / (sigma * np.sqrt(5.5)), rel=1e-5)
    assert early == pytest.approx(0.0, abs=1e-5)
    assert both == pytest.approx(np.log(100 / 250) / (sigma * np.sqrt(5.5)), rel=1e-5)
    assert start == pytest.approx(0.0, abs=1e-5)
    assert time == pytest.approx(0.0)
    assert spec.coordinates(np.float32([[100.0, 6.0]]))[0, 1:3].tolist() == [-9.0, -9.0]


def test_coordinates_of_a_price_by_hand():
    spec = built(AmericanPut, "american_put")
    left, life, time = spec.coordinates(np.float32([[90.0, 20.0]]))[0]
    half_step = 20 * np.sqrt((1 - np.exp(-4 * 0.5 / 20)) / 4)
    assert left == pytest.approx(-10 / half_step, rel=1e-4)
    assert life == pytest.approx(-10 / (20 * np.sqrt((1 - np.exp(-4)) / 4)), rel=1e-5)
    assert time == pytest.approx(3.0)


@pytest.mark.parametrize("periods", [10, 30])
def test_choosing_by_the_action_basis_loses_little(periods):
    """One period before the end, P(W' >= 150) has a closed form; its projection chooses as well."""
    from scipy.special import ndtr

    spec = built(Wealth, "gbwm", periods=periods)
    basis = spec.action_basis
    assert basis.shape == (30, 14)
    logs = np.log(np.linspace(110, 170, 200) / 150)[:, None]
    values = ndtr((logs + spec.drifts) / spec.volatilities)  # [200, 15]
    projected = values @ (basis[:15, :7] @ np.linalg.pinv(basis[:15, :7])).T
    chosen = np.take_along_axis(values, projected.argmax(1)[:, None], 1)[:, 0]
    lost = values.max(1) - chosen
    assert lost.mean() < 1e-4
    assert lost.max() < 5e-3
    # actions that take the goal have seven columns more
    np.testing.assert_array_equal(basis[15:, :7], basis[:15, :7])
    np.testing.assert_array_equal(basis[15:, 7:], basis[:15, :7])
    assert not basis[:15, 7:].any()


def test_return_to_go_of_wealth_by_hand():
    """With d = (1, .5, .25), goals of 100 at t = 1 and 300 at t = 2 are worth 50 and 75."""
    spec = built(Wealth, "gbwm", periods=2, early_utility=100, late_utility=300)
    found = return_to_go(spec.problem, np.array([1.0, 0.5, 0.25, 0.125]))
    sums = [[0, 50, 75, 125], [0, 50, 75, 125], [0, 0, 75, 75], [0, 0, 0, 0]]
    assert found.attainable.tolist() == sums
    assert found.low.tolist() == [0, 0, 0, 0]
    assert found.high.tolist() == [125, 125, 75, 0]


def test_return_to_go_of_the_put_is_bounds_only():
    spec = built(AmericanPut, "american_put", steps=3)
    found = return_to_go(spec.problem, np.array([1.0, 0.5, 0.25, 0.125, 0.0]))
    assert found.attainable is None
    bounds = spec.payoff_bounds * [1.0, 0.5, 0.25, 0.125]
    np.testing.assert_allclose(found.high[:4], [bounds[k:].max() for k in range(4)])
    assert found.high[4] == 0.0
    assert not found.low.any()


def test_return_to_go_is_unknown_without_bounds_or_a_last_decision():
    discount = np.ones(11)
    assert return_to_go(None, discount) is None
    assert return_to_go(Problem(n_decisions=10), discount) is None
    assert return_to_go(Problem(return_bounds=lambda d: (0.0, 1.0)), discount) is None
    assert return_to_go(built(Tabular, "tabular").problem, discount) is None


def test_the_model_is_of_the_same_problem():
    for schema, option in ((Wealth, "gbwm"), (AmericanPut, "american_put"), (Tabular, "tabular")):
        spec = built(schema, option)
        model = spec.problem.model()
        assert model.n_actions == spec.n_actions
        assert model.n_decisions == spec.problem.n_decisions == spec.n_decisions
        assert spec.make(2, False).problem.n_decisions == spec.n_decisions
