import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigor.maths import horizons
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
from rigor.maths.horizons import QUADRATURES, Bundle, Multi, Single, default_quadrature

HYPERBOLIC = Hyperbolic(0.05)
PAPER_CIR = CIR(a=0.05, b=0.01, sigma=0.1, r0=0.01)
CAPPED = Capped(HYPERBOLIC, 0.98)
TIMES = np.array([0, 1, 10, 100, 1000])


def paper(quadrature: str, discount: Discount = HYPERBOLIC) -> Bundle:
    return Multi(m=10, gamma_max=0.999, quadrature=quadrature).bundle(discount)


def worst(bundle: Bundle, last: int) -> float:
    t = np.arange(last + 1)
    return float(np.abs(bundle.discount(t) / bundle.true_discount.factor(t) - 1.0).max())


def test_lower_has_the_released_nodes_and_weights() -> None:
    # erratum E7: the largest γ is .998513, one horizon has γ = 0 and weight .3244
    bundle = paper("lower")
    np.testing.assert_allclose(
        bundle.gammas,
        [0, 0.945266, 0.969979, 0.981734, 0.988387, 0.992444, 0.995016, 0.996685, 0.997784,
         0.998513],
        atol=5e-7,
    )  # fmt: skip
    np.testing.assert_allclose(
        bundle.weights,
        [0.324398, 0.219164, 0.148068, 0.100035, 0.067584, 0.045660, 0.030848, 0.020841, 0.014080,
         0.029324],
        atol=1e-6,
    )  # fmt: skip
    edges = np.append(0.0, np.cumsum(bundle.weights))
    np.testing.assert_allclose(
        edges[:10],
        [0, 0.324398, 0.543562, 0.691630, 0.791664, 0.859248, 0.904908, 0.935755, 0.956596,
         0.970676],
        atol=1e-6,
    )  # fmt: skip
    assert 1.0 - edges[1] == pytest.approx(0.6756020149, abs=5e-11)  # b


@pytest.mark.parametrize(
    ("quadrature", "expected"),
    [
        ("lower", [1, 0.655906, 0.511809, 0.136264, 0.009138]),
        ("right", [1, 0.970293, 0.753005, 0.188771, 0.010613]),
        ("midpoint", [1, 0.95667, 0.67462, 0.16455, 0.01811]),
        ("gauss_legendre", [1, 0.95259, 0.66676, 0.16667, 0.01958]),
    ],
)
def test_discounts_equal_the_reference_values(quadrature: str, expected: list[float]) -> None:
    digits = 5e-7 if quadrature in ("lower", "right") else 5e-6
    np.testing.assert_allclose(paper(quadrature).discount(TIMES), expected, atol=digits)


@pytest.mark.parametrize(
    ("quadrature", "to_100", "to_1000", "digits"),
    [
        ("lower", 0.311, 0.534, 5e-4),
        ("midpoint", 0.0136, 0.0765, 5e-5),
        ("gauss_legendre", 0.0004, 0.0015, 5e-5),
    ],
)
def test_relative_errors_equal_the_reference_values(
    quadrature: str, to_100: float, to_1000: float, digits: float
) -> None:
    assert worst(paper(quadrature), 100) == pytest.approx(to_100, abs=digits)
    assert worst(paper(quadrature), 1000) == pytest.approx(to_1000, abs=digits)


def test_upper_shifts_the_weights_by_one_node() -> None:
    # w_0 = 0 and w_i = u_i − u_{i−1}, over their sum .970676
    lower, upper = paper("lower"), paper("upper")
    np.testing.assert_array_equal(upper.gammas, lower.gammas)
    assert lower.weights[:9].sum() == pytest.approx(0.970676, abs=5e-7)
    np.testing.assert_allclose(upper.weights[1:], lower.weights[:9] / lower.weights[:9].sum())
    assert upper.weights[0] == 0.0


