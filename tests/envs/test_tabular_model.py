import numpy as np
import pytest
from problems import deterministic_spec, random_spec, spec

from rigor.envs.tabular_model import TabularModel


def test_push_forward_is_the_adjoint_of_expect():
    rng = np.random.default_rng(0)
    model = TabularModel(random_spec(0, states=3))
    value = rng.normal(size=(len(model.atoms), 4, 3))
    p = rng.random((2, 4, 3))
    forward, backward = (
        (p * model.expect(0, value)).sum(),
        (model.push_forward(0, p) * value).sum(),
    )
    assert forward == pytest.approx(backward, rel=1e-12)


def test_expect_by_hand():
    # action 0 earns 1 or 5 with probabilities .25 and .75 and leads to state 1; action 1 earns 5
    # and leads to the same state
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


def test_probabilities_sum_to_one_and_do_not_depend_on_time():
    model = TabularModel(random_spec(1, states=3))
    np.testing.assert_allclose(model.kernel.sum(axis=(2, 3)), 1.0, atol=1e-12)
    assert (model.rewards(0) == model.rewards(7)).all()
    assert model.terminal_payoff(0) is None


def test_a_terminal_state_leads_to_itself_and_earns_nothing():
    tabular = deterministic_spec([[1, 1], [0, 0]], [[3.0, 2.0], [9.0, 9.0]])
    tabular.tables().terminal[1] = True
    model = TabularModel(tabular)
    reward = np.broadcast_to(model.atoms[:, None, None], (len(model.atoms), 1, 2))
    assert model.expect(0, reward)[:, 0, 1].tolist() == [0.0, 0.0]
    at_one = np.broadcast_to(np.eye(2)[1], (len(model.atoms), 1, 2))
    assert model.expect(0, at_one)[:, 0, 1].tolist() == [1.0, 1.0]


def test_the_number_of_decisions_can_be_given():
    assert TabularModel(random_spec(0), 50).n_decisions == 50
    assert TabularModel(random_spec(0, horizon=4)).n_decisions == 4
    assert TabularModel(random_spec(0)).locate(np.array([[0.0, 1.0, 0.3]])).tolist() == [1]
