import numpy as np
import pytest
from problems import random_spec

from rigor.envs.model import FLOAT64_EXPONENT
from rigor.envs.tabular_model import TabularModel
from rigor.exact.backward_induction import StockAugmentedProblem
from rigor.exact.fixed_decisions import FixedDecisions
from rigor.maths.utility import Mean


def test_a_model_with_all_decisions_fixed_has_the_value_of_the_policy():
    model = TabularModel(random_spec(0, states=3))
    actions = np.array([1, 0, 1])
    fixed = FixedDecisions(model, 3, lambda t: actions)
    value = np.zeros((1, 3))
    for t in reversed(range(3)):
        q = model.expect(t, value + model.atoms[:, None, None])
        value = np.take_along_axis(q, actions[None, None], 0)[0]
    problem = StockAugmentedProblem(fixed, np.ones(3), Mean(), 9)
    assert problem.policy(0.0)[0] == pytest.approx(float(value[0] @ model.initial))


def test_free_decisions_are_those_of_the_model():
    model = TabularModel(random_spec(1))
    fixed = FixedDecisions(model, 2, lambda t: None)
    value = np.random.default_rng(0).normal(size=(len(model.atoms), 1, 2))
    np.testing.assert_array_equal(fixed.expect(0, value), model.expect(0, value))
    assert fixed.terminal_payoff(0) is None
    assert fixed.largest_exponent == FLOAT64_EXPONENT


def test_push_forward_is_the_adjoint_of_expect():
    model = TabularModel(random_spec(2, states=3))
    fixed = FixedDecisions(model, 1, lambda t: np.array([0, 1, 1]))
    rng = np.random.default_rng(0)
    value, p = rng.normal(size=(len(model.atoms), 4, 3)), rng.random((2, 4, 3))
    forward, backward = (p * fixed.expect(0, value)).sum(), (fixed.push_forward(0, p) * value).sum()
    assert forward == pytest.approx(backward, rel=1e-12)
