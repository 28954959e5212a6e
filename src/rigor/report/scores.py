"""Statistics of few runs on many games: what the scores of an agent say about the agent.

An agent's scores are a list of games, each an array of its runs' scores [k], k >= 1; games may
have different numbers of runs. Every statistic also takes arrays [..., k] and works along the last
axis, which is how the bootstrap calls it.
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
class Estimate:
    """A statistic and the ends of its 95 % interval, nan where there is nothing to resample."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def normalised(score: np.ndarray, random: float, human: float) -> np.ndarray:
    """Return (score − random) / (human − random): 0 is random play, 1 a human's."""
    return (score - random) / (human - random)


def interquartile_mean(scores: Scores) -> np.ndarray:
    """Return the mean of the middle half of all runs on all games, taken together.

    ⌊n/4⌋ of the n runs are cut at each end, as in Agarwal et al. (2021).
    """
    return stats.trim_mean(_pooled(scores), 0.25, axis=-1)


def median(scores: Scores) -> np.ndarray:
    """Return the median over games of the mean over runs."""
    return np.median(_game_means(scores), axis=-1)


def mean(scores: Scores) -> np.ndarray:
    """Return the mean over games of the mean over runs."""
    return np.mean(_game_means(scores), axis=-1)


def profile(scores: Scores, thresholds: np.ndarray) -> np.ndarray:
    """Return, for each threshold [n], the share of runs on all games that score more: [n, ...]."""
    pooled = _pooled(scores)
    return np.stack([np.mean(pooled > threshold, axis=-1) for threshold in thresholds])


def probability_of_improvement(x: Scores, y: Scores) -> np.ndarray:
    """Return the chance that a run of X beats a run of Y on a game drawn at random.

    It is the mean over games of the share of pairs of runs that X wins, ties counting half: the
    Mann–Whitney statistic, scaled to [0, 1].

    Args:
      x, y: the same games in the same order.
    """
    shares = []
    for one, other in zip(x, y, strict=True):
        a, b = one[..., :, None], other[..., None, :]
        shares.append(np.mean((a > b) + 0.5 * (a == b), axis=(-2, -1)))
    return np.mean(shares, axis=0)


def percent_improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return 100 (x̄ − ȳ) / |ȳ| of the runs x [..., k] and y [..., l] of one game.

    The paper's figures 4 and 6 call it the percentage improvement in mean return and give no
    formula; the absolute value keeps "better" positive where scores are negative.
    """
    ours, theirs = np.mean(x, axis=-1), np.mean(y, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return 100.0 * (ours - theirs) / np.abs(theirs)


def estimate(statistic: Statistic, scores: Scores, resamples: int = RESAMPLES) -> Estimate:
    """Return a statistic with its 95 % stratified percentile bootstrap interval.

    Runs are resampled within each game, so the games are taken as given. A game with one run has
    nothing to resample and stays as it is; where all games are so there is no interval. The
    random numbers are the same at every call.
    """
    value = np.asarray(statistic(scores))
    varied = [i for i, game in enumerate(scores) if len(game) > 1]
    if not varied:
        nothing = np.full_like(value, np.nan, dtype=float)
        return Estimate(value, nothing, nothing)

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
    return Estimate(value, np.asarray(found.low), np.asarray(found.high))


def _pooled(scores: Scores) -> np.ndarray:
    return np.concatenate(list(scores), axis=-1)


def _game_means(scores: Scores) -> np.ndarray:
    return np.stack([np.mean(game, axis=-1) for game in scores], axis=-1)
