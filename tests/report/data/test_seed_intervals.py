import math

import numpy as np
import pytest
from scipy import stats

from rigor.report.data.seed_intervals import difference, fraction, mean_interval


def test_the_mean_has_students_interval():
    # of 1 and 3: t with one degree of freedom is 12.706, the standard error 1
    found = mean_interval(np.array([1.0, 3.0]))
    assert (found.value, found.low, found.high) == pytest.approx((2.0, -10.7062, 14.7062), abs=1e-4)
    several = mean_interval(np.array([[1.0, 3.0], [5.0, 5.0]]))
    assert several.value.tolist() == [2.0, 5.0]
    assert np.isnan(several.low).tolist() == [False, True]


@pytest.mark.parametrize("values", [[7.0], [2.0, 2.0]])
def test_one_seed_or_equal_seeds_have_no_interval(values):
    found = mean_interval(np.array(values))
    assert found.value == values[0]
    assert np.isnan([found.low, found.high]).all()


def test_a_difference_has_welchs_interval():
    x, y = np.array([4.0, 6.0, 5.0, 9.0]), np.array([1.0, 2.0, 6.0])
    found = difference(x, y)
    ends = stats.ttest_ind(x, y, equal_var=False).confidence_interval(0.95)
    assert found.value == 3.0
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_seeds_that_are_equal_may_differ_from_others_that_are_not():
    found = difference(np.full(3, 21.0), np.array([20.0, 22.0, 21.0]))
    half = stats.t.ppf(0.975, 2) / math.sqrt(3)  # deviation 1
    assert (found.low, found.high) == pytest.approx((-half, half))
    assert np.isnan(difference(np.full(3, 21.0), np.full(3, 20.0)).low)


def test_an_exact_value_has_no_variation():
    x = np.array([4.0, 6.0])
    # the standard error of x alone is 1
    found = difference(x, np.array([5.0]), y_exact=True)
    assert (found.value, found.low, found.high) == pytest.approx((0.0, -12.7062, 12.7062), abs=1e-4)
    assert np.isnan(difference(x, np.array([5.0])).low)  # one learned seed may vary
    assert np.isnan(difference(x[:1], x[:1], True, True).low)
    assert np.isnan(difference(np.array([2.0, 2.0]), np.array([1.0, 1.0])).low)


def test_a_fraction_has_wilsons_interval():
    ends = stats.binomtest(7, 10).proportion_ci(0.95, method="wilson")
    found = fraction(0.7, 10)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert fraction(1.0, 3).low < 0.5 < fraction(1.0, 4).low  # three seeds are too few


@pytest.mark.parametrize("k", [2, 3, 5])
def test_equal_agents_are_seldom_told_apart(k):
    """A percentile bootstrap tells 34, 18 and 12 % of such pairs apart."""
    rng = np.random.default_rng(k)
    pairs = rng.normal(size=(1000, 2, k))
    found = [difference(x, y) for x, y in pairs]
    assert np.mean([one.low > 0 or one.high < 0 for one in found]) < 0.06
