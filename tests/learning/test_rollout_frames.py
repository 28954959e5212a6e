"""Frames stored once: the stacks read from them are those that the environment showed."""

import numpy as np
import pytest
import torch
from scripted import Episode, ScriptedEnv

from rigor.learning.frames import RolloutFrames, stack_places

CPU = torch.device("cpu")
# episodes of one to eleven steps, so that stacks begin before and within every rollout
SCRIPTS = [
    [Episode((1.0,) * 7, lives_lost=(1, 4)), Episode((5.0,)), Episode((6.0, 6.5), truncated=True)],
    [Episode((-1.0, 8.0, 9.0), truncated=True), Episode((2.0,) * 6)],
    [Episode((1.5,) * 11, truncated=True)],
]


def test_places_by_hand():
    """A ring of five rows of two copies, whose ten frames the frame of zeros follows."""
    newest, t = np.array([13, 4, 11]), np.array([9, 1, 0])  # of rows 6, 2 and 5
    places = stack_places(newest, t, np.array([2, 1, 0]), 2, 10)
    assert places.tolist() == [[9, 1, 3], [10, 2, 4], [10, 10, 1]]
    # the same stacks two steps later: two of their frames have been shown since
    later = stack_places(newest, t, np.array([[0, -1, -2]] * 3), 2, 10)
    assert later.tolist() == [[3, 5, 7], [4, 6, 8], [1, 3, 5]]
    tensors = map(torch.from_numpy, (newest, t, np.array([2, 1, 0])))
    assert stack_places(*tensors, 2, 10).tolist() == places.tolist()


@pytest.mark.parametrize("stack", [1, 2, 4])
@pytest.mark.parametrize("n_rows", [1, 3, 8])
def test_rows_and_batches_hold_what_the_environment_showed(stack, n_rows):
    env = ScriptedEnv(SCRIPTS, stack)
    frames = RolloutFrames(env, n_rows, CPU)
    observation, t = env.reset(None), np.zeros(3, np.int64)
    for _ in range(24 // n_rows):  # rollouts, each over the frames of the one before
        shown, clocks = [], []
        for row in range(n_rows):
            frames.write(row, observation)
            shown.append(observation)
            clocks.append(t)
            seen = frames.read(3 * row + torch.arange(3), torch.from_numpy(t))
            np.testing.assert_array_equal(seen.numpy(), observation)
            step = env.step(np.zeros(3, np.int64))
            observation, t = step.observation, np.where(step.dummy, 0, t + 1)
        places = np.random.default_rng(0).permutation(3 * n_rows)
        seen = frames.read(*map(torch.from_numpy, (places, np.concatenate(clocks)[places])))
        assert seen.numpy().dtype == env.observation_dtype
        np.testing.assert_array_equal(seen.numpy(), np.concatenate(shown)[places])
