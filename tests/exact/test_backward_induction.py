import itertools

import numpy as np
import pytest
from problems import deterministic_spec, random_spec, spec

from rigor.envs.tabular_model import TabularModel
from rigor.exact.backward_induction import PolicyTables, StockAugmentedProblem, return_range
from rigor.exact.outer_search import objective_of, optimum
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import evaluate_policy
from rigor.maths.discount import CIR, Exponential, Hyperbolic, QuasiHyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance, other_level

DISCOUNTS = [Exponential(0.9), Hyperbolic(0.5), QuasiHyperbolic(0.6, 0.95), CIR(0.3, 0.2, 0.2, 0.1)]
UTILITIES = [Mean(), CVaR(0.3), MeanCVaR(0.4, 0.3), Entropic(-0.5), MeanVariance(0.1)]
MODELS = 10


def returns_of_histories(tabular, d):
    """Return the discounted return of every history, [A, S, K, A, S, K, A, S, K]."""
    reward = tabular.tables().reward  # [S, A, S, K]
    total = d[0] * reward[0]
    for factor in d[1:]:  # the next decision is in the state reached before
        total = total[..., None, None, None] + factor * reward[:, None]
    return total


def over_histories(tabular, d, utility, stocks):
    """Return −c + max E f(c + G) over all history-dependent policies, for every stock [C]."""
    problem = tabular.tables()
    probabilities = problem.P[..., None] * problem.reward_probability
    totals = returns_of_histories(tabular, d)
    value = utility.f(stocks.reshape(-1, *(1,) * totals.ndim) + totals)
    for t in reversed(range(len(d))):
        weighted = value * (probabilities[:, None] if t else probabilities[0])
        value = weighted.sum(axis=(-1, -2)).max(axis=-1)
    return value - stocks


def brute_force(tabular, d, utility, c0):
    """Return the OCE optimum over all history-dependent policies."""
    if isinstance(utility, Entropic):
        (value,) = over_histories(tabular, d, utility, np.zeros(1))
        return np.log1p(utility.beta * value) / utility.beta
    if isinstance(utility, Mean):
        return over_histories(tabular, d, utility, np.zeros(1))[0]
    if isinstance(utility, MeanVariance):
        stocks = np.append(np.linspace(-8.0, 8.0, 161), c0)
        return over_histories(tabular, d, utility, stocks).max()
    return over_histories(tabular, d, utility, -np.unique(returns_of_histories(tabular, d))).max()


