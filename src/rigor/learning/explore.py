"""Exploration: a random action now and then."""

from collections.abc import Callable

import numpy as np


def epsilon_greedy(
    greedy: Callable[[], np.ndarray],
    n: int,
    n_actions: int,
    epsilon: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return n actions, each uniformly random with chance epsilon, else greedy; int64 [n].

    Args:
      greedy: returns the greedy actions, int64 [n]; not called where all are random.
      n: of the actions. n_actions: to choose from. rng: draws the same whatever comes of it.
    """
    explores = rng.random(n) < epsilon
    actions = rng.integers(0, n_actions, n)
    if not explores.all():
        actions[~explores] = greedy()[~explores]
    return actions
