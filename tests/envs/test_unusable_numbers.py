"""Rewards and observations that an environment must not give are its own fault, by name."""

import sys

import gymnasium
import numpy as np
import pytest
from command_line import TINY, choices, composed
from gymnasium.spaces import Box, Discrete

from rigor.config.config import build
from rigor.envs.tabular_files import checked
from rigor.envs.vector import Step, check_observation, check_step
from rigor.errors import RunFailed, UserError
from rigor.launch.execute import execute
from rigor.runs.directory import RunDirectory
from rigor.runs.job import job


class Faulty(gymnasium.Env):
    """Episodes of ten steps of reward 1, in which step 4 gives what the arguments say."""

    observation_space = Box(-1.0, 1.0, (2,))
    action_space = Discrete(2)

    def __init__(
        self,
        reward=1.0,
        observation=(0.0, 0.0),
        start=(0.0, 0.0),
        terminated=False,
        truncated=False,
        pair=True,
        exits=False,
    ):
        self.reward, self.observation, self.start = reward, observation, start
        self.terminated, self.truncated = terminated, truncated
        self.pair, self.exits = pair, exits

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        start = np.array(self.start, np.float32)
        return (start, {}) if self.pair else start

    def step(self, action):
        self.t += 1
        if self.t != 4:
            return np.zeros(2, np.float32), 1.0, self.t == 10, False, {}
        if self.exits:
            sys.exit(0)
        return np.array(self.observation), self.reward, self.terminated, self.truncated, {}


gymnasium.register("Faulty-v0", entry_point=Faulty, max_episode_steps=20, disable_env_checker=True)
NAME = "env.id=Faulty-v0: "


def config(**kwargs):
    one = composed("env=gymnasium", "env.id=Faulty-v0", *TINY[1:], "train.steps=30")
    one.env.kwargs = kwargs
    return one


def steps(**kwargs):
    """Play five steps; return the rewards."""
    spec = build(config(**kwargs))
    env, t = spec.env.make(1, evaluation=False), np.zeros(1, np.int64)
    check_observation(spec.env_name, t, env.reset(np.random.SeedSequence(0)))
    rewards = []
    for _ in range(5):
        step = env.step(np.zeros(1, np.int64))
        check_step(spec.env_name, t, step)
        rewards.append(float(step.reward[0]))
        t += 1
    return rewards


nan, inf = float("nan"), float("inf")
FAULTS = [
    ({"reward": nan}, "the reward of step 4 of an episode is nan; rewards must be finite"),
    ({"reward": -inf}, "the reward of step 4 of an episode is -inf"),
    ({"reward": 1e308}, "the reward of step 4 of an episode is 1e\\+308; .* 1e\\+30 at most"),
    ({"reward": [1.0, 2.0]}, r"the reward of step 4 of an episode is \[1.0, 2.0\]; it must be one"),
    ({"reward": None}, "the reward of step 4 of an episode is None; it must be one number"),
    ({"reward": 10**400}, "the reward of step 4 of an episode is 1000000.*; it must be one number"),
    ({"terminated": "False"}, "terminated of step 4 of an episode is 'False'; it must be true or"),
    ({"terminated": None}, "terminated of step 4 of an episode is None; it must be true or false"),
    (
        {"truncated": [True, False]},
        r"truncated of step 4 of an episode is \[True, False\]; it must",
    ),
    (
        {"pair": False},
        r"reset\(\) returns ndarray; it must return the pair \(observation, info\)",
    ),
    ({"observation": [0.0, nan]}, r"observation after step 4 .* is nan at index \[1\]"),
    (
        {"observation": [1e300, 0.0]},
        r"observation after step 4 .* is inf at index \[0\]; .* float32",
    ),
    ({"observation": [0.0]}, r"an observation has shape \(1,\), which is not that of its space"),
    ({"start": [nan, 0.0]}, r"the observation at the start of an episode is nan at index \[0\]"),
]


@pytest.mark.parametrize(("kwargs", "message"), FAULTS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_the_environment_the_step_and_the_value_are_named(kwargs, message):
    with pytest.raises(UserError, match=f"^{NAME}.*{message}"):
        steps(**kwargs)


def test_an_array_of_one_number_is_a_reward():
    assert steps(reward=[2.5]) == [1.0, 1.0, 1.0, 2.5, 1.0]


def test_numbers_and_arrays_of_one_are_flags():
    assert steps(terminated=1) == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert steps(truncated=[True]) == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_unsigned_images_and_the_first_observation_after_an_end_are_fine():
    no, two = np.zeros(2, bool), np.zeros(2)
    images = np.zeros((2, 3), np.uint8)
    check_step("env", np.array([3, 9]), Step(images, two, no, no, np.array([False, True])))
    fresh = Step(np.full((2, 1), nan, np.float32), two, no, no, np.array([True, True]))
    with pytest.raises(UserError, match=r"^env: the observation at the start of an episode"):
        check_step("env", np.array([3, 9]), fresh)


@pytest.mark.slow
def test_a_run_ends_with_the_fault_of_its_environment(tmp_path):
    one = config(reward=nan)
    one.out = str(tmp_path)
    with pytest.raises(UserError, match=f"^{NAME}the reward of step 4 of an episode is nan"):
        execute(job(one, choices(one)), None)


@pytest.mark.slow
def test_an_environment_that_exits_is_a_failure_and_no_success(tmp_path):
    one = config(exits=True)
    one.out = str(tmp_path)
    made = job(one, choices(one))
    with pytest.raises(RunFailed, match=r"^SystemExit: 0; the traceback is in "):
        execute(made, None)
    assert RunDirectory(made.path).state() == "failed"


@pytest.mark.parametrize("reward", [1e308, -inf, nan])
def test_rewards_of_a_table_too(reward):
    tables = {"P": np.ones((1, 2, 1)), "reward": np.array([0.0, reward]).reshape(1, 2, 1, 1)}
    with pytest.raises(ValueError, match=r"^env\.path=m\.npz: .*reward.* must be finite, of size"):
        checked(tables, "env.path=m.npz")
