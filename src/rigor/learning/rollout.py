"""Whole episodes with a fixed policy, and ε-greedy exploration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rigor.envs.vector import Step, VectorEnv, check_observation, check_step
from rigor.errors import Stopped

MAX_COPIES = 16


class Player(Protocol):
    """A policy that acts in an environment: a learned agent, or an exact policy.

    discount: d̃_t of its own mixture at every t of an episode, float64.
    """

    discount: np.ndarray

    @property
    def initial_stock(self) -> float:
        """c₀, with which an episode starts, in learner's reward units."""
        ...

    @property
    def learner_reward(self) -> Callable[[np.ndarray], np.ndarray]:
        """The function from raw rewards to the rewards that it plans with, any shape."""
        ...

    def act(
        self,
        observation: np.ndarray,
        t: np.ndarray,
        stock: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return ε-greedy actions, int64 [E]."""
        ...

    def next_stock(self, stock: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        ...


Watch = Callable[[np.ndarray, np.ndarray, Step], None]
"""Called after a step with the observations before it [E, *shape], the actions [E] and the step."""


@dataclass
class Episodes:
    """The sums of K whole episodes, each [K].

    score: Σ R, undiscounted, raw. discounted: Σ d_t R under the true discount, raw.
    bundle: Σ d̃_t R under the agent's own mixture, raw. learner: the same of learner's rewards.
    length: agent steps. cut: 1 where the episode was cut at its limit of steps, else 0.
    """

    score: np.ndarray
    discounted: np.ndarray
    bundle: np.ndarray
    learner: np.ndarray
    length: np.ndarray
    cut: np.ndarray


def play_episodes(
    player: Player,
    env: VectorEnv,
    episodes: int,
    epsilon: float,
    factors: np.ndarray,
    seed: np.random.SeedSequence,
    stop: Callable[[], int | None] = lambda: None,
    watch: Watch = lambda observation, actions, step: None,
    name: str = "env",
) -> Episodes:
    """Play whole episodes with the player's current policy and initial stock.

    Each copy of the environment plays a fixed number of episodes, so that short ones are not
    preferred.

    Args:
      player: acts; does not learn.
      env: E copies, made for evaluation.
      episodes: K. epsilon: probability of a random action.
      factors: d_t, float64 [max_time + 1].
      seed: of the environment and the exploration.
      stop: returns the signal that asks for a stop, if any.
      watch: called after every step; copies that have played their episodes still step.
      name: the environment as the user typed it, for messages.

    Raises:
      Stopped: with that signal; episodes can take minutes.
      UserError: a reward or an observation is not finite.
    """
    env_seed, action_seed = seed.spawn(2)
    rng = np.random.default_rng(action_seed)
    remaining = episodes_per_copy(episodes, env.n_envs)
    observation = env.reset(env_seed)
    t = np.zeros(env.n_envs, np.int64)
    check_observation(name, t, observation)
    stock = np.full(env.n_envs, player.initial_stock)
    sums = np.zeros((6, env.n_envs))
    ended: list[np.ndarray] = []
    while (remaining > 0).any():
        if signal := stop():
            raise Stopped(signal)
        # Copies without remaining episodes still act: one shape of input, one recording on a GPU.
        actions = player.act(observation, t, stock, epsilon, rng)
        step = env.step(actions)
        check_step(name, t, step)
        watch(observation, actions, step)
        counts = ~step.dummy
        discount, reward = player.discount[t], step.reward
        learner = discount * player.learner_reward(reward)
        cut = step.episode_end & ~step.terminated
        gains = (reward, factors[t] * reward, discount * reward, learner, np.ones(len(t)), cut)
        sums += np.where(counts, gains, 0.0)
        stock = np.where(counts, player.next_stock(stock, t, reward), player.initial_stock)
        t = np.where(counts, t + 1, 0)
        for i in np.flatnonzero(step.episode_end):
            if remaining[i] > 0:
                ended.append(sums[:, i].copy())
                remaining[i] -= 1
            sums[:, i] = 0.0
        observation = step.observation
    return Episodes(*np.stack(ended, axis=1))


def episodes_per_copy(episodes: int, n_envs: int) -> np.ndarray:
    """Return how many episodes each of E copies plays, int64 [E]."""
    return np.array([len(part) for part in np.array_split(np.arange(episodes), n_envs)])


def copies_for(episodes: int, at_most: int = MAX_COPIES) -> int:
    """Return how many copies play at a time, so that each plays about as many episodes."""
    return -(-episodes // -(-episodes // at_most))


def epsilon_greedy(
    greedy: Callable[[], np.ndarray],
    n: int,
    n_actions: int,
    epsilon: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return n actions, each uniformly random with probability epsilon, else greedy; int64 [n].

    Args:
      greedy: returns the greedy actions, int64 [n]; not called where all are random.
      n: number of actions to return. n_actions: number to choose from.
      rng: draws equally many numbers whatever epsilon is.
    """
    explores = rng.random(n) < epsilon
    actions = rng.integers(0, n_actions, n)
    if not explores.all():
        actions[~explores] = greedy()[~explores]
    return actions
