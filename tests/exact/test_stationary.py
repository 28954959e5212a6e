import itertools

import numpy as np
import pytest
from problems import deterministic_spec, random_spec

from rigor.envs.tabular_model import TabularModel
from rigor.errors import UserError
from rigor.exact.backward_induction import StockAugmentedProblem
from rigor.exact.stationary import evaluate, risk_neutral, stationary_cycle
from rigor.maths.discount import Exponential, Hyperbolic
from rigor.maths.horizons import Bundle, Multi, Single
from rigor.maths.utility import Mean

# gamma 0 and .9 with weights 1/2: Q = r/2 + (r + .9 V)/2 = r + .45 V
TWO = Bundle(np.array([0.0, 0.9]), np.array([0.5, 0.5]), Exponential(0.9))


def test_evaluation_is_the_limit_of_a_long_horizon():
    model = TabularModel(random_spec(0, states=3), 60)
    actions, gammas = np.array([1, 0, 1]), np.array([0.0, 0.3, 0.6])
    value = np.zeros((3, 3))
    for _ in range(60):
        q = model.expect(0, model.atoms[:, None, None] + gammas[:, None] * value)
        value = q[actions, :, np.arange(3)].T
    np.testing.assert_allclose(evaluate(model, actions, gammas), value, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99])
def test_no_stationary_policy_is_better_than_the_risk_neutral_one(gamma):
    for seed in range(10):
        model = TabularModel(random_spec(seed, states=3), 1)
        best = evaluate(model, risk_neutral(model, gamma), np.array([gamma]))
        for choices in itertools.product(range(2), repeat=3):
            other = evaluate(model, np.array(choices), np.array([gamma]))
            assert (best >= other - 1e-11 / (1.0 - gamma)).all()


def test_risk_neutral_ties_go_to_the_lower_action():
    model = TabularModel(deterministic_spec([[0, 0, 0]], [[1.0, 2.0, 2.0]]), 1)
    assert risk_neutral(model, 0.9).tolist() == [1]


def test_a_shared_agent_that_cycles():
    # State 0: stay for 4 or go to 1 for 2. State 1: stay for 5 (or go back for 5, never better).
    # While it stays in 0, V_.9 = 40 there and 50 in 1: staying 4 + 18 < going 2 + 22.5.
    # While it goes, V_.9 = 2 + 45 = 47 in 0: staying 4 + .45·47 = 25.15 > going 24.5.
    model = TabularModel(deterministic_spec([[0, 1], [1, 0]], [[4.0, 2.0], [5.0, 5.0]]), 1)
    cycle = stationary_cycle(model, TWO, per_head=False)
    assert sorted(policy.tolist() for policy in cycle) == [[0, 0], [1, 0]]
    # with per-head bootstraps the patient horizon goes, V_.9 = 47, so the agent stays
    (policy,) = stationary_cycle(model, TWO, per_head=True)
    assert policy.tolist() == [0, 0]


def test_a_shared_agent_that_converges():
    # as above with 1 for staying: 1 + .45·(2 + 45) = 22.15 < 24.5, so going is a fixed point
    model = TabularModel(deterministic_spec([[0, 1], [1, 0]], [[1.0, 2.0], [5.0, 5.0]]), 1)
    (policy,) = stationary_cycle(model, TWO, per_head=False)
    assert policy.tolist() == [1, 0]


@pytest.mark.parametrize("per_head", [False, True])
def test_a_fixed_point_is_greedy_for_its_own_values(per_head):
    bundle = Multi(4, 0.98, "midpoint").bundle(Hyperbolic(0.5))
    n_fixed_points = 0
    for seed in range(30):
        model = TabularModel(random_spec(seed, states=3), 1)
        policies = stationary_cycle(model, bundle, per_head)
        if len(policies) > 1:
            continue
        n_fixed_points += 1
        value = evaluate(model, policies[0], bundle.gammas)
        if per_head:
            value = np.array(
                [evaluate(model, risk_neutral(model, g), np.array([g]))[0] for g in bundle.gammas]
            )
        rewards = model.atoms[:, None, None]
        xi = model.expect(0, rewards + bundle.gammas[:, None] * value)  # [A, M, n]
        q = np.einsum("m,amn->an", bundle.weights, xi)
        chosen = np.take_along_axis(q, policies[0][None], 0)[0]
        assert (chosen >= q.max(axis=0) - 1e-9).all()
    assert n_fixed_points >= 20


@pytest.mark.parametrize("per_head", [False, True])
def test_one_exponential_horizon_is_the_risk_neutral_optimum(per_head):
    for seed in range(5):
        model = TabularModel(random_spec(seed, states=3), 60)
        (policy,) = stationary_cycle(model, Single().bundle(Exponential(0.5)), per_head)
        value = evaluate(model, policy, np.array([0.5]))[0] @ model.initial
        assert value == pytest.approx(
            StockAugmentedProblem(model, 0.5 ** np.arange(60), Mean(), 9).policy(0)[0]
        )


def test_bundles_without_stationary_values_are_refused():
    model = TabularModel(random_spec(0), 1)
    for bundle, match in (
        (Single().bundle(Hyperbolic(0.5)), "horizons=multi"),
        (Single().bundle(Exponential(1.0)), "discount=capped"),
        (Bundle(np.array([0.5, 1.0]), np.array([0.5, 0.5]), Hyperbolic(0.5)), "discount=capped"),
    ):
        for per_head in (False, True):
            with pytest.raises(UserError, match=match):
                stationary_cycle(model, bundle, per_head)
