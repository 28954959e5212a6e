import numpy as np
import pytest
from problems import random_spec, sure

from rigor.exact.heads import greedy, head_policy, head_values
from rigor.exact.levels import reachable
from rigor.exact.optimum import objective_of, optimum
from rigor.exact.outcome import follow, tabulated
from rigor.exact.tabular import TabularModel
from rigor.maths.discount import Exponential, Hyperbolic
from rigor.maths.horizons import Bundle, Multi, Single
from rigor.maths.utility import Mean

T = 5


def worth(model, tables, d):
    levels = reachable(model, d[:, None], 100)
    return objective_of(Mean(), follow(model, d, levels, tabulated(tables, levels)))


@pytest.mark.parametrize("clock_runs", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("horizons", [Single(), Multi(1, 0.9, "fitted")])
def test_one_exponential_horizon_is_the_optimum(horizons, clock_runs, per_head):
    discount = Exponential(0.8)
    d = discount.factor(np.arange(T))
    for seed in range(5):
        model = TabularModel(random_spec(seed, states=3, horizon=T))
        tables = head_policy(
            model, horizons.bundle(discount), clock_runs=clock_runs, per_head=per_head
        )
        assert worth(model, tables, d) == pytest.approx(optimum(model, d, Mean(), 9).value)


@pytest.mark.parametrize("quadrature", ["lower", "midpoint"])
def test_a_running_clock_is_the_optimum_of_the_bundles_own_mass(quadrature):
    bundle = Multi(4, 0.99, quadrature).bundle(Hyperbolic(0.7))
    d = bundle.mass(np.arange(T))
    for seed in range(5):
        model = TabularModel(random_spec(seed, states=3, horizon=T))
        tables = head_policy(model, bundle, clock_runs=True, per_head=False)
        assert worth(model, tables, d) == pytest.approx(optimum(model, d, Mean(), 9).value)


def test_the_clock_runs_on_where_the_mass_underflows():
    # .1^400 is 0 in float64; action 1 earns 1, action 0 nothing
    model = TabularModel(sure([[0, 0]], [[0.0, 1.0]], 400))
    bundle = Bundle(np.array([0.1, 0.05]), np.array([0.5, 0.5]), Exponential(0.1))
    tables = head_policy(model, bundle, clock_runs=True, per_head=False)
    assert all(actions.item() == 1 for actions in tables.actions)


def test_a_frozen_clock_reverses_its_preference():
    # States 0 ... 3 in a row. Stopping in state 1 pays 5, in state 2 pays 7, in state 3 pays 12;
    # state 0 only waits. Bundle: gamma 0 and 1 with weights 1/2, so d = 1, 1/2, 1/2, ...
    # At t = 0 all are later: the plan is to wait for 12. Then, seen from state 1 with a clock of
    # 0: 5 now against max(7, 12)/2 = 6 later; from state 2: 7 now against 12/2 = 6: it stops there.
    # So shared in state 1 expects 7/2 = 3.5 and takes 5 instead; per head, the patient one expects
    # 12, and the sum 6: it waits, to stop in state 2.
    moves = [[1, 1], [2, 4], [3, 4], [4, 4], [4, 4]]
    model = TabularModel(sure(moves, [[0, 0], [0, 5], [0, 7], [12, 12], [0, 0]], 4))
    bundle = Bundle(np.array([0.0, 1.0]), np.array([0.5, 0.5]), Exponential(1.0))
    played = {}
    for name, clock_runs, per_head in (
        ("running", True, False),
        ("shared", False, False),
        ("per_head", False, True),
    ):
        tables = head_policy(model, bundle, clock_runs=clock_runs, per_head=per_head)
        played[name] = (tables.actions[1][0, 1], tables.actions[2][0, 2])
        d = bundle.mass(np.arange(4))
        played[name] += (worth(model, tables, d),)
    assert played == {"running": (0, 0, 6.0), "shared": (1, 1, 2.5), "per_head": (0, 1, 3.5)}


def test_values_and_readout():
    model = TabularModel(sure([[1, 0], [0, 0]], [[1.0, 2.0], [0.0, 0.0]]))
    xi = head_values(model, 0, np.array([[10.0, 20.0], [30.0, 40.0]]))  # [A, M, n]
    assert xi[:, :, 0].tolist() == [[21.0, 41.0], [12.0, 32.0]]
    assert greedy(xi, np.array([0.5, 0.5])).tolist() == [0, 0]
    assert greedy(np.array([[[1.0]], [[1.0 + 1e-14]]]), np.ones(1)).tolist() == [0]
