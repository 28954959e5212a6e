import dataclasses
import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from omegaconf import OmegaConf

from rigor.envs.gymnasium import Gymnasium, GymnasiumCopies
from rigor.errors import UserError

SEED = np.random.SeedSequence(7)


class Script(gymnasium.Env):
    """Count to `length`; observation [episode, t], reward 10·episode + t, then terminated."""

    def __init__(self, length=3):
        self.observation_space = spaces.Box(0, 100, (2,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.length, self.episode, self.t, self.received = length, 0, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action):
        self.received.append(int(action))
        self.t += 1
        observation = np.array([self.episode, float(self.t)])
        return observation, 10 * self.episode + self.t, self.t >= self.length, False, {}


class Spaces(gymnasium.Env):
    """Return a fixed observation and record the actions."""

    def __init__(self, observation_space=None, action_space=None, observation=None):
        self.observation_space = observation_space or spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.observation = self.observation_space.sample() if observation is None else observation
        self.received = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action):
        self.received.append(action)
        return self.observation, 0.0, False, False, {}


class Hidden(Script):
    """Use a generator that reset does not seed."""

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.random.default_rng().random(), *rest


@pytest.fixture(scope="module", autouse=True)
def registered():
    ids = {"RigorScript-v0": Script, "RigorSpaces-v0": Spaces, "RigorHidden-v0": Hidden}
    for name, entry_point in ids.items():
        gymnasium.register(name, entry_point, max_episode_steps=50, disable_env_checker=True)
    gymnasium.register("RigorEndless-v0", Script, disable_env_checker=True)
    yield
    for name in [*ids, "RigorEndless-v0"]:
        del gymnasium.registry[name]


def schema(id, n_envs=1, max_steps=None, channels="auto", wrappers=(), **kwargs):
    return Gymnasium(id, n_envs, max_steps, channels, list(wrappers), kwargs)


def make(id, n_envs=1, **choices):
    return schema(id, n_envs, **choices).make(n_envs, False)


def test_every_step_of_copies_with_different_lengths():
    # Copy 0 terminates at t=3, copy 1 is truncated at t=2, copy 2 does both at once at t=2.
    copies = [
        gymnasium.make("RigorScript-v0", length=3),
        gymnasium.make("RigorScript-v0", length=9, max_episode_steps=2),
        gymnasium.make("RigorScript-v0", length=2, max_episode_steps=2),
    ]
    env = GymnasiumCopies(copies, schema("RigorScript-v0")._interface(copies[0]), "RigorScript-v0")
    np.testing.assert_array_equal(env.reset(SEED), [[1, 0], [1, 0], [1, 0]])
    # per step and copy: observation, reward, terminated, episode_end, dummy
    expected = [
        [((1, 1), 11, 0, 0, 0), ((1, 1), 11, 0, 0, 0), ((1, 1), 11, 0, 0, 0)],
        [((1, 2), 12, 0, 0, 0), ((1, 2), 12, 0, 1, 0), ((1, 2), 12, 1, 1, 0)],
        [((1, 3), 13, 1, 1, 0), ((2, 0), 0, 0, 0, 1), ((2, 0), 0, 0, 0, 1)],
        [((2, 0), 0, 0, 0, 1), ((2, 1), 21, 0, 0, 0), ((2, 1), 21, 0, 0, 0)],
        [((2, 1), 21, 0, 0, 0), ((2, 2), 22, 0, 1, 0), ((2, 2), 22, 1, 1, 0)],
        [((2, 2), 22, 0, 0, 0), ((3, 0), 0, 0, 0, 1), ((3, 0), 0, 0, 0, 1)],
        [((2, 3), 23, 1, 1, 0), ((3, 1), 31, 0, 0, 0), ((3, 1), 31, 0, 0, 0)],
        [((3, 0), 0, 0, 0, 1), ((3, 2), 32, 0, 1, 0), ((3, 2), 32, 1, 1, 0)],
    ]
    for number, rows in enumerate(expected):
        step = env.step(np.array([number % 2, 1, 0]))
        parts = (step.observation, step.reward, step.terminated, step.episode_end, step.dummy)
        for part, column in zip(parts, zip(*rows, strict=True), strict=True):
            np.testing.assert_array_equal(part, column, err_msg=f"step {number}")
        assert step.reward.dtype == np.float64
        assert {part.dtype for part in parts[2:]} == {np.dtype(bool)}
    # The copy does not get the action of a dummy step (steps 3 and 7 of copy 0).
    assert copies[0].unwrapped.received == [0, 1, 0, 0, 1, 0]


def test_a_returned_observation_is_not_overwritten():
    env = make("RigorScript-v0")
    first = env.reset(SEED)
    second = env.step(np.array([0])).observation
    env.step(np.array([0]))
    np.testing.assert_array_equal([*first, *second], [[1, 0], [1, 1]])


