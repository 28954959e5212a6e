"""Returns sampled with the optimal policies, against their exact distribution."""

from types import SimpleNamespace

import numpy as np
import pytest
from command_line import composed
from problems import QuietProgress

from rigor.config import config
from rigor.errors import UserError
from rigor.exact.solve import check_rewards, solve_at_level, solve_finite
from rigor.maths.utility import other_level

EPISODES, COPIES = 400_000, 20_000


def sample(policy, env, factors, seed):
    """Return the discounted and undiscounted returns of EPISODES whole episodes.

    The third array is the fraction of episodes with a positive reward at each decision.
    """
    observation = env.reset(np.random.SeedSequence(seed))
    n = env.n_envs
    t, stock, sums, ended = np.zeros(n, np.int64), np.full(n, policy.initial_stock), [], 0
    running = np.zeros((2, n))
    earned = np.zeros(len(factors))
    left = np.full(n, EPISODES // n)  # the same number for each copy: no bias to short episodes
    while ended < EPISODES:
        step = env.step(policy(observation, t, stock))
        counts = ~step.dummy
        np.add.at(earned, t[counts & (left > 0) & (step.reward > 0)], 1)
        d = factors[np.minimum(t, len(factors) - 1)]
        running += np.where(counts, np.stack([d * step.reward, step.reward]), 0)
        stock = np.where(counts, policy.next_stock(stock, t, step.reward), policy.initial_stock)
        t = np.where(counts, t + 1, 0)
        over = step.episode_end & (left > 0)
        sums.append(running[:, over].copy())
        left[over] -= 1
        ended += int(over.sum())
        running[:, step.episode_end] = 0
        observation = step.observation
    return *np.concatenate(sums, axis=1), earned / EPISODES


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem",
    [
        ("env=gbwm", "discount=hyperbolic"),
        ("env=gbwm", "env.late_utility=2000", "risk=mean_cvar", "discount=exponential"),
        ("env=american_put", "discount=hyperbolic", "discount.k=.2"),
        ("env=tabular", "env.horizon=5", "risk=cvar", "risk.tau=.3", "discount=hyperbolic"),
    ],
    ids=lambda problem: " ".join(problem),
)
def test_samples_agree_with_the_exact_distribution(problem):
    one = config.build(composed("agent=backward_induction", "tracker=none", *problem))
    solution = solve_finite(one, QuietProgress())
    factors = one.discount.factor(np.arange(one.env.n_decisions))
    discounted, undiscounted, earned = sample(
        solution.policy, one.env.make(COPIES, evaluation=True), factors, seed=1
    )
    x, p = solution.outcome.returns, solution.outcome.probabilities

    def agrees(sample, exact):
        error = sample.std() / np.sqrt(len(sample))
        assert abs(sample.mean() - exact) < 4 * error, (sample.mean(), exact, error)

    agrees(discounted, p @ x)
    agrees(undiscounted, solution.outcome.mean_score)
    c0 = solution.metrics["initial_stock"]
    agrees(one.risk.f(c0 + discounted), p @ one.risk.f(c0 + x))
    if "env=gbwm" in problem:
        for t, goal in ((one.env.early_time, "p_early"), (one.env.periods, "p_late")):
            p_goal = solution.metrics[goal]
            error = np.sqrt(p_goal * (1 - p_goal) / EPISODES)
            assert abs(earned[t] - p_goal) < 4 * error, (goal, earned[t], p_goal)
    for level in (0.1, 0.5, 0.9):
        at = x[np.searchsorted(np.cumsum(p), level)]
        below = float(p[x <= at + 1e-9].sum())
        fraction = (discounted <= at + 1e-9).mean()
        if len(x) < 1000:  # a continuous return would be compared by whole cells of the grid
            variance = max(below * (1 - below), 0.0) / EPISODES
            assert abs(fraction - below) < 4 * np.sqrt(variance) + 1e-12


def test_an_agent_with_horizons_keeps_its_own_discount_at_another_level():
    choices = ["env=tabular", "env.horizon=4", "discount=hyperbolic", "discount.k=1"]
    horizons = ["horizons=multi", "horizons.m=2", "risk=cvar", "risk.tau=.5"]
    one = config.build(composed("agent=backward_induction", "tracker=none", *choices, *horizons))
    own, again = (
        solve_finite(one, QuietProgress()),
        solve_at_level(one, other_level(one.risk, 0.5)),
    )
    assert again.metrics == own.metrics
    np.testing.assert_array_equal(again.policy.discount, own.policy.discount)
    assert own.policy.discount[1] != one.discount.factor(np.arange(2))[1]  # of the two horizons
    lower = solve_at_level(one, other_level(one.risk, 0.1)).metrics
    assert lower["objective_exact"] < own.metrics["objective_exact"]
    assert lower["objective_exact"] <= lower["objective_optimal"] + 1e-12


def test_another_level_needs_a_last_decision():
    endless = ["env=tabular", "env.horizon=inf", "agent=infinite_horizon", "risk=cvar"]
    one = config.build(composed("tracker=none", *endless))
    with pytest.raises(UserError, match="needs a problem with a fixed number of decisions"):
        solve_at_level(one, other_level(one.risk, 0.5))


@pytest.mark.parametrize(
    ("reward", "payoff", "message"),
    [
        (np.nan, np.nan, r"rewards\(2\) of its model gives nan; rewards must be finite"),
        (0.0, -np.inf, r"terminal_payoff\(2\) of its model gives -inf"),
        (0.0, 1e308, r"terminal_payoff\(2\) of its model gives 1e\+308; .* at most"),
    ],
)
def test_a_model_with_unusable_rewards_is_named(reward, payoff, message):
    last = 2
    model = SimpleNamespace(
        n_decisions=3,
        rewards=lambda t: np.array([1.0, reward if t == last else 0.0]),
        terminal_payoff=lambda t: np.array([[np.nan, payoff if t == last else 0.0]]),
    )
    with pytest.raises(UserError, match=f"^env=mine: {message}"):
        check_rewards("env=mine", model)
