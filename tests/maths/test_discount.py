import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rigor.maths.discount import (
    CIR,
    Capped,
    Discount,
    Exponential,
    GeneralizedHyperbolic,
    Hyperbolic,
    QuasiHyperbolic,
    TailIntegral,
)

PAPER_CIR = CIR(a=0.05, b=0.01, sigma=0.1, r0=0.01)
ALL = [
    Exponential(0.99),
    Exponential(0.0),
    Exponential(1.0),
    Hyperbolic(0.05),
    GeneralizedHyperbolic(0.05, 1.5),
    QuasiHyperbolic(0.7, 0.99),
    PAPER_CIR,
    Capped(Hyperbolic(0.05), 0.98),
    TailIntegral(0.05, 0.99),
]
WITH_MIXTURE = [Hyperbolic(0.05), GeneralizedHyperbolic(0.05, 1.5), TailIntegral(0.05, 0.99)]


@pytest.mark.parametrize("discount", ALL, ids=str)
def test_factor_starts_at_one_and_never_increases(discount: Discount) -> None:
    d = discount.factor(np.arange(3000))
    assert d.dtype == np.float64
    assert d[0] == 1.0
    assert np.all(np.diff(d) <= 0.0)


@pytest.mark.parametrize("discount", ALL, ids=str)
def test_step_factor_is_the_ratio_of_neighbouring_factors(discount: Discount) -> None:
    t = np.arange(2000)
    np.testing.assert_allclose(
        discount.factor(t) * discount.step_factor(t), discount.factor(t + 1), rtol=1e-11, atol=0
    )


@pytest.mark.parametrize("discount", ALL, ids=str)
def test_factors_have_the_shape_of_the_times(discount: Discount) -> None:
    t = np.array([[0, 1, 2], [10, 100, 7]])
    for function in (discount.factor, discount.step_factor):
        assert function(t).shape == (2, 3)
        assert function(t)[1, 0] == function(10)
        assert np.shape(function(10)) == ()
        assert function(t[:, :0]).shape == (2, 0)


@pytest.mark.parametrize("discount", ALL, ids=str)
def test_step_factor_ends_at_its_tail_factor(discount: Discount) -> None:
    assert discount.step_factor(10**6) == pytest.approx(discount.tail_factor, abs=2e-6)


