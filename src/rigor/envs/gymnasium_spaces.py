"""Gymnasium's spaces as the networks need them: one number for an action, arrays to observe.

Each function raises ValueError with a reason, of which the caller makes one message.
"""

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gymnasium import Space
    from gymnasium.spaces import Box

MOST_ACTIONS = 1000  # combinations of a MultiDiscrete or MultiBinary space
CHANNELS = ("auto", "first", "last")
_COLOURS = 4  # most channels of a picture; more are planes of a kind that no rule recognises


@dataclass(frozen=True)
class Encoding:
    """How observations of a space become arrays.

    shape, dtype: of an encoded observation; images have their channels first.
    encode: from an observation of the environment to such an array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    encode: Callable[[Any], np.ndarray]

    @property
    def is_image(self) -> bool:
        """Whether convolutions can read it."""
        return len(self.shape) == 3


def actions_of(space: "Space[Any]") -> list[Any]:
    """Return the environment's actions; those of several parts are all their combinations."""
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

    if isinstance(space, Discrete):
        return list(range(int(space.start), int(space.start + space.n)))
    if not isinstance(space, MultiDiscrete | MultiBinary):
        raise ValueError(
            f"its actions are {space}; supported are Discrete, MultiDiscrete and MultiBinary"
        )
    n_values = space.nvec if isinstance(space, MultiDiscrete) else np.full(space.shape, 2)
    start = space.start if isinstance(space, MultiDiscrete) else np.zeros(space.shape)
    n = int(np.prod(n_values.astype(float)))
    if n > MOST_ACTIONS:
        raise ValueError(
            f"its actions are {space}, {n:,} combinations, of which at most {MOST_ACTIONS:,} are "
            "supported; reduce them by a wrapper of your own in env.wrappers"
        )
    combinations = itertools.product(*map(range, n_values.ravel().tolist()))
    return [
        (np.array(each).reshape(space.shape) + start).astype(space.dtype) for each in combinations
    ]


def encoding_of(space: "Space[Any]", channels: str) -> Encoding:
    """Return how observations become arrays.

    An image is a Box of two or three dimensions. Any other space becomes a vector as by Gymnasium's
    FlattenObservation, in which a Discrete part is one-hot.

    Args:
      space: of the observations.
      channels: which axis of an image holds the channels; `auto` recognises it.
    """
    from gymnasium.spaces import Box

    if isinstance(space, Box) and 0 in space.shape:
        raise ValueError(f"its observations are {space}, which hold no number")
    if isinstance(space, Box) and len(space.shape) in (2, 3):
        return _image(space, channels)
    if isinstance(space, Box) and len(space.shape) > 3:
        raise ValueError(
            f"its observations are {space}, of {len(space.shape)} dimensions; make images of them, "
            "as by env.wrappers=[gymnasium.wrappers.GrayscaleObservation]"
        )
    if isinstance(space, Box) and len(space.shape) == 1:
        float32 = np.dtype(np.float32)
        return Encoding(space.shape, float32, lambda vector: np.asarray(vector, dtype=np.float32))
    return _vector(space)


def _vector(space: "Space[Any]") -> Encoding:
    from gymnasium.spaces import Box, flatten, flatten_space

    flat: Any = None
    with contextlib.suppress(NotImplementedError):  # of a space that is not Gymnasium's own
        flat = flatten_space(space)
    if not isinstance(flat, Box):
        raise ValueError(
            f"its observations are {space}, which Gymnasium cannot flatten to an array; leave the "
            "part out by a wrapper, as in env.wrappers=[module.Wrapper]"
        )
    return Encoding(
        flat.shape,
        np.dtype(np.float32),
        lambda observation: np.asarray(flatten(space, observation), dtype=np.float32),
    )


def _image(space: "Box", channels: str) -> Encoding:
    """Return an image's encoding: raw bytes, bool planes, or float32 scaled by the bounds."""
    shape, last = space.shape, False
    if len(shape) == 3:
        last = _channels_are_last(shape, channels)
    order = (2, 0, 1) if last else (0, 1, 2)
    whole = shape if len(shape) == 3 else (1, *shape)
    encoded = tuple(whole[axis] for axis in order)
    kind, scale = _pixels(space)

    def encode(image: Any) -> np.ndarray:
        return scale(np.asarray(image)).reshape(whole).transpose(order)

    return Encoding(encoded, kind, encode)


def _pixels(space: "Box") -> tuple[np.dtype[Any], Callable[[np.ndarray], np.ndarray]]:
    """Return the dtype of an image's values and how they are scaled.

    The network scales bytes from 0 to 255 itself, and reads bool planes as 0 and 1.
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    whole = np.issubdtype(space.dtype, np.integer) or space.dtype == np.bool_
    if whole and (low == 0).all() and (high == 1).all():
        return np.dtype(np.bool_), lambda image: image.astype(np.bool_)
    if space.dtype == np.uint8 and (low == 0).all() and (high == 255).all():
        return np.dtype(np.uint8), lambda image: image.astype(np.uint8, copy=False)
    float32 = np.dtype(np.float32)
    if not np.isfinite([low, high]).all():
        return float32, lambda image: image.astype(np.float32)
    span = np.where(high > low, high - low, 1.0)
    return float32, lambda image: ((image - low) / span).astype(np.float32)


def _channels_are_last(shape: tuple[int, ...], channels: str) -> bool:
    """Tell whether the channels of an image are its last axis, from its sides.

    Two equal sides are height and width. Of three sides that differ, the first or the last one
    holds the channels if it is the shortest and at most 4, as of colours and of stacked frames.
    """
    if channels != "auto":
        return channels == "last"
    first, middle, last = shape
    if first == middle != last:
        return True
    if first != middle == last:
        return False
    if len(set(shape)) == 3 and min(first, last) <= min(_COLOURS, middle - 1):
        return last < first
    raise ValueError(
        f"its observations are images of shape {shape}, in which the channels cannot be told from "
        "height and width; set env.channels=last or env.channels=first"
    )
