import numpy as np
import pytest

from rigor.errors import UserError
from rigor.exact.discount_tail import TailBound, tail_factor
from rigor.maths.discount import (
    CIR,
    Capped,
    Exponential,
    GeneralizedHyperbolic,
    Hyperbolic,
    QuasiHyperbolic,
    TailIntegral,
)

CIR_OF_THE_FIGURE = CIR(0.05, 0.01, 0.1, 0.01)


def test_mismatch_of_cir_and_the_tail_integral():
    # Σ_{t>T'} |d_t − d̃_t|; the figure's CIR: 56, 4.6, .2 (erratum E17)
    for horizon, total in ((10, 56.0), (30, 4.6), (50, 0.2)):
        gamma = tail_factor(CIR_OF_THE_FIGURE, horizon)
        bounds = TailBound(CIR_OF_THE_FIGURE, horizon, gamma)
        assert bounds.mismatch == pytest.approx(total, rel=0.1 if total < 1.0 else 0.02)
    discount = TailIntegral(0.5, 0.8)
    t = np.arange(400)
    planned = np.where(t <= 3, discount.factor(t), discount.factor(3) * 0.8 ** (t - 3.0))
    planned *= np.where(t <= 3, 1.0, (2.5 / 3.0) ** (t - 3.0))  # gamma_tail = .8 · 2.5/3
    bounds = TailBound(discount, 3, tail_factor(discount, 3))
    assert bounds.mismatch == pytest.approx(np.abs(discount.factor(t) - planned).sum(), rel=1e-9)
    assert TailBound(Capped(Hyperbolic(0.05), 0.98), 40, 0.98).mismatch == 0.0


def test_sums_beyond_a_decision():
    # γ = 1/2: Σ_{t>=k} γ^t = 2^{1−k} for the discount and for its planned version
    bounds = TailBound(Exponential(0.5), 3, 0.5)
    assert bounds.beyond(4) == bounds.planned_beyond(1) == 0.125
    assert bounds.n_tail(0.125) == 1
    assert bounds.n_tail(0.0625) == 2
    assert bounds.n_true(0.0625) == (5, 0.0625)
    np.testing.assert_array_equal(bounds.planned(2), [1.0, 0.5, 0.25, 0.125, 0.0625])


@pytest.mark.parametrize(
    "discount",
    [
        Hyperbolic(0.05),
        GeneralizedHyperbolic(0.05, 1.5),
        Exponential(1.0),
        QuasiHyperbolic(0.5, 1.0),
    ],
)
def test_discounts_without_an_exponential_tail_are_refused(discount):
    with pytest.raises(UserError, match=r"discount=capped discount\.gamma_tail=\.98") as refusal:
        tail_factor(discount, 3)
    assert str(refusal.value).startswith("discount: ")
    assert "\n" not in str(refusal.value)
