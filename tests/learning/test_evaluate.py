import re

import numpy as np
import pytest
from scripted import Episode, ScriptedEnv

from rigor.config import Config
from rigor.errors import Stopped
from rigor.learning import evaluate
from rigor.learning.evaluate import (
    Estimate,
    Games,
    copies,
    interval,
    out_of_proportion,
    play,
    summarise,
)
from rigor.maths.utility import CVaR, Entropic, Mean, MeanVariance

FACTORS = 0.5 ** np.arange(20)


class Actor:
    """An agent with masses of its own that writes down what it was asked."""

    mass = 1.0 / (1.0 + np.arange(20))
    initial_stock = -3.0

    def __init__(self, env):
        self.learned_reward, self.asked = env.learned_reward, []

    def act(self, observation, t, stock, epsilon, rng):
        self.asked.append((t.copy(), stock.copy(), epsilon))
        return rng.integers(0, 3, len(t))

    def next_stock(self, total, t, reward):
        return total + self.mass[t] * self.learned_reward(reward)


def games_of(scripts, episodes, clip=False):
    env = ScriptedEnv(scripts, clip=clip)
    agent = Actor(env)
    return play(agent, env, episodes, 0.25, FACTORS, np.random.SeedSequence(0)), agent, env


def test_sums_of_a_game_by_hand():
    script = [Episode((4.0, 0.0, 2.0)), Episode((-8.0, 3.0), truncated=True)]
    games, agent, _ = games_of([script], 2, clip=True)
    assert games.score.tolist() == [6.0, -5.0]
    assert games.length.tolist() == [3, 2]
    # d_t = 1, 1/2, 1/4
    assert games.discounted.tolist() == [4.5, -6.5]
    # mass = 1, 1/2, 1/3; learned rewards 1, 0, 1 and -1, 1
    np.testing.assert_allclose(games.bundle, [4 + 2 / 3, -6.5])
    np.testing.assert_allclose(games.learned, [1 + 1 / 3, -0.5])
    # the clock and the stock, the autoreset between the games included
    assert [int(t[0]) for t, _, _ in agent.asked] == [0, 1, 2, 3, 0, 1]
    stocks = [float(stock[0]) for _, stock, _ in agent.asked]
    np.testing.assert_allclose(stocks, [-3, -2, -2, -2 + 1 / 3, -3, -4])
    assert {epsilon for _, _, epsilon in agent.asked} == {0.25}


def test_a_lost_life_ends_no_game():
    games, _, _ = games_of([[Episode((1.0,) * 5, lives_lost=(0, 2))]], 1)
    assert games.score.tolist() == [5.0]
    assert games.length.tolist() == [5]


def test_every_copy_plays_its_share_so_that_short_games_are_not_preferred():
    short, long = [Episode((1.0,))], [Episode((10.0,) + (0.0,) * 9)]
    games, _, _ = games_of([short, long, short], 8)
    # shares 3, 3, 2: without them all eight would be short
    assert sorted(games.score.tolist()) == [1.0] * 5 + [10.0] * 3
    assert sorted(games.length.tolist()) == [1.0] * 5 + [10.0] * 3


def test_every_step_is_shown_to_a_watcher():
    env = ScriptedEnv([[Episode((1.0, 2.0))], [Episode((5.0,))]])
    seen = []
    play(
        Actor(env),
        env,
        2,
        0.0,
        FACTORS,
        np.random.SeedSequence(0),
        watch=lambda observation, actions, step: seen.append((observation, actions, step)),
    )
    assert len(seen) == len(env.calls) == 2
    for (observation, actions, step), (before, given, came) in zip(seen, env.calls, strict=True):
        assert np.array_equal(observation, before)
        assert np.array_equal(actions, given)
        assert step is came


def test_fewer_games_than_copies():
    games, _, env = games_of([[Episode((float(i), 0.0))] for i in range(5)], 2)
    assert games.score.tolist() == [0.0, 1.0]
    assert len(env.calls) == 2


def test_same_seed_same_games_and_another_seed_others():
    env = ScriptedEnv([[Episode((1.0,) * 4)]] * 3)
    actions = []
    for seed in (5, 5, 6):
        env.calls.clear()
        play(Actor(env), env, 3, 0.0, FACTORS, np.random.SeedSequence(seed))
        actions.append([call[1].tolist() for call in env.calls])
    assert actions[0] == actions[1] != actions[2]


