"""The optimal policies play the batched environments: samples against the exact law."""

import numpy as np
import pytest
from cli import composed

from rigor import config
from rigor.exact.agents import backward_induction

EPISODES, COPIES = 400_000, 20_000


class Quiet:
    def __call__(self, stocks):
        pass

    def note(self, text):
        pass


def play(policy, env, factors, seed):
    """Play EPISODES whole episodes.

    Returns the discounted and the undiscounted return of each, and the share of the episodes that
    earned something at each decision.
    """
    observation = env.reset(np.random.SeedSequence(seed))
    n = env.n_envs
    t, total, sums, ended = np.zeros(n, np.int64), np.full(n, policy.initial_stock), [], 0
    running = np.zeros((2, n))
    earned = np.zeros(len(factors))
    left = np.full(n, EPISODES // n)  # every copy its share, so that no short episode is preferred
    while ended < EPISODES:
        step = env.step(policy(observation, t, total))
        counts = ~step.dummy
        np.add.at(earned, t[counts & (left > 0) & (step.reward > 0)], 1)
        d = factors[np.minimum(t, len(factors) - 1)]
        running += np.where(counts, np.stack([d * step.reward, step.reward]), 0)
        total = np.where(counts, policy.next_stock(total, t, step.reward), policy.initial_stock)
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
def test_samples_agree_with_the_law(problem):
    one = config.build(composed("agent=backward_induction", "tracker=none", *problem))
    solved = backward_induction(one, Quiet())
    factors = one.discount.factor(np.arange(one.env.n_decisions))
    discounted, undiscounted, earned = play(
        solved.policy, one.env.make(COPIES, evaluation=True), factors, seed=1
    )
    x, p = solved.outcome.returns, solved.outcome.probabilities

    def agrees(sample, exact):
        error = sample.std() / np.sqrt(len(sample))
        assert abs(sample.mean() - exact) < 4 * error, (sample.mean(), exact, error)

    agrees(discounted, p @ x)
    agrees(undiscounted, solved.outcome.mean_undiscounted)
    c0 = solved.numbers["initial_stock"]
    agrees(one.risk.f(c0 + discounted), p @ one.risk.f(c0 + x))
    if "env=gbwm" in problem:
        for t, goal in ((one.env.early_time, "p_early"), (one.env.periods, "p_late")):
            chance = solved.numbers[goal]
            error = np.sqrt(chance * (1 - chance) / EPISODES)
            assert abs(earned[t] - chance) < 4 * error, (goal, earned[t], chance)
    for level in (0.1, 0.5, 0.9):
        at = x[np.searchsorted(np.cumsum(p), level)]
        below = float(p[x <= at + 1e-9].sum())
        share = (discounted <= at + 1e-9).mean()
        if len(x) < 1000:  # where the return is continuous, whole cells decide
            variance = max(below * (1 - below), 0.0) / EPISODES
            assert abs(share - below) < 4 * np.sqrt(variance) + 1e-12
