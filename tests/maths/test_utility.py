"""The utilities f, the values of a state at a stock, and their schemas."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from utility_cases import ALL

from rigor.maths.utility import (
    CVaR,
    Entropic,
    Mean,
    MeanCVaR,
    MeanVariance,
    Utility,
    UtilityFacts,
    facts_of,
    is_mean,
    other_level,
    steepest_slope,
)


def exact_f(utility: Utility, x: Fraction) -> Fraction:
    """Return f(x) of a utility made of polynomials, in rational numbers, from the paper's table."""
    match utility:
        case Mean():
            return x
        case CVaR(tau):
            return min(x, Fraction(0)) / Fraction(tau)
        case MeanCVaR(kappa, tau):
            kappa2 = (1 - Fraction(kappa)) / Fraction(tau) + Fraction(kappa)
            return Fraction(kappa) * max(x, Fraction(0)) + kappa2 * min(x, Fraction(0))
        case MeanVariance(kappa):
            k = Fraction(kappa)
            return x - k * x * x if x <= 1 / (2 * k) else 1 / (4 * k)
    raise AssertionError(utility)


def exact_value(utility: Utility, stock: float, discount: float, z: np.ndarray) -> float:
    """Return (mean_j f(S + D z_j) − f(S))/D in rational numbers."""
    s, d = Fraction(stock), Fraction(discount)
    total = sum(exact_f(utility, s + d * Fraction(float(x))) for x in z)
    return float((total / len(z) - exact_f(utility, s)) / d)


def naive_value(
    utility: Utility, stock: np.ndarray, discount: np.ndarray, z: np.ndarray
) -> np.ndarray:
    s, d = stock[:, None, None], discount[:, None, None]
    return ((utility.f(s + d * z).mean(-1) - utility.f(s)[..., 0]) / d[..., 0]).astype(np.float64)


def test_f_by_hand() -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 6.0])
    np.testing.assert_array_equal(Mean().f(x), x)
    # erratum E1: (x)₋ = min(x, 0); −2/.1 = −20
    np.testing.assert_allclose(CVaR(0.1).f(x), [-20, -10, 0, 0, 0])
    # κ₂ = .5/.1 + .5 = 5.5
    np.testing.assert_allclose(MeanCVaR(0.5, 0.1).f(x), [-11, -5.5, 0, 0.5, 3])
    # (e^{−x} − 1)/−1 = 1 − e^{−x}
    np.testing.assert_allclose(Entropic(-1.0).f(x), 1 - np.exp(-x))
    # x − .1 x² up to 5, then 2.5
    np.testing.assert_allclose(MeanVariance(0.1).f(x), [-2.4, -1.1, 0, 0.9, 2.5])


def test_entropic_f_is_exact_near_0_and_minus_infinity_far_below() -> None:
    # erratum E2: expm1; (e^{βx} − 1)/β = x + βx²/2 + ...
    assert Entropic(-1.0).f(np.array([1e-20]))[0] == 1e-20
    assert Entropic(-1.0).f(np.array([-1e4]))[0] == -math.inf


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_f_is_concave_and_normalised(utility: Utility) -> None:
    # f(0) = 0 and 1 ∈ ∂f(0), so OCE(constant) = constant
    x = np.linspace(-5.0, 5.0, 1001)
    slopes = np.diff(utility.f(x)) / np.diff(x)
    assert np.all(np.diff(slopes) <= 1e-9)
    assert utility.f(np.zeros(1))[0] == 0.0
    assert slopes[500] <= 1.0 + 1e-9
    assert slopes[499] >= 1.0 - 1e-9


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_lipschitz_is_the_steepest_slope(utility: Utility) -> None:
    # erratum E4: 1, 1/τ, κ₂; none for entropic and mean-variance, whose slopes grow without end
    x = np.linspace(-50.0, 50.0, 2001)
    steepest = (np.diff(utility.f(x)) / np.diff(x)).max()
    if utility.lipschitz is None:
        wider = np.diff(utility.f(4 * x)) / np.diff(4 * x)
        assert wider.max() > steepest
    else:
        assert steepest == pytest.approx(utility.lipschitz)


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_facts_agree_with_f(utility: Utility) -> None:
    facts, x = facts_of(utility), np.linspace(-3.0, 7.0, 51)
    if facts.exponential_rate:
        expected = np.expm1(facts.exponential_rate * x) / facts.exponential_rate
        np.testing.assert_allclose(utility.f(x), expected)
    if facts.exponential_rate == 0.0:
        np.testing.assert_array_equal(utility.f(x), x)
    assert is_mean(utility) == isinstance(utility, Mean)
    # only exponential and linear utilities have a best action that no stock changes
    assert utility.needs_stock == (facts.exponential_rate is None)
    if facts.kink_slopes is not None:
        above, below = facts.kink_slopes
        np.testing.assert_allclose(utility.f(x), np.where(x > 0, above, below) * x)
    if facts.curvature < math.inf:
        slopes = np.diff(utility.f(x)) / np.diff(x)
        assert -np.diff(slopes).min() / (x[1] - x[0]) == pytest.approx(facts.curvature)