def test_seed_of_the_environment_is_its_own():
    env = ScriptedEnv([[Episode((1.0,))]])
    play(Actor(env), env, 1, 0.0, FACTORS, np.random.SeedSequence(5))
    first = np.random.SeedSequence(5).spawn(2)[0]
    assert env.seed.generate_state(4).tolist() == first.generate_state(4).tolist()


def test_a_stop_is_heard_within_a_game():
    env = ScriptedEnv([[Episode((1.0,) * 15)]])
    answers = iter([None, None, 15])
    with pytest.raises(Stopped) as stopped:
        play(Actor(env), env, 1, 0.0, FACTORS, np.random.SeedSequence(0), lambda: next(answers))
    assert stopped.value.signal == 15
    assert len(env.calls) == 2


@pytest.mark.parametrize(
    ("episodes", "n"), [(1, 1), (3, 3), (10, 10), (16, 16), (17, 9), (30, 15), (32, 16), (100, 15)]
)
def test_copies_share_the_games_about_equally(episodes, n):
    assert copies(episodes) == n
    assert copies(episodes) <= evaluate.MAX_COPIES
    assert -(-episodes // n) == -(-episodes // evaluate.MAX_COPIES)


def test_a_thousand_copies_play_a_thousand_games_at_once():
    assert copies(1000, 1000) == 1000
    assert copies(1500, 1000) == 750


def config_with(risk):
    return Config(risk=risk)


def test_summary_measures_each_kind_of_return_in_its_own_way():
    games = Games(
        score=np.array([1.0, 2.0, 3.0, 10.0]),
        discounted=np.array([4.0, 1.0, 2.0, 3.0]),
        bundle=np.array([40.0, 10.0, 20.0, 30.0]),
        learned=np.array([-4.0, -1.0, -2.0, -3.0]),
        length=np.full(4, 7.0),
    )
    found = summarise(config_with(CVaR(0.5)), games, 0)
    assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(
        {
            "score": 4.0,  # the mean, whatever the risk
            "objective": 1.5,
            "objective_bundle": 15.0,
            "objective_learner": -3.5,
        }
    )
    found = summarise(config_with(Mean()), games, 0)
    assert found["objective"].value == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("risk", "line"),
    [
        (Mean(), None),
        (CVaR(0.1), None),
        (Entropic(-0.01), None),  # spread 100: in proportion
        (Entropic(-1e-6), r"risk\.beta=-1e-06 .*practically the mean; risk\.beta=-0\.01 would"),
        (Entropic(-100.0), r"worst outcomes only; risk\.beta=-0\.01 would"),
        (MeanVariance(100.0), r"risk\.kappa=100.0 .*; risk\.kappa=0\.01 would"),
    ],
)
def test_a_rate_out_of_proportion_to_the_returns_is_told(risk, line):
    found = out_of_proportion(risk, np.array([-100.0, 100.0]))
    assert (found is None) is (line is None)
    assert line is None or re.search(line, found)
    assert out_of_proportion(risk, np.array([7.0, 7.0])) is None


@pytest.mark.parametrize("risk", [Mean(), CVaR(0.1), CVaR(0.5)])
@pytest.mark.parametrize("n", [2, 3, 10])
def test_intervals_contain_their_value_and_lie_within_the_sample(risk, n, monkeypatch):
    monkeypatch.setattr(evaluate, "RESAMPLES", 300)
    sample = np.random.default_rng(n).normal(size=n)
    found = interval(sample, lambda x: risk.oce(x)[0], 0)
    assert sample.min() - 1e-12 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= sample.max() + 1e-12
    assert found.low < found.high


def test_interval_of_a_mean_is_near_the_normal_one():
    sample = np.random.default_rng(0).normal(3.0, 2.0, 400)
    found = interval(sample, lambda x: float(np.mean(x)), 0)
    half = 1.96 * sample.std() / 20.0
    assert found.value == sample.mean()
    assert found.low == pytest.approx(found.value - half, abs=0.03)
    assert found.high == pytest.approx(found.value + half, abs=0.03)


def test_interval_depends_on_the_seed_alone(monkeypatch):
    monkeypatch.setattr(evaluate, "RESAMPLES", 50)
    sample = np.arange(9.0) ** 2
    first, second, other = (interval(sample, lambda x: float(x.mean()), s) for s in (1, 1, 2))
    assert first == second
    assert first != other


@pytest.mark.parametrize("sample", [[5.0], [2.0, 2.0, 2.0]])
def test_one_game_or_equal_games_have_an_interval_of_one_point(sample):
    def mean(x):
        return float(np.mean(x))

    assert interval(np.array(sample), mean, 0) == Estimate(sample[0], sample[0], sample[0])
