"""Random and hand-made tabular problems, in the form in which an exact model takes them."""

from types import SimpleNamespace
from typing import Any

import numpy as np


def spec(
    transitions: Any, rewards: Any, chances: Any, horizon: int = 3, terminal: Any = None
) -> SimpleNamespace:
    """Return a specification starting in state 0.

    Args:
      transitions: P(s' | s, a), [S, A, S].
      rewards: the atoms, broadcast to [S, A, S, K]. chances: their probabilities, likewise.
    """
    transitions = np.asarray(transitions, np.float64)
    chances = np.asarray(chances, np.float64)
    full = (*transitions.shape, chances.shape[-1])
    n = len(transitions)
    problem = SimpleNamespace(
        P=transitions,
        reward=np.broadcast_to(np.asarray(rewards, np.float64), full),
        reward_probability=np.broadcast_to(chances, full),
        initial=np.eye(n)[0],
        terminal=np.zeros(n, bool) if terminal is None else np.asarray(terminal, bool),
    )
    return SimpleNamespace(problem=lambda: problem, horizon=horizon, n_decisions=horizon)


def random_spec(
    seed: int, states: int = 2, horizon: int = 3, low: int = -2, high: int = 3, actions: int = 2
) -> SimpleNamespace:
    """Return a random problem whose two rewards a state and action are integers in [low, high]."""
    rng = np.random.default_rng(seed)
    return spec(
        rng.dirichlet(np.ones(states), (states, actions)),
        rng.integers(low, high + 1, (states, actions, 1, 2)),
        rng.dirichlet(np.ones(2), (states, actions, 1)),
        horizon,
    )


def sure(next_state: Any, rewards: Any, horizon: int = 3) -> SimpleNamespace:
    """Return a problem without chance from tables [S][A] of next states and rewards."""
    next_state = np.asarray(next_state)
    rewards = np.asarray(rewards, np.float64)[:, :, None, None]
    return spec(np.eye(len(next_state))[next_state], rewards, np.ones((1, 1, 1, 1)), horizon)
