import numpy as np
import pytest
from problems import deterministic_spec, random_spec

from rigor.envs.tabular_model import TabularModel
from rigor.exact.multi_horizon import greedy, horizon_values, multi_horizon_policy
from rigor.exact.outer_search import objective_of, optimum
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import decision_rule, evaluate_policy
from rigor.maths.discount import Exponential, Hyperbolic
from rigor.maths.horizons import Bundle, Multi, Single
from rigor.maths.utility import Mean

T = 5


def value_of(model, tables, d):
    """Return the expected discounted return of a policy."""
    reachable = reachable_stocks(model, d[:, None], 100)
    return objective_of(
        Mean(), evaluate_policy(model, d, reachable, decision_rule(tables, reachable))
    )


@pytest.mark.parametrize("clock_runs", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("horizons", [Single(), Multi(1, 0.9, "fitted")])
def test_one_exponential_horizon_is_the_optimum(horizons, clock_runs, per_head):
    discount = Exponential(0.8)
    d = discount.factor(np.arange(T))
    for seed in range(5):
        model = TabularModel(random_spec(seed, states=3, horizon=T))
        tables = multi_horizon_policy(
            model, horizons.bundle(discount), clock_runs=clock_runs, per_head=per_head
        )
        assert value_of(model, tables, d) == pytest.approx(optimum(model, d, Mean(), 9).value)


@pytest.mark.parametrize("quadrature", ["lower", "midpoint"])
def test_a_running_clock_is_optimal_under_the_bundles_own_discount(quadrature):
    bundle = Multi(4, 0.99, quadrature).bundle(Hyperbolic(0.7))
    d = bundle.discount(np.arange(T))
    for seed in range(5):
        model = TabularModel(random_spec(seed, states=3, horizon=T))
        tables = multi_horizon_policy(model, bundle, clock_runs=True, per_head=False)
        assert value_of(model, tables, d) == pytest.approx(optimum(model, d, Mean(), 9).value)


def test_a_running_clock_is_optimal_where_the_discount_underflows():
    # .1^400 is 0 in float64; action 1 earns 1, action 0 nothing
    model = TabularModel(deterministic_spec([[0, 0]], [[0.0, 1.0]], 400))
    bundle = Bundle(np.array([0.1, 0.05]), np.array([0.5, 0.5]), Exponential(0.1))
    tables = multi_horizon_policy(model, bundle, clock_runs=True, per_head=False)
    assert all(actions.item() == 1 for actions in tables.actions)


def test_a_frozen_clock_reverses_its_preference():
    # States 0 ... 3 in a row. Stopping in state 1 pays 5, in state 2 pays 7, in state 3 pays 12; in
    # state 0 the agent waits. Bundle: gamma 0 and 1 with weights 1/2, so d = 1, 1/2, 1/2, ...
    # At t = 0 all payoffs are later, and the plan is to wait for 12. With the clock frozen at 0 the
    # agent in state 1 compares 5 now with max(7, 12)/2 = 6 later, and in state 2 it compares 7 now
    # with 12/2 = 6, so it stops there. With a shared bootstrap, state 1 expects 7/2 = 3.5 from
    # waiting and takes 5. Per head, the patient horizon expects 12, so waiting has 6: the agent
    # waits and then stops in state 2.
    moves = [[1, 1], [2, 4], [3, 4], [4, 4], [4, 4]]
    model = TabularModel(deterministic_spec(moves, [[0, 0], [0, 5], [0, 7], [12, 12], [0, 0]], 4))
    bundle = Bundle(np.array([0.0, 1.0]), np.array([0.5, 0.5]), Exponential(1.0))
    results = {}
    for name, clock_runs, per_head in (
        ("running", True, False),
        ("shared", False, False),
        ("per_head", False, True),
    ):
        tables = multi_horizon_policy(model, bundle, clock_runs=clock_runs, per_head=per_head)
        results[name] = (tables.actions[1][0, 1], tables.actions[2][0, 2])
        d = bundle.discount(np.arange(4))
        results[name] += (value_of(model, tables, d),)
    assert results == {"running": (0, 0, 6.0), "shared": (1, 1, 2.5), "per_head": (0, 1, 3.5)}


def test_horizon_values_and_the_greedy_action():
    model = TabularModel(deterministic_spec([[1, 0], [0, 0]], [[1.0, 2.0], [0.0, 0.0]]))
    xi = horizon_values(model, 0, np.array([[10.0, 20.0], [30.0, 40.0]]))  # [A, M, n]
    assert xi[:, :, 0].tolist() == [[21.0, 41.0], [12.0, 32.0]]
    assert greedy(xi, np.array([0.5, 0.5])).tolist() == [0, 0]
    assert greedy(np.array([[[1.0]], [[1.0 + 1e-14]]]), np.ones(1)).tolist() == [0]