def test_facts_of_each_utility() -> None:
    assert facts_of(Mean()) == UtilityFacts(exponential_rate=0.0)
    assert facts_of(Entropic(-0.5)) == UtilityFacts(exponential_rate=-0.5)
    assert facts_of(CVaR(0.1)) == UtilityFacts(kink_slopes=(0.0, 10.0))
    assert facts_of(MeanCVaR(0.5, 0.1)) == UtilityFacts(kink_slopes=(0.5, 5.5))
    assert facts_of(MeanVariance(0.2)) == UtilityFacts(curvature=0.4)


def test_a_utility_that_states_no_facts_has_none() -> None:
    class Own:
        needs_stock, lipschitz, f = True, 2.0, CVaR(0.5).f

    assert facts_of(Own()) == UtilityFacts()
    assert not is_mean(Own())


def test_the_steepest_slope_is_l_or_the_slope_at_the_lowest_total() -> None:
    assert steepest_slope(CVaR(0.1), -5.0) == 10.0
    # f' = 1 − 2 kappa x = 3 at −5, and e^{−x/2}
    assert steepest_slope(MeanVariance(0.2), -5.0) == pytest.approx(3.0, rel=1e-4)
    assert steepest_slope(MeanVariance(0.2), -5.0) >= 3.0
    assert steepest_slope(Entropic(-0.5), -4.0) == pytest.approx(np.exp(2.0), rel=1e-4)


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_f_and_value_agree_between_numpy_and_torch(utility: Utility) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(6, 3, 5))
    stock = np.array([0.0, 0.4, -0.4, 0.0, 3.0, -3.0])
    discount = np.array([1.0, 0.5, 0.5, 0.0, 0.0, 1e-9])
    tensors = [torch.from_numpy(array) for array in (stock, discount, z)]
    np.testing.assert_allclose(utility.f(tensors[2]).numpy(), utility.f(z), rtol=1e-12)
    value = utility.value(*tensors)
    assert value.dtype == torch.float64
    np.testing.assert_allclose(value.numpy(), utility.value(stock, discount, z), rtol=1e-12)


@pytest.mark.parametrize("utility", [u for u in ALL if not isinstance(u, Entropic)], ids=str)
def test_value_equals_the_naive_formula_where_that_is_accurate(utility: Utility) -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 3, 5))
    stock, discount = rng.normal(size=200), rng.uniform(0.3, 1.0, size=200)
    np.testing.assert_allclose(
        utility.value(stock, discount, z),
        naive_value(utility, stock, discount, z),
        rtol=1e-10,
        atol=1e-13,
    )


