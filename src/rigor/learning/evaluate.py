"""Evaluation: own environment and seeds, whole games, raw scores, with intervals."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rigor.config import Config
from rigor.envs.vector import Step, VectorEnv
from rigor.errors import Stopped
from rigor.maths.utility import Entropic, MeanVariance, Utility

MAX_COPIES = 16
CONFIDENCE = 0.95
RESAMPLES = 2000
PROPORTIONATE = (0.01, 30.0)  # |β| or κ times the spread of returns: between, a risk matters


class Player(Protocol):
    """Who plays: a learned agent, or an exact policy.

    mass: d̃_t of its own discount at every t of a game, float64.
    """

    mass: np.ndarray

    @property
    def initial_stock(self) -> float:
        """c₀, with which a game starts, in learned reward units."""
        ...

    @property
    def learned_reward(self) -> Callable[[np.ndarray], np.ndarray]:
        """What turns raw rewards into those that it plans with, any shape."""
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

    def next_stock(self, total: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        ...


Watch = Callable[[np.ndarray, np.ndarray, Step], None]
"""Sees a call: the observations before it [E, *shape], the actions [E], and what came of them."""


@dataclass
class Games:
    """What each of K whole games gave.

    score: Σ R, undiscounted, raw. discounted: Σ d_t R under the true discount, raw.
    bundle: Σ mass(t) R under the agent's own mixture, raw. learned: the same of learned rewards.
    length: agent steps. All [K].
    """

    score: np.ndarray
    discounted: np.ndarray
    bundle: np.ndarray
    learned: np.ndarray
    length: np.ndarray


@dataclass
class Estimate:
    """A number and its 95 % percentile bootstrap interval over games."""

    value: float
    low: float
    high: float


def play(
    agent: Player,
    env: VectorEnv,
    episodes: int,
    epsilon: float,
    factors: np.ndarray,
    seed: np.random.SeedSequence,
    stop: Callable[[], int | None] = lambda: None,
    watch: Watch = lambda observation, actions, step: None,
) -> Games:
    """Play whole games with the agent's current policy and initial stock.

    Every copy plays its own share of the games, so that short games are not preferred.

    Args:
      agent: acts; does not learn. env: of E copies, made for evaluation.
      episodes: K. epsilon: chance of a random action.
      factors: d_t, float64 [max_time + 1]. seed: of the environment and the exploration.
      stop: returns the signal that asks for a stop, if any.
      watch: called after every step; copies that have played their share still step.

    Raises:
      Stopped: with that signal; games can take minutes.
    """
    env_seed, action_seed = seed.spawn(2)
    rng = np.random.default_rng(action_seed)
    quota = shares(episodes, env.n_envs)
    observation = env.reset(env_seed)
    t = np.zeros(env.n_envs, np.int64)
    stock = np.full(env.n_envs, agent.initial_stock)
    sums = np.zeros((5, env.n_envs))
    games: list[np.ndarray] = []
    while (quota > 0).any():
        if signal := stop():
            raise Stopped(signal)
        # who has played its share goes on until the longest game ends: one shape, one recording
        actions = agent.act(observation, t, stock, epsilon, rng)
        step = env.step(actions)
        watch(observation, actions, step)
        counts = ~step.dummy
        mass, reward = agent.mass[t], step.reward
        learned = agent.learned_reward(reward)
        gains = (reward, factors[t] * reward, mass * reward, mass * learned, np.ones_like(reward))
        sums += np.where(counts, gains, 0.0)
        stock = np.where(counts, agent.next_stock(stock, t, reward), agent.initial_stock)
        t = np.where(counts, t + 1, 0)
        for i in np.flatnonzero(step.episode_end):
            if quota[i] > 0:
                games.append(sums[:, i].copy())
                quota[i] -= 1
            sums[:, i] = 0.0
        observation = step.observation
    return Games(*np.stack(games, axis=1))


def shares(episodes: int, n_envs: int) -> np.ndarray:
    """Return how many games each of E copies plays, int64 [E]."""
    return np.array([len(part) for part in np.array_split(np.arange(episodes), n_envs)])


def copies(episodes: int, at_most: int = MAX_COPIES) -> int:
    """Return how many games to play at a time: equal shares of at most so many."""
    return -(-episodes // -(-episodes // at_most))


def summarise(config: Config, games: Games, seed: int) -> dict[str, Estimate]:
    """Return the measures of some games, each with its interval.

    score: mean undiscounted raw score. objective: the OCE of the return under the true discount.
    objective_bundle: under the agent's mixture. objective_learner: the same of learned rewards.
    """
    risk = config.risk
    measures: dict[str, tuple[np.ndarray, Callable[[np.ndarray], float]]] = {
        "score": (games.score, lambda x: float(np.mean(x))),
        "objective": (games.discounted, lambda x: risk.oce(x)[0]),
        "objective_bundle": (games.bundle, lambda x: risk.oce(x)[0]),
        "objective_learner": (games.learned, lambda x: risk.oce(x)[0]),
    }
    return {
        name: interval(sample, statistic, seed) for name, (sample, statistic) in measures.items()
    }


def out_of_proportion(risk: Utility, returns: np.ndarray) -> str | None:
    """Return a line when β or κ does not fit the spread of discounted raw returns [K], else None.

    Both are per unit of reward: rate · spread says how far the utility bends over the returns.
    """
    key = {Entropic: "beta", MeanVariance: "kappa"}.get(type(risk))
    spread = float(np.std(returns))
    if key is None or spread == 0:
        return None
    rate = getattr(risk, key)
    bend = abs(rate) * spread
    if PROPORTIONATE[0] <= bend <= PROPORTIONATE[1]:
        return None
    meaning = "practically the mean" if bend < 1 else "the worst outcomes only"
    return (
        f"risk.{key}={rate} with returns that spread by {spread:.3g}: {meaning}; "
        f"risk.{key}={math.copysign(1 / spread, rate):.1g} would be in proportion"
    )


def interval(sample: np.ndarray, statistic: Callable[[np.ndarray], float], seed: int) -> Estimate:
    """Return a statistic of a sample [K] with its percentile bootstrap interval."""
    from scipy import stats  # takes a second to import, and the first step need not wait for it

    value = statistic(sample)
    if len(sample) < 2 or np.ptp(sample) == 0:
        return Estimate(value, value, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (sample,),
            statistic,
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            vectorized=False,
            rng=np.random.default_rng(seed),
        )
    low, high = result.confidence_interval
    return Estimate(value, float(low), float(high))
