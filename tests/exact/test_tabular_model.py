import numpy as np
import pytest
from problems import random_spec, spec, sure

from rigor.exact.tabular import TabularModel


def test_spread_is_the_adjoint_of_expect():
    rng = np.random.default_rng(0)
    model = TabularModel(random_spec(0, states=3))
    value = rng.normal(size=(len(model.atoms), 4, 3))
    law = rng.random((2, 4, 3))
    there, back = (law * model.expect(0, value)).sum(), (model.spread(0, law) * value).sum()
    assert there == pytest.approx(back, rel=1e-12)


def test_expect_on_numbers():
    # action 0 earns 1 or 5 with chances .25 and .75 and goes to state 1; action 1 earns 5, stays
    tabular = spec(
        [[[0, 1], [1, 0]], [[0, 1], [0, 1]]],
        [[[[1, 5]], [[5, 5]]], [[[1, 1]], [[1, 1]]]],
        [[[[0.25, 0.75]], [[0.25, 0.75]]], [[[1, 0]], [[1, 0]]]],
    )
    model = TabularModel(tabular)
    assert model.atoms.tolist() == [1.0, 5.0]
    value = np.array([[[10.0, 20.0]], [[30.0, 40.0]]])  # of reward and next state
    q = model.expect(0, value)[:, 0]
    assert q[:, 0].tolist() == [0.25 * 20 + 0.75 * 40, 30.0]
    assert q[:, 1].tolist() == [20.0, 20.0]


def test_chances_sum_to_one_and_do_not_depend_on_time():
    model = TabularModel(random_spec(1, states=3))
    np.testing.assert_allclose(model.kernel.sum(axis=(2, 3)), 1.0, atol=1e-12)
    assert (model.rewards(0) == model.rewards(7)).all()
    assert model.stops(0) is None


def test_a_terminal_state_stays_and_earns_nothing():
    tabular = sure([[1, 1], [0, 0]], [[3.0, 2.0], [9.0, 9.0]])
    tabular.problem().terminal[1] = True
    model = TabularModel(tabular)
    reward = np.broadcast_to(model.atoms[:, None, None], (len(model.atoms), 1, 2))
    assert model.expect(0, reward)[:, 0, 1].tolist() == [0.0, 0.0]
    at_one = np.broadcast_to(np.eye(2)[1], (len(model.atoms), 1, 2))
    assert model.expect(0, at_one)[:, 0, 1].tolist() == [1.0, 1.0]


def test_an_infinite_horizon_is_cut_where_asked():
    assert TabularModel(random_spec(0), 50).n_decisions == 50
    assert TabularModel(random_spec(0, horizon=4)).n_decisions == 4
    assert TabularModel(random_spec(0)).locate(np.array([[0.0, 1.0, 0.3]])).tolist() == [1]
