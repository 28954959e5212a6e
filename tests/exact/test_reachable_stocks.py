import numpy as np
import pytest
from problems import deterministic_spec, random_spec

from rigor.envs.tabular_model import TabularModel
from rigor.errors import UserError
from rigor.exact.reachable_stocks import reachable_stocks


def reachable_of(seed: int, most: int, horizon: int = 5):
    model = TabularModel(random_spec(seed, horizon=horizon))
    return reachable_stocks(model, (0.83 ** np.arange(horizon))[:, None], most)


def test_every_sum_of_two_rewards_is_enumerated():
    # rewards 0 and 1, d = 1, 1/2, 1/4: o_1 in {0, 1}, o_2 in {0, .5, 1, 1.5}, o_3 in eighths of 2
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]]))
    reachable = reachable_stocks(model, np.array([[1.0], [0.5], [0.25]]), 100)
    assert [o[:, 0].tolist() for o in reachable.offsets] == [
        [0.0],
        [0.0, 1.0],
        [0.0, 0.5, 1.0, 1.5],
        [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75],
    ]
    assert reachable.index[1].tolist() == [[0, 2], [1, 3]]  # from 0 and 1 by the rewards 0 and 1
    assert not reachable.gridded
    assert reachable.max_count == 4  # the outcomes after the last decision do not count


def test_sums_that_differ_by_rounding_are_one_offset():
    # .1 + .2 != .3 in float64; the sums of three decisions are 0, .1, ... .9
    model = TabularModel(deterministic_spec([[0, 0, 0, 0]], [[0.0, 0.1, 0.2, 0.3]]))
    offsets = reachable_stocks(model, np.ones((3, 1)), 100).offsets[-1][:, 0]
    np.testing.assert_allclose(offsets, np.arange(10) / 10, atol=1e-12)


@pytest.mark.parametrize("most", [10_000, 9])
def test_scatter_is_the_adjoint_of_gather(most):
    rng = np.random.default_rng(0)
    reachable = reachable_of(0, most)
    assert reachable.gridded == (most == 9)
    for t in range(5):
        n_rewards, n_offsets = reachable.index[t].shape
        value = rng.normal(size=(len(reachable.offsets[t + 1]), 3))
        p = rng.random((n_rewards, n_offsets, 3))
        there, back = (
            (p * reachable.gather(t, value)).sum(),
            (reachable.scatter(t, p) * value).sum(),
        )
        assert there == pytest.approx(back, rel=1e-12)


def test_a_grid_keeps_probability_and_mean():
    reachable = reachable_of(1, 9)
    factors = 0.83 ** np.arange(5)
    rewards = TabularModel(random_spec(1)).rewards(0)
    for t in range(5):
        p = np.random.default_rng(t).random((len(rewards), len(reachable.offsets[t]), 1))
        targets = reachable.offsets[t][:, 0] + factors[t] * rewards[:, None]
        moved = reachable.scatter(t, p)[:, 0]
        assert moved.sum() == pytest.approx(p.sum(), rel=1e-12)
        mean = moved @ reachable.offsets[t + 1][:, 0]
        assert mean == pytest.approx((p[..., 0] * targets).sum(), abs=1e-12)


def test_linear_functions_are_interpolated_exactly_for_many_stocks_at_once():
    reachable = reachable_of(2, 9)
    t = 3
    line = 2.0 * reachable.offsets[t + 1][None, :, :] - np.arange(4.0)[:, None, None]  # [C, L, 1]
    reached = reachable.gather(t, line)  # [R, C, L, 1]
    targets = reachable.offsets[t][:, 0] + 0.83**t * TabularModel(random_spec(2)).atoms[:, None]
    want = 2.0 * targets[:, None] - np.arange(4.0)[:, None]
    np.testing.assert_allclose(reached[..., 0], want, atol=1e-12)


def test_a_grid_adds_a_variance_to_the_return():
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]], 3))
    factors = 0.5 ** np.arange(3)[:, None]
    # at t = 2 the offsets 0, 1/2, 1, 3/2 lie on a grid of 0 and 3/2: the inner ones are split with
    # weights 1/3 and 2/3, (1/3)(2/3)(3/2)^2 = 1/2
    assert reachable_stocks(model, factors, 2).added_variance == pytest.approx(0.5, rel=1e-12)
    assert reachable_stocks(model, factors, 4).added_variance == 0.0


def test_the_last_outcomes_are_never_gridded():
    reachable = reachable_of(3, 9)
    assert reachable.above_weight[-1] is None
    assert len(reachable.offsets[-1]) > 9
    assert reachable.max_count == 9


def test_two_discounts_are_enumerated_together_and_never_gridded():
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]]))
    factors = np.stack([0.5 ** np.arange(3), 0.9 ** np.arange(3)], axis=1)
    reachable = reachable_stocks(model, factors, 100)
    assert sorted(reachable.offsets[2].tolist()) == [[0, 0], [0.5, 0.9], [1, 1], [1.5, 1.9]]
    with pytest.raises(UserError, match="max_stocks"):
        reachable_stocks(model, factors, 3)
