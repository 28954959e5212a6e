import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rigor.envs.gymnasium import Gymnasium
from rigor.errors import UserError

SEED = np.random.SeedSequence(7)


class Awkward(gymnasium.Env):
    """Has actions, pictures and a length with which no agent of rigor can begin."""

    action_space = spaces.Box(-1, 1, (1,))
    observation_space = spaces.Box(0, 255, (84, 84, 84), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


class Halves(gymnasium.ObservationWrapper):
    """A wrapper that sees a half of a vector."""

    def __init__(self, env, begin=0):
        super().__init__(env)
        self.part = slice(begin, begin + env.observation_space.shape[0] // 2)
        space = env.observation_space
        self.observation_space = spaces.Box(space.low[self.part], space.high[self.part])

    def observation(self, observation):
        return observation[self.part]


class TwoSteps(gymnasium.Wrapper):
    """A wrapper that takes every action twice."""

    def step(self, action):
        self.env.step(action)
        return self.env.step(action)


class ThreeFrames(gymnasium.Wrapper):
    """A wrapper that says, as AtariPreprocessing does, how many frames a step has."""

    frame_skip: int

    def __init__(self, env):
        super().__init__(env)
        self.frame_skip = 3


def not_a_wrapper(env):
    return 3


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("RigorAwkward-v0", Awkward, disable_env_checker=True)
    yield
    del gymnasium.registry["RigorAwkward-v0"]


def make(id, max_steps=None, wrappers=(), **kwargs):
    return Gymnasium(id, 1, max_steps, "auto", list(wrappers), kwargs).make(1, False)


def test_all_that_stands_in_the_way_is_said_at_once():
    with pytest.raises(UserError) as refused:
        make("RigorAwkward-v0")
    message = str(refused.value)
    assert message.startswith("env.id=RigorAwkward-v0: its actions are Box")
    for part in ("; and its observations are images of shape (84, 84, 84)", "env.max_steps=1000"):
        assert part in message
    assert "\n" not in message


def test_a_refusal_of_images_names_their_network():
    id = "ale_py:ALE/Pong-v5"
    with pytest.raises(UserError, match=r"no limit .* images of 210 x 160; add network=nature_cnn"):
        make(id)


def test_who_insists_gets_pong_from_gymnasium_and_frames_are_its_own():
    env = make("ale_py:ALE/Pong-v5", max_steps=100)
    assert (env.observation_shape, env.frames_per_step) == ((3, 210, 160), 4)
    assert env.reset(SEED).dtype == np.uint8
    env = make("ale_py:PongNoFrameskip-v4", max_steps=100, wrappers=[ThreeFrames])
    assert (env.n_actions, env.frames_per_step) == (6, 3)
    assert make("CartPole-v1").frames_per_step == 1


@pytest.mark.parametrize("how", ["test_gymnasium_make.Halves", "test_gymnasium_make:Halves"])
def test_a_wrapper_of_the_user(how):
    whole, half = make("CartPole-v1"), make("CartPole-v1", wrappers=[how])
    assert half.observation_shape == (2,)
    np.testing.assert_array_equal(half.reset(SEED)[0], whole.reset(SEED)[0][:2])


def test_wrappers_stand_in_their_order_and_take_arguments():
    last = {"wrapper": "test_gymnasium_make.Halves", "begin": 1}
    env = make("CartPole-v1", wrappers=["test_gymnasium_make.Halves", last])
    whole = make("CartPole-v1").reset(SEED)
    np.testing.assert_array_equal(env.reset(SEED), whole[:, 1:2])


def test_a_limit_counts_the_steps_of_the_agent():
    env = make("CartPole-v1", max_steps=3, wrappers=["test_gymnasium_make.TwoSteps"])
    assert env.max_time == 3
    env.reset(SEED)
    ends = [env.step(np.array([i % 2])) for i in range(3)]
    assert [bool(step.episode_end[0]) for step in ends] == [False, False, True]
    limit = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=7)
    assert make("Blackjack-v1", wrappers=[limit]).max_time == 7  # a limit of the user's own


def test_copies_in_wrappers_are_restored():
    env, other = (make("CartPole-v1", wrappers=["test_gymnasium_make.Halves"]) for _ in range(2))
    env.reset(SEED)
    env.step(np.array([1]))
    np.testing.assert_array_equal(other.restore(env.state()), env.state()["observation"])


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("no_such_module.Wrapper", r"env\.wrappers=\[no_such_module\.Wrapper\]: must be module"),
        ("gymnasium.wrappers.NoSuch", "must be module.Class that can be imported"),
        ("Halves", "must be module.Class"),
        ("test_gymnasium_make.not_a_wrapper", "returns int, and not a gymnasium.Env"),
        ("gymnasium.wrappers.GrayscaleObservation", "does not go around CartPole-v1"),
        (functools.partial(Halves, start=1), "does not go around CartPole-v1.*start"),
        (3, "must be module.Class, or {wrapper: module.Class"),
        ({"begin": 1}, "must be module.Class, or {wrapper: module.Class"),
        ({"wrapper": "test_gymnasium_make.Halves", "start": 1}, "does not go around.*start"),
    ],
)
def test_a_wrapper_that_does_not_work_is_named(wrapper, message):
    with pytest.raises(UserError, match=message):
        make("CartPole-v1", wrappers=[wrapper])


def test_a_value_that_the_environment_refuses_is_named():
    with pytest.raises(UserError, match=r"env\.kwargs=\{'map_name': '9x9'\}: FrozenLake-v1"):
        make("FrozenLake-v1", map_name="9x9")