def test_right_ends_at_gamma_max() -> None:
    right = paper("right")
    assert right.gammas[-1] == pytest.approx(0.999)
    np.testing.assert_allclose(right.gammas[:9], paper("lower").gammas[1:])


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_the_tail_integral_is_the_hyperbolic_rule_times_gamma_tail(quadrature: str) -> None:
    # γ_max is a fraction of the mixture's largest γ: the default .999 serves γ_tail = .99 too
    tail, plain = paper(quadrature, TailIntegral(0.05, 0.99)), paper(quadrature)
    np.testing.assert_allclose(tail.gammas, 0.99 * plain.gammas)
    np.testing.assert_allclose(tail.weights, plain.weights)


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_the_generalized_rule_with_b_1_is_the_hyperbolic_one(quadrature: str) -> None:
    general, plain = paper(quadrature, GeneralizedHyperbolic(0.05, 1.0)), paper(quadrature)
    np.testing.assert_allclose(general.gammas, plain.gammas, rtol=1e-12)
    np.testing.assert_allclose(general.weights, plain.weights, rtol=1e-12)


def test_the_generalized_rule_uses_survival_probabilities() -> None:
    # the last edge belongs to γ_max, and halving every cell keeps improving the midpoint rule
    discount = GeneralizedHyperbolic(0.05, 1.5)
    assert paper("right", discount).gammas[-1] == pytest.approx(0.999)
    errors = [worst(Multi(m, 0.9999, "midpoint").bundle(discount), 100) for m in (5, 20, 80)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_unconstrained_fits_equal_the_reference_values() -> None:
    # plain fits, without the constraint Σw = 1: CIR .0036 and the capped hyperbolic .012 with 4
    # exponentials, (1 + .05t)^−1.5 1e-14 and the hyperbolic 1e-11 with some 40
    t = np.arange(3001)
    candidates = 1.0 - np.geomspace(1e-4, 1.0, 300)
    for discount, count, low, high in (
        (PAPER_CIR, 4, 0.00355, 0.00365),
        (CAPPED, 4, 0.0115, 0.0125),
        (GeneralizedHyperbolic(0.05, 1.5), 60, 0.0, 1e-13),
        (HYPERBOLIC, 45, 0.0, 5e-11),
    ):
        d = discount.factor(t)
        gammas, weights = horizons._non_negative_fit(candidates, t, d, start_weight=1.0)
        error = np.abs(gammas ** t[:, None] @ weights / d - 1.0).max()
        assert len(gammas) <= count
        assert low <= error <= high


@pytest.mark.parametrize(
    ("discount", "m", "at_most", "bound"),
    [
        (PAPER_CIR, 4, 4, 0.0036),
        (PAPER_CIR, 10, 4, 0.0036),
        (CAPPED, 4, 4, 0.012),
        (CAPPED, 2, 2, 0.014),
        (HYPERBOLIC, 10, 10, 5e-5),
        (HYPERBOLIC, 4, 4, 0.04),
        (GeneralizedHyperbolic(0.05, 1.5), 10, 10, 5e-4),
        (TailIntegral(0.05, 0.99), 10, 10, 5e-4),
        (TailIntegral(0.05, 0.99), 4, 4, 0.015),
    ],
    ids=str,
)
def test_a_fit_sums_to_one_and_reports_its_error(
    discount: Discount, m: int, at_most: int, bound: float
) -> None:
    bundle = Multi(m, 0.999, "fitted").bundle(discount)
    assert bundle.n_horizons <= at_most
    assert bundle.weights.sum() == pytest.approx(1.0, abs=1e-14)
    t = np.arange(3001)
    t = t[discount.factor(t) >= horizons.NEGLIGIBLE]
    assert bundle.fit_error <= bound
    assert bundle.fit_error == pytest.approx(
        np.abs(bundle.discount(t) / discount.factor(t) - 1.0).max(), rel=1e-3, abs=1e-14
    )


def test_a_bad_fit_is_refused_with_a_remedy() -> None:
    with pytest.raises(
        ValueError,
        match=r"horizons.m=2: .*fits the discount with a relative error.*raise horizons.m",
    ):
        Multi(2, 0.999, "fitted").bundle(HYPERBOLIC)


def test_a_fast_discount_can_be_fitted() -> None:
    # d_t underflows long before t = 3000
    bundle = Multi(10, 0.999, "fitted").bundle(Capped(HYPERBOLIC, 0.5))
    assert np.isfinite(bundle.weights).all()
    assert bundle.fit_error < 0.05


def test_exact_atoms_need_no_fit() -> None:
    quasi = Multi(10, 0.999, "fitted").bundle(QuasiHyperbolic(0.7, 0.99))
    np.testing.assert_array_equal(quasi.gammas, [0.99, 0.0])
    np.testing.assert_allclose(quasi.weights, [0.7, 0.3])
    assert quasi.fit_error == 0.0
    exponential = Multi(10, 0.999, "fitted").bundle(Exponential(0.9))
    assert exponential.n_horizons == 1
    assert worst(exponential, 500) < 1e-13


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_a_discount_without_mixture_is_refused(quadrature: str) -> None:
    with pytest.raises(
        ValueError, match=rf"horizons.quadrature={quadrature}: .*discount=hyperbolic"
    ):
        paper(quadrature, PAPER_CIR)


def test_default_quadrature_depends_on_the_class() -> None:
    for kind in (Hyperbolic, GeneralizedHyperbolic, TailIntegral):
        assert default_quadrature(kind) == "lower"
    for kind in (Exponential, QuasiHyperbolic, CIR, Capped, object):
        assert default_quadrature(kind) == "fitted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.999, "lower"), r"horizons.m=0: "),
        ((10, 1.0, "lower"), r"horizons.gamma_max=1.0: "),
        ((10, 0.999, "simpson"), r"horizons.quadrature=simpson: .*gauss_legendre, fitted"),
        ((1, 0.999, "upper"), r"horizons.m=1 with horizons.quadrature=upper"),
    ],
)
def test_values_out_of_range_are_refused_with_their_key(
    arguments: tuple[int, float, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Multi(*arguments)


BUNDLES = [
    Single().bundle(HYPERBOLIC),
    Single().bundle(Exponential(0.0)),
    *(paper(quadrature) for quadrature in QUADRATURES),
    paper("fitted", PAPER_CIR),
    paper("fitted", QuasiHyperbolic(0.7, 0.99)),
    Multi(1, 0.999, "lower").bundle(HYPERBOLIC),
]


@pytest.mark.parametrize("bundle", BUNDLES, ids=range(len(BUNDLES)))
def test_mixture_discount_and_weights_are_consistent(bundle: Bundle) -> None:
    t = np.array([[0, 1, 2], [10, 100, 1000]])
    mixture, discount, weights = bundle.mixture(t), bundle.discount(t), bundle.normalised_weights(t)
    assert (
        mixture.shape == weights.shape == bundle.step_factors(t).shape == (2, 3, bundle.n_horizons)
    )
    assert discount.shape == (2, 3)
    assert discount[0, 0] == pytest.approx(1.0, abs=1e-14)  # erratum E9
    np.testing.assert_allclose(mixture.sum(-1), discount, rtol=1e-12)
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weights * discount[..., None], mixture, rtol=1e-11, atol=1e-300)
    assert bundle.discount(3).shape == ()
    assert bundle.step_factors(3).shape == (bundle.n_horizons,)


@pytest.mark.parametrize("bundle", BUNDLES, ids=range(len(BUNDLES)))
def test_tables_hold_the_functions_up_to_one_step_past_the_end(bundle: Bundle) -> None:
    tables = bundle.tables(max_time=20)
    t = np.arange(22)
    np.testing.assert_array_equal(tables.step_factors, bundle.step_factors(t))
    np.testing.assert_array_equal(tables.mixture, bundle.mixture(t))
    np.testing.assert_array_equal(tables.discount, bundle.discount(t))
    np.testing.assert_array_equal(tables.weights, bundle.normalised_weights(t))
    assert all(
        table.dtype == np.float64 and table.flags.writeable
        for table in (tables.step_factors, tables.mixture, tables.discount, tables.weights)
    )


@pytest.mark.parametrize("bundle", BUNDLES, ids=range(len(BUNDLES)))
def test_total_outcome_from_any_time_is_the_discounted_sum(bundle: Bundle) -> None:
    # equation anytime_proxy_m: S_t + Σ_i mixture_i(t) G_i(t) = S_0 + Σ_k d̃_k r_{k+1}, where each
    # G_i(t) = r + step_factors_i(t) G_i(t + 1)
    rewards = np.random.default_rng(0).normal(size=40)
    tables = bundle.tables(max_time=40)
    returns = np.zeros((41, bundle.n_horizons))
    for t in reversed(range(40)):
        returns[t] = rewards[t] + tables.step_factors[t] * returns[t + 1]
    stock = 0.3
    total = stock + tables.discount[:40] @ rewards
    for t in range(40):
        assert stock + tables.mixture[t] @ returns[t] == pytest.approx(total, abs=1e-12)
        stock += tables.discount[t] * rewards[t]


def test_the_single_horizon_has_the_discount_itself() -> None:
    bundle = Single().bundle(PAPER_CIR)
    assert bundle.gammas is None
    assert bundle.n_horizons == 1
    np.testing.assert_array_equal(bundle.step_factors(TIMES)[:, 0], PAPER_CIR.step_factor(TIMES))
    np.testing.assert_array_equal(bundle.mixture(TIMES)[:, 0], PAPER_CIR.factor(TIMES))
    np.testing.assert_array_equal(bundle.normalised_weights(TIMES), np.ones((5, 1)))


def test_one_exponential_horizon_is_the_single_one() -> None:
    one = Multi(1, 0.999, "fitted").bundle(Exponential(0.97))
    single = Single().bundle(Exponential(0.97))
    for function in ("step_factors", "mixture", "discount", "normalised_weights"):
        np.testing.assert_allclose(
            getattr(one, function)(TIMES), getattr(single, function)(TIMES), rtol=1e-14
        )


def test_weights_are_defined_where_the_discount_underflows() -> None:
    # at t = 10^6 every mixture is 0; the largest γ, .998513, has all the weight
    bundle = paper("lower")
    assert bundle.discount(10**6) == 0.0
    np.testing.assert_allclose(bundle.normalised_weights(10**6), [0.0] * 9 + [1.0], atol=1e-300)


def test_a_horizon_with_gamma_0_has_weight_at_the_start_only() -> None:
    # 0⁰ = 1: the horizon has weight .3244 at t = 0 and 0 afterwards
    weights = paper("lower").normalised_weights([0, 1])
    assert weights[0, 0] == pytest.approx(0.324398, abs=5e-7)
    assert weights[1, 0] == 0.0


def test_a_single_horizon_with_gamma_0_has_finite_weights() -> None:
    bundle = Multi(1, 0.999, "lower").bundle(HYPERBOLIC)  # one horizon, γ = 0
    np.testing.assert_array_equal(bundle.discount([0, 1, 5]), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(bundle.normalised_weights([0, 1, 5]), np.ones((3, 1)))


@pytest.mark.parametrize(
    ("discount", "gamma_max"),
    [
        (Hyperbolic(1e-3), 0.1),
        (GeneralizedHyperbolic(2.0, 4.0), 0.9999),
    ],  # u_m = 1e-1000, 1 − 3e-19
    ids=str,
)
def test_a_gamma_max_outside_the_mixture_is_refused(discount: Discount, gamma_max: float) -> None:
    with pytest.raises(ValueError, match=r"horizons.gamma_max=.*gauss_legendre"):
        Multi(10, gamma_max, "lower").bundle(discount)


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        st.builds(Hyperbolic, st.floats(5e-3, 2.0)),
        st.builds(GeneralizedHyperbolic, st.floats(5e-3, 2.0), st.floats(0.2, 4.0)),
        st.builds(TailIntegral, st.floats(5e-3, 2.0), st.floats(0.5, 0.999)),
    ),
    st.integers(2, 30),
    st.floats(0.5, 0.9999),
    st.sampled_from(sorted(QUADRATURES)),
)
def test_every_quadrature_is_a_normalised_mixture(
    discount: Discount, m: int, gamma_max: float, quadrature: str
) -> None:
    try:
        bundle = Multi(m, gamma_max, quadrature).bundle(discount)
    except ValueError as refusal:
        assert "horizons.gamma_max" in str(refusal)  # noqa: PT017
        return
    assert bundle.n_horizons == m
    assert np.all((bundle.gammas >= 0.0) & (bundle.gammas <= 1.0))
    assert np.all(np.diff(bundle.gammas) >= 0.0)
    assert np.all(bundle.weights >= 0.0)
    assert bundle.weights.sum() == pytest.approx(1.0)
    discount = bundle.discount(np.arange(50))
    assert np.all(np.diff(discount) <= 1e-15)
    np.testing.assert_allclose(bundle.normalised_weights(np.arange(5000)).sum(-1), 1.0)
