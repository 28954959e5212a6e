import numpy as np
import pytest
from scripted import Episode, ScriptedEnv

from rigor.errors import Stopped
from rigor.learning.rollout import MAX_COPIES, copies_for, epsilon_greedy, play_episodes

FACTORS = 0.5 ** np.arange(20)


class Actor:
    """A player with a discount of its own that records its arguments."""

    discount = 1.0 / (1.0 + np.arange(20))
    initial_stock = -3.0

    def __init__(self, env):
        self.learner_reward, self.asked = env.learner_reward, []

    def act(self, observation, t, stock, epsilon, rng):
        self.asked.append((t.copy(), stock.copy(), epsilon))
        return rng.integers(0, 3, len(t))

    def next_stock(self, stock, t, reward):
        return stock + self.discount[t] * self.learner_reward(reward)


def episodes_of(scripts, n, clip=False):
    env = ScriptedEnv(scripts, clip=clip)
    agent = Actor(env)
    return play_episodes(agent, env, n, 0.25, FACTORS, np.random.SeedSequence(0)), agent, env


def test_sums_of_an_episode_by_hand():
    script = [Episode((4.0, 0.0, 2.0)), Episode((-8.0, 3.0), truncated=True)]
    episodes, agent, _ = episodes_of([script], 2, clip=True)
    assert episodes.score.tolist() == [6.0, -5.0]
    assert episodes.length.tolist() == [3, 2]
    # d_t = 1, 1/2, 1/4
    assert episodes.discounted.tolist() == [4.5, -6.5]
    # discount = 1, 1/2, 1/3; learner's rewards 1, 0, 1 and -1, 1
    np.testing.assert_allclose(episodes.bundle, [4 + 2 / 3, -6.5])
    np.testing.assert_allclose(episodes.learner, [1 + 1 / 3, -0.5])
    # the clock and the stock, the autoreset between the episodes included
    assert [int(t[0]) for t, _, _ in agent.asked] == [0, 1, 2, 3, 0, 1]
    stocks = [float(stock[0]) for _, stock, _ in agent.asked]
    np.testing.assert_allclose(stocks, [-3, -2, -2, -2 + 1 / 3, -3, -4])
    assert {epsilon for _, _, epsilon in agent.asked} == {0.25}


def test_a_lost_life_ends_no_episode():
    episodes, _, _ = episodes_of([[Episode((1.0,) * 5, lives_lost=(0, 2))]], 1)
    assert episodes.score.tolist() == [5.0]
    assert episodes.length.tolist() == [5]


def test_every_copy_plays_a_fixed_number_so_that_short_episodes_are_not_preferred():
    short, long = [Episode((1.0,))], [Episode((10.0,) + (0.0,) * 9)]
    episodes, _, _ = episodes_of([short, long, short], 8)
    # 3, 3 and 2 episodes a copy: otherwise all eight would be short
    assert sorted(episodes.score.tolist()) == [1.0] * 5 + [10.0] * 3
    assert sorted(episodes.length.tolist()) == [1.0] * 5 + [10.0] * 3


def test_every_step_is_shown_to_a_watcher():
    env = ScriptedEnv([[Episode((1.0, 2.0))], [Episode((5.0,))]])
    seen = []
    play_episodes(
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


def test_fewer_episodes_than_copies_for():
    episodes, _, env = episodes_of([[Episode((float(i), 0.0))] for i in range(5)], 2)
    assert episodes.score.tolist() == [0.0, 1.0]
    assert len(env.calls) == 2


def test_same_seed_same_episodes_and_another_seed_others():
    env = ScriptedEnv([[Episode((1.0,) * 4)]] * 3)
    actions = []
    for seed in (5, 5, 6):
        env.calls.clear()
        play_episodes(Actor(env), env, 3, 0.0, FACTORS, np.random.SeedSequence(seed))
        actions.append([call[1].tolist() for call in env.calls])
    assert actions[0] == actions[1] != actions[2]


def test_seed_of_the_environment_is_its_own():
    env = ScriptedEnv([[Episode((1.0,))]])
    play_episodes(Actor(env), env, 1, 0.0, FACTORS, np.random.SeedSequence(5))
    first = np.random.SeedSequence(5).spawn(2)[0]
    assert env.seed.generate_state(4).tolist() == first.generate_state(4).tolist()


def test_a_stop_is_heard_within_a_game():
    env = ScriptedEnv([[Episode((1.0,) * 15)]])
    answers = iter([None, None, 15])
    with pytest.raises(Stopped) as stopped:
        play_episodes(
            Actor(env), env, 1, 0.0, FACTORS, np.random.SeedSequence(0), lambda: next(answers)
        )
    assert stopped.value.signal == 15
    assert len(env.calls) == 2


@pytest.mark.parametrize(
    ("episodes", "n"), [(1, 1), (3, 3), (10, 10), (16, 16), (17, 9), (30, 15), (32, 16), (100, 15)]
)
def test_copies_play_about_equally_many_episodes(episodes, n):
    assert copies_for(episodes) == n
    assert copies_for(episodes) <= MAX_COPIES
    assert -(-episodes // n) == -(-episodes // MAX_COPIES)


def test_a_thousand_copies_play_a_thousand_episodes_at_once():
    assert copies_for(1000, 1000) == 1000
    assert copies_for(1500, 1000) == 750


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_random_actions_come_at_their_rate_and_draw_the_same(epsilon):
    rng = np.random.default_rng(0)
    asked = []

    def greedy():
        asked.append(1)
        return np.full(10_000, 7)

    actions = epsilon_greedy(greedy, 10_000, 3, epsilon, rng)
    assert np.mean(actions < 3) == pytest.approx(epsilon, abs=0.02)
    assert bool(asked) == (epsilon < 1)
    other = np.random.default_rng(0)
    epsilon_greedy(lambda: np.zeros(10_000, int), 10_000, 3, 0.9, other)
    assert rng.random() == other.random()
