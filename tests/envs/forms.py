"""Checks of a problem that exists as a batch of copies and as a Gymnasium environment."""

import warnings
from collections import deque

import numpy as np
from gymnasium.utils.env_checker import check_env

from rigor.config import defaults
from rigor.learning import checkpoint

SEED = np.random.SeedSequence(7)
PARTS = ("observation", "reward", "terminated", "episode_end", "dummy")


def built(schema, option, **changes):
    """Return the schema with the values of its YAML file, some of them changed."""
    made = defaults.option("env", option, **changes)
    assert type(made) is schema
    return made


def actions_for(env, n_steps, seed=0):
    return np.random.default_rng(seed).integers(0, env.n_actions, (n_steps, env.n_envs))


class Playback:
    """A generator that repeats the numbers that a batch sampled for one copy."""

    def __init__(self):
        self.rows = deque()

    def standard_normal(self, n):
        return np.array([self.rows.popleft()])

    random = standard_normal


class RecordingGenerator:
    """A generator that records its numbers."""

    def __init__(self):
        self.rng, self.sampled = np.random.default_rng(SEED), []

    def standard_normal(self, shape):
        self.sampled.append(self.rng.standard_normal(shape))
        return self.sampled[-1]

    def random(self, shape):
        self.sampled.append(self.rng.random(shape))
        return self.sampled[-1]

    def pass_on(self, draw, copies, players):
        """Sample for some copies as the batch does, and queue the numbers of each copy."""
        self.sampled.clear()
        if len(copies):
            draw(len(copies), self)
        for numbers in self.sampled:
            for copy, row in zip(copies, numbers, strict=True):
                players[copy].rows.append(row)


def autoreset_step(env, action, ended, encode):
    """Step a Gymnasium environment under next-step autoreset; return the parts of a `Step`."""
    if ended:
        return encode(env.reset()[0]), 0.0, False, False, True
    observation, reward, terminated, truncated, _ = env.step(action)
    return encode(observation), reward, terminated, terminated or truncated, False


def check_one_copy_is_the_gymnasium_form(spec, env, encode=np.asarray, n_steps=200):
    """Check that both forms agree bit for bit if they use the same generator."""
    batch = spec.make(1, False)
    env.np_random = np.random.default_rng(SEED)
    ended = False
    np.testing.assert_array_equal(batch.reset(SEED)[0], encode(env.reset()[0]))
    for action in actions_for(batch, n_steps)[:, 0]:
        step = batch.step(np.array([action]))
        for name, expected in zip(PARTS, autoreset_step(env, action, ended, encode), strict=True):
            np.testing.assert_array_equal(getattr(step, name)[0], expected, err_msg=name)
        ended = step.episode_end[0]
    assert env.np_random.random() == batch._rng.random()  # as many numbers were sampled


def check_batch_is_single_copies(spec, make, encode=np.asarray, n_steps=40, n_envs=8):
    """Check that single copies with the noise of a batch agree with the batch."""
    batch, recorder = spec.make(n_envs, False), RecordingGenerator()
    players, singles = [Playback() for _ in range(n_envs)], [make() for _ in range(n_envs)]
    recorder.pass_on(spec.begin, np.arange(n_envs), players)
    seen = batch.reset(SEED)
    for i, (env, player) in enumerate(zip(singles, players, strict=True)):
        env.np_random = player
        np.testing.assert_array_equal(encode(env.reset()[0]), seen[i])
    ended, out_of_phase = np.zeros(n_envs, dtype=bool), False
    for action in actions_for(batch, n_steps):
        recorder.pass_on(spec.draw, np.flatnonzero(~ended), players)
        recorder.pass_on(spec.begin, np.flatnonzero(ended), players)
        step = batch.step(action)
        for i, env in enumerate(singles):
            expected = autoreset_step(env, action[i], ended[i], encode)
            for name, value in zip(PARTS, expected, strict=True):
                # arrays of another length may round differently
                np.testing.assert_allclose(getattr(step, name)[i], value, rtol=1e-6, err_msg=name)
        ended = step.episode_end
        out_of_phase |= 0 < ended.sum() < n_envs
    assert not any(player.rows for player in players)
    return out_of_phase


def check_restored_continues(spec, tmp_path, n_envs=5):
    """Check that copies continue bit for bit from a state saved in a checkpoint."""
    env, other = spec.make(n_envs, False), spec.make(n_envs, False)
    assert env.state() is None
    assert other.reset(SEED).shape == (n_envs, *env.observation_shape)
    env.reset(SEED)
    actions = actions_for(env, 90)
    for start in (0, 1, 7, 40):
        for action in actions[:start]:
            env.step(action)
        observation = env._dynamics.observe(env._t, env._state)
        saved = checkpoint.load(checkpoint.save(tmp_path, start, env.state()))
        np.testing.assert_array_equal(other.restore(saved), observation)
        for action in actions[40:]:
            ours, theirs = env.step(action), other.step(action)
            for name in PARTS:
                a, b = getattr(ours, name), getattr(theirs, name)
                assert (a.tobytes(), a.dtype) == (b.tobytes(), b.dtype), name
    assert spec.make(n_envs + 1, False).restore(env.state()) is None
    mersenne = np.random.MT19937(0).state
    assert other.restore(env.state() | {"generator": mersenne}) is None
    fresh = spec.make(n_envs, False)
    assert fresh.restore(env.state()) is not None  # needs no reset before
    state, action = env.state(), actions[0]
    env.step(action)
    np.testing.assert_array_equal(state["t"], fresh.state()["t"])  # a state is a copy


def check_is_gymnasium(env):
    """Check that Gymnasium's checker gives no warning, and that a seed fixes the trajectory."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)  # there is nothing to render
    trajectories = []
    for _ in range(2):
        env.action_space.seed(3)
        rows = [env.reset(seed=5)[0]]
        while True:
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            rows += [observation, reward]
            assert observation in env.observation_space
            if terminated or truncated:
                break
        trajectories.append(rows)
    for first, second in zip(*trajectories, strict=True):
        np.testing.assert_array_equal(first, second)
