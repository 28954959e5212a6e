"""Estimates from evaluation episodes, with their intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rigor.config.config import Config
from rigor.learning.rollout import Episodes
from rigor.maths.utility import Utility, facts_of, tail_of

CONFIDENCE = 0.95
SINGLY = 1000  # episodes that the jackknife leaves out one by one; of more, it leaves out groups
GROUPS = 200  # of which there are so many
TAIL_BELOW = 1.3  # by which an interval of a tail is longer downwards
PROPORTIONATE = (0.01, 30.0)  # |β| or κ times the spread of returns: between, a risk matters


@dataclass
class Estimate:
    """A number and its 95 % interval over episodes, nan for one episode or equal episodes."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.value:.4g} (no interval)"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def columns(self, name: str) -> dict[str, float | None]:
        """Return `name`, `name_low` and `name_high`; ends that do not exist are None."""
        ends = (None if math.isnan(end) else end for end in (self.low, self.high))
        return dict(zip((name, f"{name}_low", f"{name}_high"), (self.value, *ends), strict=True))


def summarise(config: Config, episodes: Episodes) -> dict[str, Estimate]:
    """Return the measures of some episodes, each with its interval.

    score: mean undiscounted raw score. objective: the OCE of the return under the true discount.
    objective_bundle: under the agent's mixture. objective_learner: the same of learner's rewards.
    """
    risk = config.risk
    measures: dict[str, tuple[np.ndarray, Callable[[np.ndarray], float]]] = {
        "score": (episodes.score, lambda x: float(np.mean(x))),
        "objective": (episodes.discounted, lambda x: risk.oce(x)[0]),
        "objective_bundle": (episodes.bundle, lambda x: risk.oce(x)[0]),
        "objective_learner": (episodes.learner, lambda x: risk.oce(x)[0]),
    }
    return {
        name: interval(sample, statistic, 1.0 if name == "score" else tail_of(risk))
        for name, (sample, statistic) in measures.items()
    }


def unseen(episodes: Episodes) -> str | None:
    """Return a line if all discounted returns are equal, which is no certainty; else None."""
    n = len(episodes.discounted)
    if np.ptp(episodes.discounted) > 0.0:
        return None
    unseen = f"an outcome rarer than 1 in {n // 3}" if n >= 6 else "another outcome"
    if n == 1:
        return "one episode says nothing of the spread of returns"
    return (
        f"all {n} episodes have the return {episodes.discounted[0]:.4g}: there is no interval, and "
        f"{unseen} may not have been seen"
    )


def cut_at_limit(episodes: Episodes) -> str | None:
    """Return how many episodes were cut at their limit of steps, None for none."""
    cut = episodes.cut > 0
    if not cut.any():
        return None
    lengths = episodes.length[cut]
    limit = f"{lengths.min():,.0f}"
    if lengths.min() < lengths.max():
        limit += f" to {lengths.max():,.0f}"
    return f"{cut.sum()} of {len(cut)} cut at the limit of {limit} steps"


def out_of_proportion(risk: Utility, returns: np.ndarray) -> str | None:
    """Return a line when β or κ does not fit the spread of discounted raw returns [K], else None.

    Both are per unit of reward: rate · spread says how far the utility bends over the returns.
    """
    facts, spread = facts_of(risk), float(np.std(returns))
    key = "beta" if facts.exponential_rate else "kappa"
    rate = facts.exponential_rate or facts.curvature / 2.0
    if getattr(risk, key, None) != rate:  # another key of a user's own risk measure
        return None
    bend = abs(rate) * spread
    if bend == 0.0:
        return None
    if PROPORTIONATE[0] <= bend <= PROPORTIONATE[1]:
        return None
    meaning = "practically the mean" if bend < 1 else "the worst outcomes only"
    return (
        f"risk.{key}={rate} with returns that spread by {spread:.3g}: {meaning}; "
        f"risk.{key}={math.copysign(1 / spread, rate):.1g} would be in proportion"
    )


def interval(
    sample: np.ndarray, statistic: Callable[[np.ndarray], float], tail: float = 1.0
) -> Estimate:
    """Return a statistic of a sample [K] with a jackknife interval of Student's t.

    The plug-in estimate of an OCE is biased, because c is chosen on the same sample, and the
    jackknife's estimate is not, but varies more. So the interval reaches over both. For a tail it
    is widened downwards, where the next episode may lie below all of the sample (measured:
    `docs/protocol.md`). One episode and equal episodes have no interval. Of more than `SINGLY`
    episodes it leaves out one of `GROUPS` random groups at a time.

    Args:
      sample: one number of each episode. statistic: of samples of any size.
      tail: fraction of the sample that decides the statistic, such as τ of CVaR.
    """
    value, n = statistic(sample), len(sample)
    if n < 2 or np.ptp(sample) == 0.0:  # equal episodes do not show how much others would differ
        return Estimate(value, math.nan, math.nan)
    k, group = n, np.arange(n)
    if (
        n > SINGLY
    ):  # each episode would cost a statistic of all others; the order may mean something
        k, group = GROUPS, np.random.default_rng(0).permutation(n) % GROUPS
    others = np.array([statistic(sample[group != i]) for i in range(k)])
    corrected = k * value - (k - 1) * float(others.mean())
    error = math.sqrt((k - 1) * float(others.var()))
    freedom = max(1.0, min(n * tail, k) - 1.0)
    half = error * float(stdtrit(freedom, (1.0 + CONFIDENCE) / 2.0))
    below = TAIL_BELOW * half if tail < 1.0 else half
    return Estimate(value, min(value, corrected) - below, max(value, corrected) + half)