@pytest.mark.parametrize("discount", DISCOUNTS, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("utility", UTILITIES, ids=lambda x: type(x).__name__)
def test_no_history_dependent_policy_is_better(discount, utility):
    d = discount.factor(np.arange(3))
    for seed in range(MODELS):
        tabular = random_spec(seed)
        best = optimum(TabularModel(tabular), d, utility, 10_000)
        want = brute_force(tabular, d, utility, best.c0)
        assert best.value == pytest.approx(want, abs=1e-10), seed
        assert best.search_gap < (1e-3 if isinstance(utility, MeanVariance) else 1e-11)


def test_the_value_of_every_initial_stock_equals_brute_force():
    stocks = np.linspace(-4.0, 4.0, 9)
    d = Hyperbolic(0.5).factor(np.arange(3))
    for utility in (CVaR(0.3), MeanCVaR(0.4, 0.3), MeanVariance(0.1)):
        problem = StockAugmentedProblem(TabularModel(random_spec(3)), d, utility, 10_000)
        want = over_histories(random_spec(3), d, utility, stocks)
        np.testing.assert_allclose(problem.objective(stocks), want, atol=1e-12)
        assert problem.policy(1.5)[0] == pytest.approx(problem.objective(np.array([1.5]))[0])


@pytest.mark.parametrize(
    ("utility", "needs_stock"), [(CVaR(0.3), True), (Entropic(-0.5), False), (Mean(), False)]
)
def test_a_policy_of_state_and_time_is_worse_only_if_the_stock_is_needed(utility, needs_stock):
    d = Exponential(0.9).factor(np.arange(3))
    gaps = []
    for seed in range(14, 20):
        model = TabularModel(random_spec(seed))
        reachable = reachable_stocks(model, d[:, None], 10_000)
        best = -np.inf
        for choices in itertools.product(range(2), repeat=6):
            actions = np.array(choices).reshape(3, 2)
            outcome = evaluate_policy(
                model, d, reachable, lambda t, actions=actions: actions[t][None]
            )
            best = max(best, objective_of(utility, outcome))
        gaps.append(optimum(model, d, utility, 10_000).value - best)
    assert min(gaps) > -1e-10
    assert (max(gaps) > 1e-3) == needs_stock


def test_cvar_worked_by_hand():
    # First decision: 0 or 4 with probability 1/2 each, for both actions. Second: action 0 earns 2,
    # action 1 earns 0 or 6 with probability 1/2 each; d = (1, 1), tau = 1/2.
    # G by the actions after 0 and after 4: (0, 0) gives 2 or 6, CVaR 2. (0, 1) gives 2 with
    # probability 1/2, CVaR 2. (1, *) gives 0 with probability 1/4 and 6 with 1/4 after 0; after 4,
    # action 1 gives 4 or 10, so the worst half is 0 and 4, CVaR 2; action 0 gives 6, so the worst
    # half is 0 and 6, CVaR 3. The best is (1, 0): 0 (1/4), 6 (3/4), c0 = −6.
    probabilities = np.full((2, 2, 1, 2), 0.5)
    rewards = [[[[0, 4]], [[0, 4]]], [[[2, 2]], [[0, 6]]]]
    tabular = spec([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], rewards, probabilities, 2)
    best = optimum(TabularModel(tabular), np.ones(2), CVaR(0.5), 100)
    assert best.value == pytest.approx(3.0, abs=1e-14)
    assert best.c0 == pytest.approx(-6.0)
    assert best.outcome.returns.tolist() == [0.0, 6.0]
    np.testing.assert_allclose(best.outcome.probabilities, [0.25, 0.75])
    after = dict(zip(best.tables.offsets[1].tolist(), best.tables.actions[1][:, 1], strict=True))
    assert (after[0.0], after[4.0]) == (1, 0)


def test_ties_go_to_the_larger_mean_then_to_the_lower_action():
    # from c0 = −1 every return of 1 or more has f = 0: all actions tie, and 1 and 2 earn more
    model = TabularModel(deterministic_spec([[0, 0, 0]], [[1.0, 5.0, 5.0]], 1))
    problem = StockAugmentedProblem(model, np.ones(1), CVaR(0.5), 10)
    assert problem.policy(-1.0)[1].actions[0].tolist() == [[1]]
    for utility in (Mean(), Entropic(-1.0)):
        assert StockAugmentedProblem(model, np.ones(1), utility, 10).policy(0.0)[1].actions[
            0
        ].tolist() == [[1]]


def test_policies_without_stock_are_tables_of_one_offset():
    tables = StockAugmentedProblem(TabularModel(random_spec(0)), np.ones(3), Mean(), 10).policy(
        0.0
    )[1]
    assert isinstance(tables, PolicyTables)
    assert [a.shape for a in tables.actions] == [(1, 2)] * 3
    assert [o.tolist() for o in tables.offsets] == [[0.0]] * 3


class OptimalStopping:
    """One point: action 0 continues and earns 0 or 2, action 1 ends with the payoff 3 − t."""

    n_points, n_actions, n_decisions = 1, 2, 3
    initial = np.ones(1)

    def rewards(self, t):
        return np.array([0.0, 2.0])

    def expect(self, t, value):
        return np.repeat(value.mean(axis=0)[None], 2, axis=0)

    def push_forward(self, t, probability):
        return np.repeat(probability.sum(axis=0)[None] / 2.0, 2, axis=0)

    def terminal_payoff(self, t):
        return np.array([[np.nan], [3.0 - t]])


def test_a_terminal_payoff_ends_the_episode():
    # Continuing earns 0 or 2 with probability 1/2 each. With d = 1 continuing to the end has mean
    # 3, and stopping at t has t + 3 − t = 3: all tie, and the lower action continues. With d = (1,
    # .5, .25) stopping at once earns 3, continuing 1 + max(.5·2, .5 + max(.25, .25)) = 2.
    model = OptimalStopping()
    value, tables = StockAugmentedProblem(model, np.ones(3), Mean(), 10).policy(0.0)
    assert value == pytest.approx(3.0)
    assert [a.item() for a in tables.actions] == [0, 0, 0]
    d = np.array([1.0, 0.5, 0.25])
    best = optimum(model, d, CVaR(0.5), 100)
    assert best.value == pytest.approx(3.0)
    assert best.outcome.returns.tolist() == [3.0]
    assert best.outcome.mean_score == 3.0
    assert best.outcome.of_points(1).sum() == 0.0


def test_range_of_returns():
    assert return_range(
        TabularModel(deterministic_spec([[0, 0]], [[-1.0, 2.0]])), np.array([1, 0.5, 0.25])
    ) == (
        -1.75,
        3.5,
    )
    # ends at t with 3 − t after rewards of 0 or 2, or never ends: 3, 2 ... 4, 1 ... 5, 0 ... 6
    assert return_range(OptimalStopping(), np.ones(3)) == (0.0, 6.0)


@pytest.mark.parametrize(("risk", "level"), [(CVaR(0.5), 0.2), (MeanVariance(0.3), 0.1)])
def test_one_solution_serves_every_risk_level(risk, level):
    model = TabularModel(random_spec(3, states=3, horizon=4))
    factors = Hyperbolic(0.1).factor(np.arange(4))
    served = other_level(risk, level)
    trained = StockAugmentedProblem(model, factors, risk, 10_000)
    direct = StockAugmentedProblem(model, factors, served.utility, 10_000)
    c = np.linspace(-8.0, 4.0, 25)
    stocks = c + served.shift
    found = served.objective(stocks, trained.objective(stocks))
    np.testing.assert_allclose(found, direct.objective(c), atol=1e-10)
