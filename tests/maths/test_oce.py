"""A risk measure of a distribution, directly and as an optimised certainty equivalent."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from utility_cases import ALL, WITH_STOCK

from rigor.maths.utility import (
    CVaR,
    Entropic,
    Mean,
    MeanCVaR,
    MeanVariance,
    Utility,
    facts_of,
)


def test_direct_by_hand() -> None:
    x, p = np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.2, 0.3])
    # E = 2.3, worst .4 = .2 of 0 and .2 of 1: CVaR = .5; Var = 8 + .3 − 5.29 = 3.01
    assert Mean().direct(x, p) == pytest.approx(2.3)
    assert CVaR(0.4).direct(x, p) == pytest.approx(0.5)
    assert MeanCVaR(0.25, 0.4).direct(x, p) == pytest.approx(0.25 * 2.3 + 0.75 * 0.5)
    assert MeanVariance(0.1).direct(x, p) == pytest.approx(2.3 - 0.301)
    expected = -math.log(0.5 * math.exp(-4) + 0.2 + 0.3 * math.exp(-1))
    assert Entropic(-1.0).direct(x, p) == pytest.approx(expected)


def test_oce_by_hand() -> None:
    x, p = np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.2, 0.3])
    # the .4-quantile is 1, so c = −1; at τ = .5 every quantile in [1, 4] serves: c = −1 again
    assert CVaR(0.4).oce(x, p) == pytest.approx((0.5, -1.0))
    assert CVaR(0.5).oce(x, p) == pytest.approx((0.6, -1.0))
    assert CVaR(0.5).oce(-x, p) == pytest.approx((-4.0, 1.0))
    # erratum E3: ess sup − E = 1.7 <= 1/(2κ) = 5: c = −E
    assert MeanVariance(0.1).oce(x, p) == pytest.approx((2.3 - 0.301, -2.3))


def test_rounded_sums_of_probabilities_reach_tau() -> None:
    # eight times .1 sums to .7999999999999999; every .8-quantile of 1 ... 10 lies in [8, 9]
    value, c = CVaR(0.8).oce(np.arange(1.0, 11.0), np.full(10, 0.1))
    assert c == -8.0
    assert value == pytest.approx(4.5)


def test_oce_of_the_mean_has_c_0() -> None:
    # erratum E5
    assert Mean().oce(np.array([1.0, 5.0])) == (3.0, 0.0)
    assert MeanCVaR(1.0, 0.3).oce(np.array([1.0, 5.0])) == (3.0, 0.0)


def test_mean_variance_oce_is_larger_beyond_its_bound() -> None:
    # erratum E3 with κ = 1: X = 0 or 10. E − κVar = 5 − 25 = −20. The condition E max(v − X, 0) =
    # 1/2 gives v = 1 (only X = 0 below it), c = 1/2 − 1 = −1/2, J = 1/2 + 1/4 − ½·1² = 1/4
    x = np.array([0.0, 10.0])
    assert MeanVariance(1.0).direct(x) == pytest.approx(-20.0)
    assert MeanVariance(1.0).oce(x) == pytest.approx((0.25, -0.5))


distributions = st.lists(
    st.tuples(
        st.one_of(st.floats(-20.0, 20.0), st.sampled_from([-1.0, 0.0, 2.0])), st.integers(1, 9)
    ),
    min_size=1,
    max_size=8,
).map(
    lambda atoms: (
        np.array([x for x, _ in atoms]),
        np.array([n for _, n in atoms]) / sum(n for _, n in atoms),
    )
)


@pytest.mark.parametrize("utility", ALL, ids=str)
@settings(max_examples=25, deadline=None)
@given(distribution=distributions)
def test_oce_equals_direct_and_no_c_is_better(
    utility: Utility, distribution: tuple[np.ndarray, np.ndarray]
) -> None:
    x, p = distribution
    value, c = utility.oce(x, p)
    direct = utility.direct(x, p)
    near = 1e-9 * max(1.0, abs(direct))
    if isinstance(utility, MeanVariance) and x.max() - p @ x > 0.5 / utility.kappa:
        assert value > direct - near  # erratum E3
    else:
        assert value == pytest.approx(direct, rel=1e-9, abs=1e-9)
    others = c + np.concatenate([[0.0], np.linspace(-30, 30, 241), [-1e-3, 1e-3]])
    j = p @ utility.f(others[None, :] + x[:, None]) - others
    assert j.max() <= value + near
    assert j[0] == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("utility", [*WITH_STOCK, Entropic(-1.0)], ids=str)
@settings(max_examples=20, deadline=None)
@given(distribution=distributions)
def test_oce_maximiser_is_the_one_nearest_0(
    utility: Utility, distribution: tuple[np.ndarray, np.ndarray]
) -> None:
    x, p = distribution
    value, c = utility.oce(x, p)
    nearer = c * np.linspace(0.0, 0.999, 50)
    j = p @ utility.f(nearer[None, :] + x[:, None]) - nearer
    assert np.all(j <= value + 1e-12 * max(1.0, abs(value)))
    if abs(c) > 0.1 and facts_of(utility).kink_slopes:
        assert j[0] < value  # else c = 0 would be the maximiser nearest 0


@pytest.mark.parametrize("utility", [u for u in ALL if not isinstance(u, MeanVariance)], ids=str)
def test_the_oce_of_a_constant_is_that_constant(utility: Utility) -> None:
    assert utility.direct(np.array([3.5])) == pytest.approx(3.5)
    assert utility.oce(np.array([3.5]))[0] == pytest.approx(3.5)


@settings(max_examples=30, deadline=None)
@given(distribution=distributions)
def test_cvar_with_tau_1_is_the_mean(distribution: tuple[np.ndarray, np.ndarray]) -> None:
    mean = Mean().direct(*distribution)
    assert CVaR(1.0).direct(*distribution) == pytest.approx(mean, abs=1e-12)
    assert CVaR(1.0).oce(*distribution)[0] == pytest.approx(mean, abs=1e-12)
    assert MeanCVaR(1.0, 0.1).direct(*distribution) == pytest.approx(mean, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(distribution=distributions, tau=st.floats(0.01, 1.0))
def test_mean_cvar_lies_between_its_two_parts(
    distribution: tuple[np.ndarray, np.ndarray], tau: float
) -> None:
    assert MeanCVaR(0.0, tau).direct(*distribution) == pytest.approx(
        CVaR(tau).direct(*distribution)
    )
    low, high = CVaR(tau).direct(*distribution), Mean().direct(*distribution)
    assert low - 1e-9 <= MeanCVaR(0.4, tau).direct(*distribution) <= high + 1e-9
    assert low >= distribution[0].min() - 1e-9


def test_entropic_direct_does_not_overflow_and_has_the_mean_as_limit() -> None:
    x = np.array([-3000.0, 1000.0])
    assert Entropic(-1.0).direct(x) == pytest.approx(-3000.0 + math.log(2.0))
    assert Entropic(-1e-9).direct(x) == pytest.approx(-1000.0, abs=1e-2)
    assert Entropic(-1.0).oce(x)[0] == pytest.approx(-3000.0 + math.log(2.0))


def test_outcomes_of_probability_0_are_ignored() -> None:
    x, p = np.array([-1e9, 1.0, 2.0]), np.array([0.0, 0.5, 0.5])
    for utility in ALL:
        assert utility.direct(x, p) == pytest.approx(utility.direct(x[1:]))
        assert utility.oce(x, p) == pytest.approx(utility.oce(x[1:]))


@pytest.mark.parametrize(
    ("outcomes", "probabilities"),
    [
        ([1.0, 2.0], [0.5, 0.4]),
        ([1.0, 2.0], [1.5, -0.5]),
        ([1.0, 2.0], [1.0]),
        ([], None),
        ([[1.0]], None),
    ],
)
def test_invalid_distributions_are_refused(
    outcomes: list[float], probabilities: list[float] | None
) -> None:
    weights = None if probabilities is None else np.array(probabilities)
    with pytest.raises(ValueError, match="outcomes"):
        Mean().direct(np.array(outcomes), weights)