@pytest.mark.parametrize("discount", [1.0, 0.1, 1e-8, 1e-16, 1e-100, 1e-300])
@pytest.mark.parametrize("utility", [u for u in ALL if not isinstance(u, Entropic)], ids=str)
def test_value_is_exact_at_every_discount(utility: Utility, discount: float) -> None:
    # stocks on both sides of the kink, on it, and within reach of it: S = ±D/2
    rng = np.random.default_rng(2)
    for stock in (0.0, 1.0, -1.0, discount / 2, -discount / 2, 5.0, 1.0 / 4.0, 7.5):
        z = rng.normal(size=(1, 3, 5))
        value = utility.value(np.array([stock]), np.array([discount]), z)[0]
        exact = [exact_value(utility, stock, discount, z[0, a]) for a in range(3)]
        np.testing.assert_allclose(value, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("discount", [1.0, 1e-3, 1e-12, 1e-150, 1e-250, 1e-300])
def test_entropic_value_is_the_exact_certainty_equivalent(discount: float) -> None:
    beta = -2.0
    z = np.random.default_rng(3).normal(size=(1, 3, 5))
    value = Entropic(beta).value(np.array([9.0]), np.array([discount]), z)[0]
    with localcontext() as context:
        context.prec = 700
        rate = Decimal(beta) * Decimal(discount)
        for a in range(3):
            mean = sum((rate * Decimal(float(x))).exp() for x in z[0, a]) / 5
            assert value[a] == pytest.approx(float(mean.ln() / rate), rel=1e-12)


def test_entropic_value_neither_overflows_nor_depends_on_the_stock() -> None:
    # −1 and +1 equally likely at β·D = −1000: the worse one but for log(2)/1000
    z = np.array([[[-1.0, 1.0], [0.0, 0.0]]])
    for stock in (0.0, 1e6, -1e6):
        value = Entropic(-1000.0).value(np.array([stock]), np.ones(1), z)
        np.testing.assert_allclose(value, [[-1.0 + math.log(2) / 1000, 0.0]], rtol=1e-12)


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_value_at_discount_0_is_the_limit(utility: Utility) -> None:
    # f'(S) times the mean of z off the kinks, f(z) at CVaR's kink with S = 0 exactly
    z = np.random.default_rng(4).normal(size=(3, 2, 7))
    stock = np.array([0.3, -0.3, 0.0])
    with np.errstate(all="raise"):
        value = utility.value(stock, np.zeros(3), z)
    if not utility.needs_stock:
        np.testing.assert_allclose(value, z.mean(-1), rtol=1e-12)
        return
    step = 1e-6
    slope = (utility.f(stock + step) - utility.f(stock - step)) / (2 * step)
    np.testing.assert_allclose(value[:2], slope[:2, None] * z.mean(-1)[:2], rtol=1e-6, atol=1e-12)
    at_zero = z.mean(-1) if isinstance(utility, MeanVariance) else utility.f(z).mean(-1)
    np.testing.assert_allclose(value[2], at_zero[2], rtol=1e-12)


@pytest.mark.parametrize("utility", ALL, ids=str)
@pytest.mark.parametrize("discount", [1.0, 1e-5, 1e-20, 1e-300, 5e-324, 0.0])
def test_value_is_finite_and_monotone_where_the_naive_formula_is_not(
    utility: Utility, discount: float
) -> None:
    # an action that is better in every outcome is never worse, and strictly better below the kink
    worse = np.random.default_rng(5).normal(size=(8, 1, 9))
    z = np.concatenate([worse, worse + 0.01], axis=1)
    stock = np.array([0.0, 1e-300, -1e-300, -1.0, 1.0, -1e6, 1e6, -2e-3])
    value = utility.value(stock, np.full(8, discount), z)
    assert np.isfinite(value).all()
    assert np.all(value[:, 1] >= value[:, 0])
    below = stock < -1e-5  # CVaR is flat above, and at 1e6 so are others
    if discount < 1e-4:
        assert np.all(value[below, 1] > value[below, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CVaR(0.0), r"risk.tau=0.0: "),
        (lambda: CVaR(1.1), r"risk.tau=1.1: "),
        (lambda: MeanCVaR(-0.1, 0.1), r"risk.kappa=-0.1: "),
        (lambda: MeanCVaR(0.5, 2), r"risk.tau=2: "),
        (lambda: Entropic(1.0), r"risk.beta=1.0: .*opposite sign"),
        (lambda: Entropic(0.0), r"risk.beta=0.0: .*risk=mean"),
        (lambda: Entropic(-math.inf), r"risk.beta=-inf: "),
        (lambda: MeanVariance(0.0), r"risk.kappa=0.0: .*risk=mean"),
        (lambda: MeanVariance(-1.0), r"risk.kappa=-1.0: "),
    ],
)
def test_values_out_of_range_are_refused_with_their_key(
    make: Callable[[], Utility], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_every_utility_is_a_schema(utility: Utility) -> None:
    schema = OmegaConf.structured(type(utility))  # fields missing: no check may crash
    values = {name: getattr(utility, name) for name in schema}
    assert OmegaConf.to_object(OmegaConf.merge(schema, values)) == utility


def test_only_linear_and_exponential_utilities_need_no_stock() -> None:
    assert not Mean().needs_stock
    assert not Entropic(-1.0).needs_stock
    assert CVaR(0.1).needs_stock
    assert MeanCVaR(0.5, 0.1).needs_stock
    assert MeanVariance(0.1).needs_stock


@pytest.mark.parametrize(
    ("trained", "level"), [(CVaR(0.25), 0.1), (CVaR(0.1), 1.0), (MeanVariance(0.5), 0.05)]
)
def test_an_agent_of_one_level_serves_the_others(trained: Utility, level: float) -> None:
    served = other_level(trained, level)
    x = np.random.default_rng(0).normal(1.0, 4.0, 1000)
    c = np.linspace(-8.0, 8.0, 17)[:, None]
    direct = served.utility.f(c + x).mean(1)
    own = trained.f(c + served.shift + x).mean(1)
    np.testing.assert_allclose(served.scale * own + served.offset, direct, atol=1e-12)
    stocks = c[:, 0] + served.shift
    np.testing.assert_allclose(served.objective(stocks, own - stocks), direct - c[:, 0], atol=1e-12)


@pytest.mark.parametrize("risk", [Mean(), MeanCVaR(0.5, 0.1), Entropic(-1.0)])
def test_other_risk_measures_need_an_agent_for_each_level(risk: Utility) -> None:
    with pytest.raises(ValueError, match=r"risk=cvar .* and risk=mean_variance"):
        other_level(risk, 0.5)
