import numpy as np
import pytest
import torch

from rigor.maths.lambda_return import lambda_returns, n_step, one_step, target


def tensor(*rows):
    """Return rows of one environment and one horizon, [T, 1, 1]."""
    return torch.tensor(rows, dtype=torch.float64)[:, None, None]


def test_one_step_by_hand():
    # r = 1, 2; the second transition terminated; γ = .5, .9
    reward, terminated = np.array([1.0, 2.0]), np.array([False, True])
    start, slope = one_step(reward, terminated, np.array([[0.5, 0.9], [0.5, 0.9]]))
    after = torch.tensor([[[2.0, 4.0], [10.0, 20.0]]] * 2, dtype=torch.float64)
    found = target(*map(torch.from_numpy, (start.copy(), slope)), after)
    assert found.tolist() == [[[2.0, 3.0], [10.0, 19.0]], [[2.0, 2.0], [2.0, 2.0]]]


def test_wrong_shapes_are_refused():
    with pytest.raises(AssertionError):
        one_step(np.ones(1), np.zeros(2, bool), np.ones((2, 1)))
    with pytest.raises(AssertionError):
        target(torch.ones(2, 1), torch.ones(2, 1), torch.ones(1, 1, 3))
    with pytest.raises(AssertionError):
        lambda_returns(*[torch.ones(2, 1, 1)] * 2, torch.ones(2, 1, 1, 1), torch.ones(2, 1, 1))


def test_n_steps_by_hand():
    # 1 + .5 (2 + .8 (4 + .25 G)); the second column ends after two steps
    start = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 0.0]])
    slope = np.array([[0.5, 0.5], [0.8, 0.0], [0.25, 1.0]])
    total, factor = n_step(start, slope)
    assert total.tolist() == [1.0 + 0.5 * (2.0 + 0.8 * 4.0), 1.0 + 0.5 * 2.0]
    assert factor.tolist() == [0.5 * 0.8 * 0.25, 0.0]


def test_a_target_of_several_steps_is_not_defined_where_its_first_step_is_not():
    nan = np.nan
    total, factor = n_step(np.array([[nan, 1.0], [2.0, nan]]), np.array([[0.0, 0.5], [1.0, 0.0]]))
    assert np.isnan(total[0])
    assert (total[1], factor[1]) == (1.0, 0.0)


def test_lambda_returns_by_hand():
    """Rows: a step, a lost life, a truncation, its autoreset, a termination, a last step.

    λ = .5 and d̂ = .5; go is 0 before the autoreset and at the end.
    """
    start = tensor(1.0, 2.0, 3.0, 0.0, 5.0, 6.0)
    slope = tensor(0.5, 0.0, 0.5, 0.5, 0.0, 0.5)
    bootstrap = tensor(*(10.0 * k for k in range(7)))[..., None]
    continues = tensor(0.5, 0.5, 0.0, 0.5, 0.5, 0.0)
    last = 6.0 + 0.5 * 60.0
    terminated = 5.0
    autoreset = 0.5 * (0.5 * 40.0 + 0.5 * terminated)  # no transition; nothing reads it
    truncated = 3.0 + 0.5 * 30.0  # bootstraps from the autoreset's row
    lost_life = 2.0
    first = 1.0 + 0.5 * (0.5 * 10.0 + 0.5 * lost_life)
    found = lambda_returns(start, slope, bootstrap, continues).flatten().tolist()
    assert found == [first, lost_life, truncated, autoreset, terminated, last]


@pytest.fixture
def rollout():
    """Return start, slope and bootstrap of 6 rows, 3 environments, 2 horizons, 4 quantiles."""
    rng = np.random.default_rng(0)
    start, slope = torch.from_numpy(rng.normal(size=(2, 6, 3, 2)))
    return start, slope, torch.from_numpy(rng.normal(size=(7, 3, 2, 4)))


def test_without_continuing_every_target_is_of_one_step(rollout):
    start, slope, bootstrap = rollout
    found = lambda_returns(*rollout, torch.zeros_like(start))
    expected = start[..., None] + slope[..., None] * bootstrap[1:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_continuing_to_the_end_is_an_n_step_return(rollout):
    start, slope, bootstrap = rollout
    goes = torch.ones_like(start)
    goes[-1] = 0.0
    found = lambda_returns(*rollout, goes)
    for k in range(6):
        total, factor = map(torch.from_numpy, n_step(start[k:].numpy(), slope[k:].numpy()))
        expected = total[..., None] + factor[..., None] * bootstrap[-1]
        torch.testing.assert_close(found[k], expected, rtol=0, atol=1e-12)


def test_the_mean_over_drawn_lengths_is_the_lambda_return(rollout):
    start, _, _ = rollout
    decay = torch.full_like(start, 0.65)
    decay[-1] = 0.0
    draws = torch.rand(4000, *start.shape, generator=torch.manual_seed(0))
    drawn = torch.stack([lambda_returns(*rollout, (one < decay).double()) for one in draws])
    error = drawn.std(0) / 4000**0.5
    assert ((drawn.mean(0) - lambda_returns(*rollout, decay)).abs() <= 4.5 * error + 1e-12).all()


def test_a_fixed_policy_is_evaluated_exactly():
    """A walk 0 → 1 → 2 → end pays 1, 2, 4 and discounts by .9, .5, 1: sweeps end at its values."""
    start, slope = tensor(1.0, 2.0, 4.0), tensor(0.9, 0.5, 0.0)
    values = torch.zeros(4, 1, 1, 1, dtype=torch.float64)
    goes = tensor(0.7, 0.7, 0.0)
    for _ in range(60):
        values[:3] = lambda_returns(start, slope, values, goes)
    assert values.flatten().tolist() == pytest.approx([1.0 + 0.9 * 4.0, 2.0 + 0.5 * 4.0, 4.0, 0.0])
