import numpy as np
import pytest
from gymnasium import spaces

from rigor.envs.gymnasium_spaces import actions_of, encoding_of

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (8, 9, 3), dtype=np.uint8)
TALL = RNG.integers(0, 2, (4, 4, 5)).astype(bool)
BOARD = RNG.integers(0, 2, (10, 10, 4)).astype(bool)


def picture(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def board(kind, *shape):
    return spaces.Box(0, 1, shape, kind)


OBSERVATIONS = {
    "a number": (spaces.Discrete(4, start=-1), 1, np.array([0, 0, 1, 0], np.float32)),
    "a vector": (spaces.Box(-9, 9, (2,), np.float64), np.array([0.1, 2]), np.float32([0.1, 2])),
    "bytes in a row": (spaces.Box(0, 9, (2,), np.uint8), np.uint8([3, 4]), np.float32([3, 4])),
    "no dimension": (spaces.Box(0, 1, (), np.float32), np.float32(0.5), np.float32([0.5])),
    "bits": (spaces.MultiBinary(3), np.int8([1, 0, 1]), np.float32([1, 0, 1])),
    "numbers": (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), np.float32([0, 1, 1, 0, 0])),
    "a tuple": (
        spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1, 2)))),
        (1, np.float32([[0.5, -1]])),
        np.float32([0, 1, 0.5, -1]),
    ),
    "a dict in a dict": (
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict(c=spaces.Box(0, 9, (1,)))),
        {"a": 0, "b": {"c": np.float32([7])}},
        np.float32([1, 0, 7]),
    ),
    "grey": (picture(8, 9), PICTURE[:, :, 0], PICTURE[None, :, :, 0]),
    "colours last": (picture(8, 9, 3), PICTURE, PICTURE.transpose(2, 0, 1)),
    "colours first": (picture(3, 8, 9), PICTURE.reshape(3, 8, 9), PICTURE.reshape(3, 8, 9)),
    "planes last": (board(bool, 10, 10, 4), BOARD, BOARD.transpose(2, 0, 1)),
    "planes first": (board(bool, 4, 10, 10), BOARD.transpose(2, 0, 1), BOARD.transpose(2, 0, 1)),
    "many planes last": (board(bool, 4, 4, 5), TALL, TALL.transpose(2, 0, 1)),
    "planes as numbers": (board("i1", 10, 10, 4), BOARD.astype("i1"), BOARD.transpose(2, 0, 1)),
    "a board": (
        spaces.Box(-1, 1, (2, 2), np.int8),
        np.int8([[-1, 0], [1, 1]]),
        np.float32([[[0, 0.5], [1, 1]]]),
    ),
    "bytes up to 10": (
        spaces.Box(0, 10, (1, 2), np.uint8),
        np.uint8([[5, 10]]),
        np.float32([[[0.5, 1]]]),
    ),
    "no bounds": (
        spaces.Box(-np.inf, np.inf, (1, 2)),
        np.float32([[5, -7]]),
        np.float32([[[5, -7]]]),
    ),
}


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_observations_are_encoded_for_the_networks(kind):
    space, observation, expected = OBSERVATIONS[kind]
    encoding = encoding_of(space, "auto")
    found = encoding.encode(observation)
    assert (encoding.shape, encoding.dtype) == (expected.shape, expected.dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(10, 10, 10), (3, 9, 3), (5, 8, 20), (9, 3, 8), (4, 4, 4)])
def test_channels_that_cannot_be_told_are_asked_for(shape):
    with pytest.raises(ValueError, match=r"images of shape .* set env\.channels=last or env\.chan"):
        encoding_of(picture(*shape), "auto")
    first, middle, last = shape
    assert encoding_of(picture(*shape), "last").shape == (last, first, middle)
    assert encoding_of(picture(*shape), "first").shape == shape


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (picture(2, 8, 8, 3), "of 4 dimensions; make images of them"),
        (spaces.Box(0, 1, (0,)), "which hold no number"),
        (picture(0, 8, 3), "which hold no number"),
        (spaces.Sequence(spaces.Discrete(2)), "cannot flatten to an array"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "cannot flatten to an array"),
    ],
)
def test_other_observations_are_refused(space, reason):
    with pytest.raises(ValueError, match=reason):
        encoding_of(space, "auto")


def test_actions_are_numbered():
    assert actions_of(spaces.Discrete(3, start=5)) == [5, 6, 7]
    pairs = [action.tolist() for action in actions_of(spaces.MultiDiscrete([2, 3], start=[0, 4]))]
    assert pairs == [[0, 4], [0, 5], [0, 6], [1, 4], [1, 5], [1, 6]]
    bits = [action.tolist() for action in actions_of(spaces.MultiBinary(2))]
    assert bits == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 2, 5]),
        spaces.MultiDiscrete(np.array([[2, 3], [1, 2]])),
        spaces.MultiBinary([2, 3]),
        spaces.Discrete(4, start=-1),
    ],
)
def test_numbered_actions_are_all_of_the_space_and_each_once(space):
    actions = actions_of(space)
    assert all(space.contains(action) for action in actions)
    assert len({np.asarray(action).tobytes() for action in actions}) == len(actions)


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Box(-1, 1, (1,)), "its actions are Box.* supported are Discrete, MultiDiscrete"),
        (spaces.MultiDiscrete([100] * 12), "combinations, of which at most 1,000"),
        (spaces.MultiBinary(10), "1,024 combinations"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), "its actions are Tuple"),
    ],
)
def test_other_actions_are_refused(space, reason):
    with pytest.raises(ValueError, match=reason):
        actions_of(space)