def test_exponential_with_gamma_0_discounts_all_later_rewards_to_0() -> None:
    # 0⁰ = 1
    np.testing.assert_array_equal(Exponential(0.0).factor([0, 1, 2]), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(Exponential(0.0).step_factor([0, 1]), [0.0, 0.0])


def test_step_factors_are_defined_where_the_factor_underflows() -> None:
    t = 200_000
    for discount in (
        Exponential(0.99),
        QuasiHyperbolic(0.7, 0.99),
        PAPER_CIR,
        Capped(Hyperbolic(0.05), 0.98),
        TailIntegral(0.05, 0.99),
    ):
        assert discount.factor(t) == 0.0
        assert 0.979 < discount.step_factor(t) <= 0.9951


def test_hyperbolic_by_hand() -> None:
    # 1/(1 + .05·10) = 2/3; the step from 0 is 1/1.05
    assert Hyperbolic(0.05).factor(10) == pytest.approx(2.0 / 3.0)
    assert Hyperbolic(0.05).step_factor(0) == pytest.approx(1.0 / 1.05)


def test_generalized_hyperbolic_by_hand() -> None:
    # (1 + .05·60)^−1.5 = 4^−1.5 = 1/8; with b = 1 it is the hyperbolic
    assert GeneralizedHyperbolic(0.05, 1.5).factor(60) == pytest.approx(0.125)
    t = np.arange(100)
    one, plain = GeneralizedHyperbolic(0.05, 1.0), Hyperbolic(0.05)
    np.testing.assert_allclose(one.factor(t), plain.factor(t), rtol=1e-12)
    np.testing.assert_allclose(one.step_factor(t), plain.step_factor(t), rtol=1e-12)


def test_quasi_hyperbolic_by_hand() -> None:
    # 1, .7·.9, .7·.81; the first step is .63, the others .9
    discount = QuasiHyperbolic(0.7, 0.9)
    np.testing.assert_allclose(discount.factor([0, 1, 2]), [1.0, 0.63, 0.567])
    np.testing.assert_allclose(discount.step_factor([0, 1, 2]), [0.63, 0.9, 0.9])


@pytest.mark.parametrize(
    "discount",
    [
        Exponential(0.99),
        Exponential(0.0),
        QuasiHyperbolic(0.7, 0.99),
        QuasiHyperbolic(1.0, 0.99),
        QuasiHyperbolic(0.7, 0.0),
    ],
    ids=str,
)
def test_atoms_are_the_discount_exactly(discount: Discount) -> None:
    assert discount.atoms is not None
    gammas, weights = discount.atoms
    t = np.arange(200)
    np.testing.assert_allclose(gammas ** t[:, None] @ weights, discount.factor(t), rtol=1e-12)
    assert np.all(weights > 0.0)


def test_cir_equals_the_values_of_the_figure() -> None:
    np.testing.assert_allclose(
        PAPER_CIR.factor([1, 10, 50, 100, 200, 500]),
        [0.990066, 0.914004, 0.733888, 0.571521, 0.346645, 0.077347],
        atol=5e-7,
    )


def test_cir_log_form_equals_the_papers_form_where_that_does_not_overflow() -> None:
    a, b, sigma, r0 = 0.05, 0.01, 0.1, 0.01
    t = np.arange(4000.0)
    h = np.sqrt(a**2 + 2 * sigma**2)  # .15
    below = (a + h) * (np.exp(h * t) - 1) + 2 * h
    papers_a = (2 * h * np.exp((a + h) * t / 2) / below) ** (2 * a * b / sigma**2)
    papers_b = 2 * (np.exp(h * t) - 1) / below
    np.testing.assert_allclose(PAPER_CIR.factor(t), papers_a * np.exp(-papers_b * r0), rtol=1e-11)


def test_cir_does_not_overflow_and_ends_exponentially() -> None:
    # erratum E12: exp(ht) overflows beyond t ≈ 4,700; the step ends at exp(−2ab/(a + h))
    with np.errstate(all="raise", under="ignore"):
        factors = PAPER_CIR.factor([10_000, 10**6])
        steps = PAPER_CIR.step_factor([10_000, 10**6])
    assert factors[0] == pytest.approx(PAPER_CIR.factor(9_999) * steps[0])
    assert factors[1] == 0.0
    np.testing.assert_allclose(steps, 0.99501248, atol=5e-9)
    assert PAPER_CIR.tail_factor == pytest.approx(0.99501248, abs=5e-9)


def test_cir_does_not_require_a_strictly_positive_rate() -> None:
    # erratum E12: 2ab = .001 < σ² = .01 in the paper's own figure, and d_t is non-increasing
    assert 2 * PAPER_CIR.a * PAPER_CIR.b < PAPER_CIR.sigma**2
    assert np.all(PAPER_CIR.step_factor(np.arange(1000)) < 1.0)


def test_cir_with_r0_below_b_has_decreasing_steps() -> None:
    # erratum E14: capping such a discount is not holding it constant from some time on
    steps = CIR(a=0.05, b=0.02, sigma=0.01, r0=0.001).step_factor(np.arange(300))
    assert np.all(np.diff(steps) < 0.0)


def test_capped_hyperbolic_equals_reference_values() -> None:
    cap = float(Hyperbolic(0.05).step_factor(30))
    assert cap == pytest.approx(0.980392, abs=5e-7)  # 2.5/2.55
    capped = Capped(Hyperbolic(0.05), cap)
    assert capped.factor(200) == pytest.approx(0.0138048, abs=5e-8)
    assert capped.factor(np.arange(5000)).sum() == pytest.approx(39.0293, abs=5e-5)


def test_capped_equals_its_base_until_the_cap_binds() -> None:
    # d̂_t = (1 + .05t)/(1.05 + .05t) reaches .98 at 1 + .05t = 2.45, t = 29
    capped, base = Capped(Hyperbolic(0.05), 0.98), Hyperbolic(0.05)
    t = np.arange(30)
    np.testing.assert_allclose(capped.factor(t), base.factor(t), rtol=1e-12)
    assert capped.factor(31) == pytest.approx(float(base.factor(30)) * 0.98, rel=1e-4)
    assert capped.step_factor(31) == 0.98


def test_tail_integral_step_is_the_corrected_one() -> None:
    # erratum E6: .99/1.05 = .942857, where the paper's γ_tail^k would give .951902
    discount = TailIntegral(0.05, 0.99)
    assert discount.step_factor(0) == pytest.approx(0.942857, abs=5e-7)
    assert discount.factor(1) == pytest.approx(0.942857, abs=5e-7)


@pytest.mark.parametrize("discount", WITH_MIXTURE, ids=str)
def test_mixture_integrates_to_the_discount(discount: Discount) -> None:
    assert discount.mixture is not None
    nodes, weights = np.polynomial.legendre.leggauss(100)
    gammas = discount.mixture.gamma((nodes + 1.0) / 2.0)
    t = np.array([0, 1, 10, 100])
    integral = gammas ** t[:, None] @ (weights / 2.0)
    np.testing.assert_allclose(integral, discount.factor(t), rtol=1e-3)


@pytest.mark.parametrize("discount", WITH_MIXTURE, ids=str)
def test_mixture_cdf_inverts_gamma(discount: Discount) -> None:
    assert discount.mixture is not None
    u = np.linspace(0.01, 1.0, 50)
    np.testing.assert_allclose(discount.mixture.cdf(discount.mixture.gamma(u)), u, rtol=1e-9)
    assert discount.mixture.gamma(0.0) == 0.0


def test_generalized_mixture_with_b_1_is_the_hyperbolic_one() -> None:
    u = np.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(
        GeneralizedHyperbolic(0.05, 1.0).mixture.gamma(u), Hyperbolic(0.05).mixture.gamma(u)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(1.01), "discount.gamma=1.01: "),
        (lambda: Exponential(-0.1), "discount.gamma=-0.1: "),
        (lambda: Exponential(float("nan")), "discount.gamma=nan: "),
        (lambda: Hyperbolic(-1), "discount.k=-1: "),
        (lambda: Hyperbolic(0), "discount.k=0: "),
        (lambda: GeneralizedHyperbolic(0.05, 0), "discount.b=0: "),
        (lambda: GeneralizedHyperbolic(0, 1), "discount.k=0: "),
        (lambda: QuasiHyperbolic(1.5, 0.9), "discount.beta=1.5: "),
        (lambda: QuasiHyperbolic(0, 0.9), "discount.beta=0: "),
        (lambda: QuasiHyperbolic(0.5, 2), "discount.gamma=2: "),
        (lambda: CIR(0, 0.01, 0.1, 0.01), "discount.a=0: "),
        (lambda: CIR(0.05, -1, 0.1, 0.01), "discount.b=-1: "),
        (lambda: CIR(0.05, 0.01, 0, 0.01), "discount.sigma=0: "),
        (lambda: CIR(0.05, 0.01, 0.1, -1), "discount.r0=-1: "),
        (lambda: Capped(Hyperbolic(0.05), 1), "discount.gamma_tail=1: "),
        (lambda: Capped("hyperbolic", 0.9), "discount.base='hyperbolic': "),
        (lambda: TailIntegral(0.05, 0), "discount.gamma_tail=0: "),
        (lambda: TailIntegral(-2, 0.5), "discount.k=-2: "),
    ],
)
def test_values_out_of_range_are_refused_with_their_key(
    make: Callable[[], Discount], message: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        make()


@pytest.mark.parametrize("discount", ALL, ids=str)
def test_every_discount_is_a_schema(discount: Discount) -> None:
    schema = OmegaConf.structured(type(discount))  # fields missing: no check may crash
    values = {name: getattr(discount, name) for name in schema}
    assert OmegaConf.to_object(OmegaConf.merge(schema, values)) == discount


discounts = st.one_of(
    st.builds(Exponential, st.floats(0.0, 1.0)),
    st.builds(Hyperbolic, st.floats(1e-3, 5.0)),
    st.builds(GeneralizedHyperbolic, st.floats(1e-3, 5.0), st.floats(0.1, 4.0)),
    st.builds(QuasiHyperbolic, st.floats(0.01, 1.0), st.floats(0.0, 1.0)),
    st.builds(CIR, st.floats(1e-3, 2), st.floats(1e-4, 0.5), st.floats(1e-3, 1), st.floats(0, 0.5)),
    st.builds(TailIntegral, st.floats(1e-3, 5.0), st.floats(0.01, 0.999)),
)


@settings(max_examples=100, deadline=None)
@given(st.one_of(discounts, st.builds(Capped, discounts, st.floats(0.01, 0.999))))
def test_factors_and_steps_agree_for_all_parameters(discount: Discount) -> None:
    t = np.arange(200)
    d, step = discount.factor(np.arange(201)), discount.step_factor(t)
    assert d[0] == 1.0
    assert np.all((step >= 0.0) & (step <= 1.0))
    np.testing.assert_allclose(d[1:], d[:-1] * step, rtol=1e-9, atol=1e-300)