def test_facts_of_cartpole():
    env = make("CartPole-v1", 3)
    assert (env.n_envs, env.n_actions) == (3, 2)
    assert (env.observation_shape, env.observation_dtype) == ((4,), np.dtype(np.float32))
    assert (env.max_time, env.time_scale, env.frame_stack) == (500, 500.0, 1)
    np.testing.assert_array_equal(env.learner_reward(np.array([-3.0, 0.5])), [-3.0, 0.5])
    assert env.reset(SEED).dtype == np.float32


def test_the_same_seed_gives_the_same_episodes_and_copies_differ():
    env, other, third = (make("CartPole-v1", 2) for _ in range(3))
    first = env.reset(SEED)
    np.testing.assert_array_equal(first, other.reset(SEED))
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, third.reset(np.random.SeedSequence(8)))
    actions = np.random.default_rng(0).integers(0, 2, (200, 2))
    for action in actions:
        a, b = env.step(action), other.step(action)
        np.testing.assert_array_equal(a.observation, b.observation)
        np.testing.assert_array_equal(a.episode_end, b.episode_end)


def test_is_gymnasium_stepped_by_hand():
    env = make("CartPole-v1")
    ours = env.reset(SEED)[0]
    peer = gymnasium.make("CartPole-v1")
    theirs, _ = peer.reset(seed=int(SEED.generate_state(1)[0] >> 1))
    ended = False
    for action in np.random.default_rng(1).integers(0, 2, 200):
        np.testing.assert_array_equal(ours, theirs)
        step = env.step(np.array([action]))
        assert step.dummy[0] == ended
        if ended:
            (theirs, _), ended = peer.reset(), False
        else:
            theirs, reward, terminated, truncated, _ = peer.step(int(action))
            ended = terminated or truncated
            assert (step.reward[0], step.terminated[0]) == (reward, terminated)
        assert step.episode_end[0] == ended
        ours = step.observation[0]


def test_max_steps_truncates():
    env = make("CartPole-v1", max_steps=3)
    assert (env.max_time, env.time_scale) == (3, 3.0)
    env.reset(SEED)
    steps = [env.step(np.array([i % 2])) for i in range(5)]
    assert [bool(step.episode_end[0]) for step in steps] == [False, False, True, False, False]
    assert [bool(step.dummy[0]) for step in steps] == [False, False, False, True, False]
    assert not any(step.terminated[0] for step in steps)


@pytest.mark.parametrize("n_steps", [0, 1, 37, 200])
def test_restored_cartpole_continues_bit_for_bit(n_steps):
    actions = np.random.default_rng(2).integers(0, 2, (n_steps + 500, 3))
    env, other = make("CartPole-v1", 3), make("CartPole-v1", 3)
    env.reset(SEED)
    for action in actions[:n_steps]:
        env.step(action)
    check_continues(env, other, actions[n_steps:])


def test_restored_cartpole_continues_while_a_copy_waits_for_its_reset():
    actions = np.random.default_rng(3).integers(0, 2, (1000, 3))
    env, other = make("CartPole-v1", 3), make("CartPole-v1", 3)
    env.reset(SEED)
    n_steps = 0
    for action in actions:
        n_steps += 1
        if env.step(action).episode_end.any():
            break
    assert sum(env.state()["ended"]) == 1
    check_continues(env, other, actions[n_steps : n_steps + 500])


def check_continues(env, other, actions):
    """Restore `other` from the state of `env`, through JSON, and step both."""
    state = env.state()
    observation = state.pop("observation")
    state = json.loads(json.dumps(state)) | {"observation": observation}
    other.reset(np.random.SeedSequence(99))
    np.testing.assert_array_equal(other.restore(state), observation)
    for action in actions:
        a, b = env.step(action), other.step(action)
        for name in ("observation", "reward", "terminated", "episode_end", "dummy"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert json.dumps(env.state()["starts"]) == json.dumps(other.state()["starts"])


def test_restores_into_copies_never_reset():
    env, other = make("CartPole-v1", 2), make("CartPole-v1", 2)
    env.reset(SEED)
    env.step(np.array([0, 1]))
    np.testing.assert_array_equal(other.restore(env.state()), env.state()["observation"])


def test_state_is_a_copy():
    env = make("CartPole-v1", 2)
    env.reset(SEED)
    state = env.state()
    env.step(np.array([0, 1]))
    assert state["actions"] == [[], []]
    assert not np.array_equal(state["observation"], env.state()["observation"])


def test_an_environment_with_hidden_state_is_not_restored():
    env, other = make("RigorHidden-v0"), make("RigorHidden-v0")
    env.reset(SEED)
    env.step(np.array([0]))
    assert other.restore(env.state()) is None
    # After a reset it works again.
    other.reset(SEED)
    assert not other.step(np.array([0])).dummy[0]


def test_a_state_of_another_environment_is_not_restored():
    env, shorter = make("RigorScript-v0", length=5), make("RigorScript-v0", length=2)
    env.reset(SEED)
    for _ in range(4):
        env.step(np.array([0]))
    assert shorter.restore(env.state()) is None
    assert shorter._copies[0].unwrapped.received == [0, 0]  # not stepped past its end
    assert make("RigorScript-v0", 2, length=5).restore(env.state()) is None


def test_every_part_of_a_state_is_checked():
    env = make("CartPole-v1")
    env.reset(SEED)
    env.step(np.array([0]))
    other = make("CartPole-v1")
    assert other.restore(env.state()) is not None
    generator = np.random.default_rng(0)
    changes = {
        "generators": [generator.bit_generator.state],
        "ended": [True],
        "actions": [[1]],
        "starts": [generator.bit_generator.state],
        "observation": np.nextafter(env.state()["observation"], 9),
    }
    for key, value in changes.items():
        assert other.restore(env.state() | {key: value}) is None, key
    mersenne = np.random.MT19937(0).state
    assert other.restore(env.state() | {"starts": [mersenne]}) is None


def test_without_a_numpy_generator_there_is_no_state():
    env = make("RigorSpaces-v0")
    env.reset(SEED)
    assert env.state() is not None
    env._copies[0].unwrapped._np_random = np.random.RandomState(0)
    assert env.state() is None


def test_an_own_observation_is_encoded_once():
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 9, (1,)))
    own = {"a": 1, "b": np.float32([7])}
    env = make("RigorSpaces-v0", observation_space=space, observation=own)
    np.testing.assert_array_equal(env.seen(own), [0, 1, 7])
    for other in (env.seen(own), env.reset(SEED), [0, 1, 7], None):
        assert env.seen(other) is other
    # an image of the agent's shape could be either, and is taken for the agent's
    picture = np.full((1, 8, 9), 5, np.float32)
    env = make("RigorSpaces-v0", observation_space=spaces.Box(0, 10, (1, 8, 9)), channels="first")
    assert env.seen(picture) is picture


