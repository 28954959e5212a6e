"""What every problem with two forms must keep: a batch of copies, and one Gymnasium environment."""

import warnings
from collections import deque
from pathlib import Path

import numpy as np
from gymnasium.utils.env_checker import check_env
from omegaconf import OmegaConf

from rigor import config
from rigor.learning import checkpoint

CONF = Path(__file__).parents[2] / "conf/env"
SEED = np.random.SeedSequence(7)
PARTS = ("observation", "reward", "terminated", "episode_end", "dummy")


def built(schema, option, **changes):
    """The schema with the values of its YAML, some of them changed."""
    config.register()  # the resolvers
    values = OmegaConf.load(CONF / f"{option}.yaml")
    defaults = values.pop("defaults")
    assert (defaults[0], defaults[-1]) == (schema.__name__, "_self_")
    node = OmegaConf.merge(OmegaConf.structured(schema), values, changes)
    return OmegaConf.to_object(node)


def actions_for(env, n_steps, seed=0):
    return np.random.default_rng(seed).integers(0, env.n_actions, (n_steps, env.n_envs))


class Playback:
    """A generator that gives one copy the numbers that a batch drew for it."""

    def __init__(self):
        self.rows = deque()

    def standard_normal(self, n):
        return np.array([self.rows.popleft()])

    random = standard_normal


class Recorder:
    """A generator that keeps what it draws."""

    def __init__(self):
        self.rng, self.drawn = np.random.default_rng(SEED), []

    def standard_normal(self, shape):
        self.drawn.append(self.rng.standard_normal(shape))
        return self.drawn[-1]

    def random(self, shape):
        self.drawn.append(self.rng.random(shape))
        return self.drawn[-1]

    def pass_on(self, draw, copies, players):
        """Draw for some copies as the batch does and queue each one's share."""
        self.drawn.clear()
        if len(copies):
            draw(len(copies), self)
        for numbers in self.drawn:
            for copy, row in zip(copies, numbers, strict=True):
                players[copy].rows.append(row)


def told(env, action, ended, encode):
    """Step a Gymnasium environment under next-step autoreset, told as a VectorEnv tells it."""
    if ended:
        return encode(env.reset()[0]), 0.0, False, False, True
    observation, reward, terminated, truncated, _ = env.step(action)
    return encode(observation), reward, terminated, terminated or truncated, False


def check_one_copy_is_the_gymnasium_form(spec, env, encode=np.asarray, n_steps=200):
    """With one generator, both forms give the same numbers, bit for bit."""
    batch = spec.make(1, False)
    env.np_random = np.random.default_rng(SEED)
    ended = False
    np.testing.assert_array_equal(batch.reset(SEED)[0], encode(env.reset()[0]))
    for action in actions_for(batch, n_steps)[:, 0]:
        step = batch.step(np.array([action]))
        for name, expected in zip(PARTS, told(env, action, ended, encode), strict=True):
            np.testing.assert_array_equal(getattr(step, name)[0], expected, err_msg=name)
        ended = step.episode_end[0]
    assert env.np_random.random() == batch._rng.random()  # no number more or less was drawn


def check_batch_is_single_copies(spec, make, encode=np.asarray, n_steps=40, n_envs=8):
    """Copies fed one by one with the batch's noise go where the batch goes."""
    batch, recorder = spec.make(n_envs, False), Recorder()
    players, singles = [Playback() for _ in range(n_envs)], [make() for _ in range(n_envs)]
    recorder.pass_on(spec.begin, np.arange(n_envs), players)
    seen = batch.reset(SEED)
    for i, (env, player) in enumerate(zip(singles, players, strict=True)):
        env.np_random = player
        np.testing.assert_array_equal(encode(env.reset()[0]), seen[i])
    ended, apart = np.zeros(n_envs, dtype=bool), False
    for action in actions_for(batch, n_steps):
        recorder.pass_on(spec.draw, np.flatnonzero(~ended), players)
        recorder.pass_on(spec.begin, np.flatnonzero(ended), players)
        step = batch.step(action)
        for i, env in enumerate(singles):
            expected = told(env, action[i], ended[i], encode)
            for name, value in zip(PARTS, expected, strict=True):
                # arrays of other lengths may round otherwise
                np.testing.assert_allclose(getattr(step, name)[i], value, rtol=1e-6, err_msg=name)
        ended = step.episode_end
        apart |= 0 < ended.sum() < n_envs
    assert not any(player.rows for player in players)
    return apart


def check_restored_continues(spec, tmp_path, n_envs=5):
    """A state that went through a checkpoint continues bit for bit, in as many copies."""
    env, other = spec.make(n_envs, False), spec.make(n_envs, False)
    assert env.state() is None
    assert other.reset(SEED).shape == (n_envs, *env.observation_shape)
    env.reset(SEED)
    actions = actions_for(env, 90)
    for start in (0, 1, 7, 40):
        for action in actions[:start]:
            env.step(action)
        seen = env._problem.observe(env._t, env._state)
        saved = checkpoint.load(checkpoint.save(tmp_path, start, env.state()))
        np.testing.assert_array_equal(other.restore(saved), seen)
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
    """Pass Gymnasium's checker without a warning; one seed, one trajectory."""
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
    for one, two in zip(*trajectories, strict=True):
        np.testing.assert_array_equal(one, two)
