from types import SimpleNamespace

import numpy as np
import pytest
from problems import random_spec

from rigor.envs.tabular_model import TabularModel
from rigor.errors import UserError
from rigor.exact.backward_induction import PolicyTables
from rigor.exact.table_policy import TablePolicy, load


def build():
    # the second table has the offsets 0 and 1; action = offset in state 0, always 1 in state 1
    first, second = np.array([[0, 0]], np.int16), np.array([[0, 1], [1, 1]], np.int16)
    tables = PolicyTables([first, second], [np.zeros(1), np.array([0.0, 1.0])])
    spec = random_spec(0, horizon=2)
    spec.observe = lambda t, states: np.eye(2)[states]
    return TablePolicy(TabularModel(spec), tables, -3.0, np.array([1.0, 0.5]))


def test_actions_by_time_state_and_nearest_offset():
    states = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    t, stock = np.array([0, 1, 1, 9]), np.array([-2.0, -2.6, -2.4, -3.0])
    assert build()(states, t, stock).tolist() == [0, 0, 1, 1]


def test_one_observation_and_whole_floats_are_accepted_and_others_refused():
    policy = build()
    assert policy(np.array([1.0, 0.0]), 1.0, -2.4) == 1
    assert policy(np.array([[1.0, 0.0]]), 1, -2.6).tolist() == [0]
    assert policy.next_stock(-3.0, 1.0, 4.0) == -1.0
    with pytest.raises(UserError, match=r"^t=0\.5: must be whole agent steps"):
        policy(np.array([1.0, 0.0]), 0.5, 0.0)
    with pytest.raises(UserError, match=r"^observation of shape \(3,\): must be \(2,\)"):
        policy(np.zeros(3), 0, 0.0)
    assert repr(policy) == "<exact policy of 2 decisions, initial stock -3>"


def test_the_stock_accumulates_with_the_agents_discount():
    stock = build().next_stock(np.array([-3.0, -3.0]), np.array([1, 9]), np.array([4.0, 4.0]))
    assert stock.tolist() == [-1.0, -1.0]


def test_a_saved_policy_is_loaded(tmp_path):
    policy = build()
    policy.save(tmp_path / "policy.npz")
    problem = SimpleNamespace(n_decisions=2, model=lambda: policy.model)
    config = SimpleNamespace(env=SimpleNamespace(problem=problem))
    loaded = load(tmp_path / "policy.npz", config)
    for ours, theirs in zip(policy.tables.actions, loaded.tables.actions, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(policy.tables.offsets, loaded.tables.offsets, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.initial_stock == -3.0
    assert loaded.discount.tolist() == [1.0, 0.5]


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "policy.npz").write_text("nothing")
    with pytest.raises(UserError, match=r"policy\.npz: not a readable policy"):
        load(tmp_path / "policy.npz", SimpleNamespace())
