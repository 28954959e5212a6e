"""Statistics of the scores of few runs on many games, with bootstrap intervals.

An agent's scores are a list of games, each an array [k] of its runs' scores, k >= 1; games may
have different numbers of runs. Every statistic also takes arrays [..., k] and works along the last
axis, as the bootstrap needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 2000
CONFIDENCE = 0.95

Scores = Sequence[np.ndarray]
Statistic = Callable[[Scores], np.ndarray]


@dataclass
class BootstrapInterval:
    """A statistic and its 95 % interval, nan if no runs can be resampled."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def normalised(score: np.ndarray, random: float, reference: float) -> np.ndarray:
    """Return (score − random) / (reference − random): 0 is random play, 1 the reference."""
    return (score - random) / (reference - random)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Return the mean of the middle half of all runs on all games, pooled.

    ⌊n/4⌋ of the n runs are cut at each end, as in Agarwal et al. (2021).
    """
    return stats.trim_mean(_pooled(scores), 0.25, axis=-1)


def median(scores: Scores) -> np.ndarray:
    """Return the median over games of the mean over runs."""
    return np.median(_game_means(scores), axis=-1)


def mean(scores: Scores) -> np.ndarray:
    """Return the mean over games of the mean over runs."""
    return np.mean(_game_means(scores), axis=-1)


def optimality_gap(scores: Scores) -> np.ndarray:
    """Return how much all runs miss the score 1 on average: the mean of max(0, 1 − x).

    A score above 1 does not make up for one below it, as in Agarwal et al. (2021).
    """
    return np.mean(np.maximum(0.0, 1.0 - _pooled(scores)), axis=-1)


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Return the fraction of all runs that exceed each threshold [n]: [n, ...]."""
    pooled = _pooled(scores)
    return np.stack([np.mean(pooled > threshold, axis=-1) for threshold in thresholds])


def probability_of_improvement(x: Scores, y: Scores) -> np.ndarray:
    """Return the probability that a run of X beats a run of Y on a random game.

    It is the mean over games of the fraction of pairs of runs that X wins, where ties count half:
    the Mann–Whitney statistic, scaled to [0, 1].

    Args:
      x, y: the same games in the same order.
    """
    fractions = []
    for x_game, y_game in zip(x, y, strict=True):
        a, b = x_game[..., :, None], y_game[..., None, :]
        fractions.append(np.mean((a > b) + 0.5 * (a == b), axis=(-2, -1)))
    return np.mean(fractions, axis=0)


def estimate(statistic: Statistic, scores: Scores, resamples: int = RESAMPLES) -> BootstrapInterval:
    """Return a statistic with its 95 % stratified percentile bootstrap interval.

    Runs are resampled within each game, so the games are taken as given. A game with one run is
    not resampled; if all games have one run, there is no interval. The random numbers are the same
    at every call.
    """
    value = np.asarray(statistic(scores))
    varied = [i for i, game in enumerate(scores) if len(game) > 1]
    if not varied:
        nothing = np.full_like(value, np.nan, dtype=float)
        return BootstrapInterval(value, nothing, nothing)

    def resampled(*games: np.ndarray, axis: int) -> np.ndarray:
        drawn = dict(zip(varied, games, strict=True))
        shape = games[0].shape[:-1]
        whole = [
            drawn.get(i, np.broadcast_to(game, (*shape, len(game))))
            for i, game in enumerate(scores)
        ]
        return statistic(whole)

    found = stats.bootstrap(
        [scores[i] for i in varied],
        resampled,
        vectorized=True,
        n_resamples=resamples,
        batch=200,  # [thresholds, batch, runs] of a profile stay under 50 MB
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return BootstrapInterval(value, np.asarray(found.low), np.asarray(found.high))


def _pooled(scores: Scores) -> np.ndarray:
    return np.concatenate(list(scores), axis=-1)


def _game_means(scores: Scores) -> np.ndarray:
    return np.stack([np.mean(game, axis=-1) for game in scores], axis=-1)