def test_actions_that_do_not_start_at_zero():
    env = make("RigorSpaces-v0", action_space=spaces.Discrete(3, start=5))
    env.reset(SEED)
    for action in range(3):
        env.step(np.array([action]))
    assert env.n_actions == 3
    assert env._copies[0].unwrapped.received == [5, 6, 7]
    with pytest.raises(ValueError, match=r"0\.\.\.2"):
        env.step(np.array([3]))


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("CartPol-v1", r"env\.id=CartPol-v1: .* did you mean CartPole-v1"),
        ("CartPole-v7", r"env\.id=CartPole-v7: .* did you mean CartPole-v1"),
        ("Cartpool-v0", r"module of yours registers it, .*: env\.id=module:Cartpool-v0"),
        ("no_such_module:CartPole-v1", "No module named 'no_such_module'"),
        ("qqqq", r"name that module first: env\.id=module:qqqq"),
        ("MiniGrid-Empty-5x5-v0", r"env\.id=minigrid:MiniGrid-Empty-5x5-v0"),
        ("ALE/Pong-v5", r"use env=atari/pong, .* env\.id=ale_py:ALE/Pong-v5 insists"),
        ("UpNDownNoFrameskip-v4", r"use env=atari/up_n_down"),
        ("MinAtar/SpaceInvaders-v1", r"use env=minatar/space_invaders, .* own settings$"),
    ],
)
def test_an_unknown_id_names_the_nearest(id, message):
    with pytest.raises(UserError, match=message):
        make(id)


def test_unknown_arguments_of_the_environment():
    with pytest.raises(UserError, match=r"env\.kwargs=\{'gravity': 1\}: CartPole-v1"):
        make("CartPole-v1", gravity=1)


def test_an_endless_environment_needs_a_limit():
    with pytest.raises(UserError, match=r"RigorEndless-v0: it has no limit .* env\.max_steps=1000"):
        make("RigorEndless-v0")
    assert make("RigorEndless-v0", max_steps=1000).max_time == 1000


@pytest.mark.parametrize("key", ["num_envs", "max_steps"])
def test_schema_checks_ranges(key):
    values = dataclasses.asdict(schema("CartPole-v1"))
    config = OmegaConf.structured(Gymnasium)
    assert isinstance(OmegaConf.to_object(OmegaConf.merge(config, values)), Gymnasium)
    with pytest.raises(ValueError, match=rf"env\.{key}=0"):
        OmegaConf.to_object(OmegaConf.merge(config, values | {key: 0}))


def test_frames_show_the_episode_that_is_played():
    env = schema("CartPole-v1").video_env()
    plain = make("CartPole-v1")
    seed = np.random.SeedSequence(4)
    assert np.array_equal(env.reset(seed), plain.reset(seed))
    first = env.frame()
    assert (first.shape, first.dtype) == ((400, 600, 3), np.uint8)
    for action in (0, 0, 0, 1):
        actions = np.array([action])
        assert np.array_equal(env.step(actions).observation, plain.step(actions).observation)
    assert not np.array_equal(env.frame(), first)
    assert (env.action_names, env.frames_per_second) == (["0", "1"], 50.0)
    env.close()


def test_an_environment_without_frames_is_refused():
    with pytest.raises(UserError, match="RigorScript-v0: cannot draw itself; leave --video out"):
        schema("RigorScript-v0").video_env().frame()
