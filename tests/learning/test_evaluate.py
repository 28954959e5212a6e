import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from rigor.config.config import MIN_TAIL
from rigor.learning.evaluate import (
    Estimate,
    cut_at_limit,
    interval,
    out_of_proportion,
    summarise,
    unseen,
)
from rigor.learning.rollout import Episodes
from rigor.maths.utility import CVaR, Entropic, Mean, MeanVariance


def config_with(risk):
    return SimpleNamespace(risk=risk)


def test_summary_measures_each_kind_of_return_in_its_own_way():
    episodes = Episodes(
        score=np.array([1.0, 2.0, 3.0, 10.0]),
        discounted=np.array([4.0, 1.0, 2.0, 3.0]),
        bundle=np.array([40.0, 10.0, 20.0, 30.0]),
        learner=np.array([-4.0, -1.0, -2.0, -3.0]),
        length=np.full(4, 7.0),
        cut=np.zeros(4),
    )
    found = summarise(config_with(CVaR(0.5)), episodes)
    assert {name: estimate.value for name, estimate in found.items()} == pytest.approx(
        {
            "score": 4.0,  # the mean, whatever the risk
            "objective": 1.5,
            "objective_bundle": 15.0,
            "objective_learner": -3.5,
        }
    )
    found = summarise(config_with(Mean()), episodes)
    assert found["objective"].value == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("risk", "line"),
    [
        (Mean(), None),
        (CVaR(0.1), None),
        (Entropic(-0.01), None),  # spread 100: in proportion
        (Entropic(-1e-6), r"risk\.beta=-1e-06 .*practically the mean; risk\.beta=-0\.01 would"),
        (Entropic(-100.0), r"worst outcomes only; risk\.beta=-0\.01 would"),
        (MeanVariance(100.0), r"risk\.kappa=100.0 .*; risk\.kappa=0\.01 would"),
    ],
)
def test_a_rate_out_of_proportion_to_the_returns_is_noted(risk, line):
    found = out_of_proportion(risk, np.array([-100.0, 100.0]))
    assert (found is None) is (line is None)
    assert line is None or re.search(line, found)
    assert out_of_proportion(risk, np.array([7.0, 7.0])) is None


def mean(x):
    return float(np.mean(x))


def test_interval_of_a_mean_is_students():
    sample = np.random.default_rng(0).normal(3.0, 2.0, 20)
    found = interval(sample, mean)
    half = stats.t.ppf(0.975, 19) * sample.std(ddof=1) / math.sqrt(20)
    assert found.value == sample.mean()
    assert found.low == pytest.approx(found.value - half)
    assert found.high == pytest.approx(found.value + half)


def test_interval_of_a_tail_by_hand():
    # CVaR of the worst half of {0, 2, 4, 6}: 1. Without one of them, of the worst 1.5 of three:
    # (2 + 4/2)/1.5, (0 + 4/2)/1.5, (0 + 2/2)/1.5, (0 + 2/2)/1.5, so 8/3, 4/3, 2/3, 2/3
    found = interval(np.array([0.0, 2.0, 4.0, 6.0]), lambda x: CVaR(0.5).oce(x)[0], 0.5)
    others = np.array([8 / 3, 4 / 3, 2 / 3, 2 / 3])
    corrected = 4 * 1.0 - 3 * others.mean()
    half = math.sqrt(3 * others.var()) * stats.t.ppf(0.975, 1)
    assert (found.value, corrected) == (1.0, pytest.approx(0.0))
    assert (found.low, found.high) == pytest.approx((corrected - 1.3 * half, 1.0 + half))


def test_the_interval_of_many_episodes_leaves_out_groups_of_them():
    sample, asked = np.arange(20_000.0), []

    def statistic(x):
        asked.append(len(x))
        return mean(x)

    found = interval(sample, statistic)
    assert asked == [20_000] + 200 * [19_900]
    alone = stats.t.ppf(0.975, 19_999) * sample.std(ddof=1) / math.sqrt(20_000)
    # 200 groups estimate a standard error to about 1/√400
    assert found.high - found.value == pytest.approx(alone, rel=0.15)


