import json
import sys

import gymnasium
import numpy as np
import pytest
from command_line import composed

from rigor.envs.lander import ID, Lander
from rigor.errors import UserError

pytest.importorskip("Box2D", reason="no wheel of box2d for this Python: the extra box2d")
SEED = np.random.SeedSequence(7)
VALUES = {"max_steps": 500, "wind_power": 15.0, "turbulence_power": 1.5, "num_envs": 1}


def make(n_envs=1, **values):
    return Lander(**VALUES | values).make(n_envs, False)


def rollout(env, actions, seed=SEED):
    """Return observations [n + 1, E, 8] and rewards [n, E] under actions [n, E]."""
    observations, rewards = [env.reset(seed)], []
    for action in actions:
        step = env.step(action)
        observations.append(step.observation)
        rewards.append(step.reward)
    return np.stack(observations), np.stack(rewards)


def actions(n, n_envs=1, seed=0):
    return np.random.default_rng(seed).integers(0, 4, (n, n_envs))


def test_it_draws_the_episode_that_is_played():
    env, plain = Lander(**VALUES).video_env(), make()
    assert np.array_equal(env.reset(SEED), plain.reset(SEED))
    first = env.frame()
    assert (first.shape, first.dtype) == ((400, 600, 3), np.uint8)
    for action in actions(20):
        assert np.array_equal(env.step(action).observation, plain.step(action).observation)
    assert not np.array_equal(env.frame(), first)
    env.close()


def test_facts():
    env = make(3)
    assert (env.n_envs, env.n_actions) == (3, 4)
    # eight numbers, without t
    assert (env.observation_shape, env.observation_dtype) == ((8,), np.dtype(np.float32))
    assert (env.max_time, env.time_scale) == (500, 500.0)


def test_the_wind_is_gymnasiums_default():
    peer = gymnasium.make(ID).unwrapped
    env = composed("env=windy_lunar_lander").env
    assert (env.wind_power, env.turbulence_power) == (peer.wind_power, peer.turbulence_power)
    assert env.max_steps == 500


def test_is_gymnasium_stepped_by_hand():
    env, peer = make(), gymnasium.make(ID, enable_wind=True, max_episode_steps=500)
    chosen = actions(300)
    observations, rewards = rollout(env, chosen)
    theirs, _ = peer.reset(seed=int(SEED.generate_state(1)[0] >> 1))
    ended = False
    for i, action in enumerate(chosen[:, 0]):
        np.testing.assert_array_equal(observations[i, 0], theirs)
        if ended:
            (theirs, _), ended = peer.reset(), False
            continue
        theirs, reward, terminated, truncated, _ = peer.step(int(action))
        ended = terminated or truncated
        assert rewards[i, 0] == reward


def test_the_same_seed_gives_the_same_episodes_and_copies_differ():
    chosen = actions(1000, 2)
    first, first_rewards = rollout(make(2), chosen)
    # Neither global generators nor earlier episodes of a copy matter.
    other = make(2)
    rollout(other, chosen[:150], np.random.SeedSequence(8))
    np.random.seed(3)  # noqa: NPY002  the global state, which must not matter
    again, again_rewards = rollout(other, chosen)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first_rewards, again_rewards)
    assert not np.array_equal(first[0, 0], first[0, 1])
    of_seed_8, _ = rollout(make(2), chosen[:1], np.random.SeedSequence(8))
    assert not np.array_equal(first[0], of_seed_8[0])


def test_the_wind_differs_between_episodes():
    # Without engines only the wind changes the sideways speed, except in the first step, in which
    # the legs unfold. The lander is in the air for forty steps.
    still, windy = make(wind_power=0.0, turbulence_power=0.0), make()
    assert np.abs(pushes(still, still.reset(SEED))).max() < 5e-5
    first = pushes(windy, windy.reset(SEED))
    while not windy.step(np.array([0])).episode_end[0]:
        pass
    second = pushes(windy, windy.step(np.array([0])).observation)
    assert min(np.abs(first).max(), np.abs(second).max()) > 1e-3
    assert not np.allclose(first, second, atol=1e-3)


def pushes(env, observation):
    """Return the changes of the sideways speed in steps 2 to 40 without engines."""
    observations = [observation, *(env.step(np.array([0])).observation for _ in range(40))]
    speeds = [observation[0, 2] for observation in observations]
    return np.diff(speeds)[1:]


def test_the_limit_truncates_and_a_crash_terminates():
    capped = make(max_steps=5)
    capped.reset(SEED)
    step = [capped.step(np.array([0])) for _ in range(5)][-1]
    assert (bool(step.episode_end[0]), bool(step.terminated[0])) == (True, False)
    env = make()
    env.reset(SEED)
    while not (step := env.step(np.array([0]))).episode_end[0]:
        pass
    assert step.terminated[0]
    assert step.reward[0] == -100


@pytest.mark.parametrize("n_steps", [1, 60, 400])
def test_restored_it_continues_bit_for_bit(n_steps):
    chosen = actions(n_steps + 300, 2, seed=n_steps)
    env, other = make(2), make(2)
    rollout(env, chosen[:n_steps])
    state = env.state()
    observation = state.pop("observation")
    state = json.loads(json.dumps(state)) | {"observation": observation}
    np.testing.assert_array_equal(other.restore(state), observation)
    for action in chosen[n_steps:]:
        a, b = env.step(action), other.step(action)
        for name in ("observation", "reward", "terminated", "episode_end", "dummy"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_without_box2d_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(UserError, match=r"^env=windy_lunar_lander: .* pip install box2d"):
        make()


@pytest.mark.parametrize(
    ("key", "value"),
    [("max_steps", 0), ("num_envs", 0), ("wind_power", -1.0), ("turbulence_power", float("nan"))],
)
def test_schema_checks_ranges(key, value):
    with pytest.raises(ValueError, match=rf"env\.{key}={value}: must be"):
        Lander(**VALUES | {key: value})
