"""Tabular problems for tests of the exact solvers, and a progress display that only keeps notes."""

from types import SimpleNamespace
from typing import Any

import numpy as np


def spec(
    transitions: Any, rewards: Any, probabilities: Any, horizon: int = 3, terminal: Any = None
) -> SimpleNamespace:
    """Return a problem that starts in state 0.

    Args:
      transitions: P(s' | s, a), [S, A, S].
      rewards: the reward atoms, broadcast to [S, A, S, K]. probabilities: of the atoms, likewise.
    """
    transitions = np.asarray(transitions, np.float64)
    probabilities = np.asarray(probabilities, np.float64)
    full = (*transitions.shape, probabilities.shape[-1])
    n = len(transitions)
    problem = SimpleNamespace(
        P=transitions,
        reward=np.broadcast_to(np.asarray(rewards, np.float64), full),
        reward_probability=np.broadcast_to(probabilities, full),
        initial=np.eye(n)[0],
        terminal=np.zeros(n, bool) if terminal is None else np.asarray(terminal, bool),
    )
    return SimpleNamespace(tables=lambda: problem, horizon=horizon, n_decisions=horizon)


def random_spec(
    seed: int, states: int = 2, horizon: int = 3, low: int = -2, high: int = 3, actions: int = 2
) -> SimpleNamespace:
    """Return a random problem with two integer rewards in [low, high] for each state and action."""
    rng = np.random.default_rng(seed)
    return spec(
        rng.dirichlet(np.ones(states), (states, actions)),
        rng.integers(low, high + 1, (states, actions, 1, 2)),
        rng.dirichlet(np.ones(2), (states, actions, 1)),
        horizon,
    )


def deterministic_spec(next_state: Any, rewards: Any, horizon: int = 3) -> SimpleNamespace:
    """Return a deterministic problem from tables [S][A] of next states and rewards."""
    next_state = np.asarray(next_state)
    rewards = np.asarray(rewards, np.float64)[:, :, None, None]
    return spec(np.eye(len(next_state))[next_state], rewards, np.ones((1, 1, 1, 1)), horizon)


class QuietProgress:
    """A stand-in for `SolverProgress` that collects its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, n_solved: int) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)