def draws(name, tau, rng, shape):
    """Return samples of a distribution, and the CVaR of its worst fraction tau."""
    if name == "normal":
        return rng.standard_normal(shape), -stats.norm.pdf(stats.norm.ppf(tau)) / tau
    if name == "exponential":
        q = -math.log(1 - tau)  # E[x; x < q]/tau = (1 − e^−q (1 + q))/tau
        return rng.exponential(size=shape), (1 - math.exp(-q) * (1 + q)) / tau
    if name == "losses":
        return -rng.exponential(size=shape), math.log(tau) - 1.0
    if name == "t3":
        q = stats.t.ppf(tau, 3)
        return rng.standard_t(3, shape), -stats.t.pdf(q, 3) * (3 + q * q) / 2 / tau
    chance = tau * float(name)
    return -(rng.random(shape) < chance).astype(float), -min(1.0, chance / tau)


SHAPES = ["normal", "exponential", "losses", "t3", "0.5", "1", "2"]
BY_GROUPS = [("normal", 0.01), ("losses", 0.01), ("1", 0.01)]  # 3,000 episodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tau"), [*itertools.product(SHAPES, [0.1, 0.25]), *BY_GROUPS], ids=str
)
def test_intervals_cover_the_truth_at_the_default_number_of_episodes(name, tau):
    """Of 95 % intervals at least 92 % cover, and the estimate is hardly biased."""
    n = max(100, math.ceil(MIN_TAIL / tau))
    samples, truth = draws(name, tau, np.random.default_rng(5), (400, n))
    found = [interval(sample, lambda x: worst_mean(x, tau), tau) for sample in samples]
    covered = [one.low - 1e-9 <= truth <= one.high + 1e-9 for one in found]
    assert np.mean(covered) >= 0.92
    spread = np.mean([one.high - one.low for one in found])
    assert abs(np.mean([one.value for one in found]) - truth) <= 0.15 * spread + 1e-9


def worst_mean(x, tau):
    x, k = np.sort(x), int(len(x) * tau)
    return float((x[:k].sum() + (len(x) * tau - k) * x[min(k, len(x) - 1)]) / (len(x) * tau))


@pytest.mark.parametrize("sample", [[5.0], [2.0, 2.0, 2.0]])
def test_one_episode_or_equal_episodes_have_no_interval(sample):
    found = interval(np.array(sample), mean)
    assert found.value == sample[0]
    assert np.isnan([found.low, found.high]).all()
    assert str(found) == f"{sample[0]:g} (no interval)"
    assert found.columns("score") == {"score": sample[0], "score_low": None, "score_high": None}
    assert str(Estimate(2.0, 1.0, 3.0)) == "2 [1, 3]"


def test_episodes_that_reach_their_limit_are_counted():
    def episodes(lengths, cut):
        zeros = np.zeros(len(cut))
        return Episodes(zeros, zeros, zeros, zeros, np.array(lengths), np.array(cut))

    assert cut_at_limit(episodes([5.0, 7.0], [0.0, 0.0])) is None
    found = cut_at_limit(episodes([27_000.0, 9.0, 27_000.0], [1.0, 0.0, 1.0]))
    assert found == "2 of 3 cut at the limit of 27,000 steps"
    assert "26,991 to 27,000" in cut_at_limit(episodes([26_991.0, 27_000.0], [1.0, 1.0]))


def test_equal_returns_are_no_certainty():
    def episodes(returns):
        same = np.array(returns)
        return Episodes(same, same, same, same, same, 0.0 * same)

    assert unseen(episodes([1.0, 2.0])) is None
    assert "all 30 episodes have the return 500" in unseen(episodes([500.0] * 30))
    assert "rarer than 1 in 10 " in unseen(episodes([500.0] * 30))
    assert "another outcome may not have been seen" in unseen(episodes([2.0] * 3))
