from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import composed

from rigor.config.config import build
from rigor.config.custom_classes import (
    check_copies,
    check_discount,
    check_environment,
    check_risk,
)
from rigor.config.validate import validate
from rigor.envs.tabular import Tabular
from rigor.errors import UserError
from rigor.maths import discount, utility

OURS = [
    discount.Exponential(0.99),
    discount.Exponential(0.0),
    discount.Hyperbolic(0.05),
    discount.GeneralizedHyperbolic(0.05, 1.5),
    discount.QuasiHyperbolic(0.7, 0.99),
    discount.CIR(0.05, 0.01, 0.1, 0.01),
    discount.Capped(discount.Hyperbolic(0.05), 0.98),
    discount.TailIntegral(0.05, 0.99),
]
RISKS = [
    utility.Mean(),
    utility.CVaR(0.25),
    utility.MeanCVaR(0.5, 0.1),
    utility.Entropic(-0.5),
    utility.MeanVariance(0.1),
]


@pytest.mark.parametrize("choice", OURS, ids=lambda choice: type(choice).__name__)
def test_rigors_discounts_pass(choice):
    check_discount("discount=mine", choice)


@pytest.mark.parametrize("choice", RISKS, ids=lambda choice: type(choice).__name__)
def test_rigors_risk_measures_pass(choice):
    check_risk("risk=mine", choice, learns=True)


@dataclass
class Halving:
    """d_t = 2^-t with all members; tests replace one of them."""

    mixture = None
    atoms = (np.array([0.5]), np.ones(1))
    tail_factor = 0.5

    def factor(self, t):
        return 0.5 ** np.asarray(t, float)

    def step_factor(self, t):
        return np.full(np.shape(t), 0.5)


@dataclass
class Losses:
    """CVaR at 1/2 with all members; tests replace one of them."""

    needs_stock = True
    lipschitz = 2.0

    def f(self, x):
        return 2 * x.clip(max=0.0)

    def value(self, stock, discount, z):
        stock, discount = stock[:, None, None], discount[:, None, None]
        return ((self.f(stock + discount * z) - self.f(stock)) / discount).mean(-1)

    def oce(self, x, p=None):
        return utility.CVaR(0.5).oce(x, p)


def with_member(cls, **members):
    return type("Mine", (cls,), members)()


def raises_in(self, t):
    return t["first"]


def test_a_right_discount_and_risk_measure_pass():
    check_discount("discount=mine", Halving())
    check_risk("risk=mine", Losses(), learns=True)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ({"factor": lambda self, t: 0.9 ** np.asarray(t) * 2}, "factor(0) is 2; a discount starts"),
        ({"factor": lambda self, t: 1.0 + np.asarray(t)}, "factor(1) is 2; a discount lies from 0"),
        ({"factor": lambda self, t: np.where(t == 3, 0.1, 1.0)}, "rises from 0.1 at t=3 to 1"),
        ({"factor": lambda self, t: 1.0}, "factor(t) gives shape (); it must be (1001,)"),
        ({"factor": lambda self, t: t * np.nan}, "factor(t) gives nan"),
        ({"factor": lambda self, t: "half"}, "gives 'half', not numbers"),
        ({"factor": raises_in}, "factor(t) raised IndexError: only integers"),
        (
            {"step_factor": lambda self, t: np.full(np.shape(t), 0.4)},
            "step_factor(0) is 0.4, but factor(1)/factor(0) is 0.5",
        ),
        ({"tail_factor": 1.5}, "tail_factor is 1.5"),
        ({"mixture": 3}, "mixture is a rigor.maths.discount.Mixture"),
        ({"atoms": (np.array([0.4]), np.ones(1))}, "their sum is off by 0.1"),
    ],
)
def test_a_discount_that_contradicts_itself_is_refused(member, said):
    with pytest.raises(UserError) as refusal:
        check_discount("discount=mine", with_member(Halving, **member))
    assert str(refusal.value).startswith("discount=mine: ")
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ({"f": lambda self, x: 2 * x}, "f(0) is 0 and f(1) is 2; a utility has f(0) = 0 and"),
        ({"f": lambda self, x: x - 1}, "f(0) is -1"),
        ({"f": lambda self, x: x - x**2}, "does not increase concavely"),
        ({"f": lambda self, x: x.clip(min=-0.1, max=0)}, "f(x) <= x"),
        ({"f": lambda self, x: x.sum(-1)}, "f(x) gives shape (3,); it must be (3, 3)"),
        (
            {"oce": lambda self, x, p=None: x.mean()},
            "oce(outcomes) gives shape (); it must be (2,)",
        ),
        (
            {"oce": lambda self, x, p=None: (5.0, 0.0)},
            "oce returns 5 with c=0, where -c + mean f(c + x)",
        ),
        (
            {"value": lambda self, stock, discount, z: z},
            "gives Tensor of shape (3, 4, 5); it must be",
        ),
        ({"value": lambda self, stock, discount, z: -z.mean(-1)}, "ranks actions other than"),
        ({"value": lambda self, stock, discount, z: z.numpy().mean(-1)}, "gives ndarray of shape"),
        ({"value": lambda self, stock, discount: 0.0}, "raised TypeError"),
    ],
)
def test_a_risk_measure_that_contradicts_itself_is_refused(member, said):
    with pytest.raises(UserError) as refusal:
        check_risk("risk=mine", with_member(Losses, **member), learns=True)
    assert str(refusal.value).startswith("risk=mine: ")
    assert said in str(refusal.value)


def test_value_is_not_needed_without_learning():
    check_risk("risk=mine", with_member(Losses, value=None), learns=False)


@pytest.mark.parametrize(
    ("group", "missing"), [("discount", "step_factor, tail_factor"), ("risk", "oce, lipschitz")]
)
def test_missing_members_are_named(group, missing):
    has = {
        "discount": SimpleNamespace(factor=1, mixture=None, atoms=None),
        "risk": SimpleNamespace(f=1, value=1, needs_stock=True),
    }[group]
    config = build(composed("env=cartpole"))
    setattr(config, group, has)
    with pytest.raises(
        UserError, match=f"{group}=types.SimpleNamespace: has no {missing}; {group} needs "
    ):
        validate(config)


@pytest.mark.parametrize(
    "risk",
    [utility.CVaR(0.25), utility.Entropic(-1.0), utility.MeanVariance(0.1)],
    ids=lambda risk: type(risk).__name__,
)
def test_a_risk_neutral_value_of_a_risk_averse_f_is_refused(risk):
    mean = SimpleNamespace(
        **{name: getattr(risk, name) for name in ("f", "oce", "needs_stock", "lipschitz")},
        value=lambda stock, discount, z: z.mean(-1),
    )
    with pytest.raises(UserError, match="ranks actions other than"):
        check_risk("risk=mine", mean, learns=True)


def test_a_tail_factor_that_is_no_number_is_refused():
    broken = SimpleNamespace(
        **{name: getattr(OURS[0], name) for name in ("factor", "step_factor", "mixture", "atoms")},
        tail_factor=None,
    )
    with pytest.raises(UserError, match="tail_factor"):
        check_discount("discount=mine", broken)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"exponential_rate": 0.0}, "facts.exponential_rate is 0, but f is not"),
        ({"exponential_rate": -2.0}, "facts.exponential_rate is -2, but f is not"),
        ({"kink_slopes": (0.5, 0.6)}, "facts.kink_slopes are 0.5 and 0.6, but f is not linear"),
        ({"curvature": 0.1}, "facts.curvature is 0.1, but the slope of f falls by"),
    ],
)
def test_facts_that_f_contradicts_are_refused(facts, said):
    risk = with_member(Losses, facts=utility.UtilityFacts(**facts))
    with pytest.raises(UserError) as refusal:
        check_risk("risk=mine", risk, learns=True)
    assert said in str(refusal.value)
    assert "leave out facts that do not hold" in str(refusal.value)


def test_true_facts_pass():
    risk = with_member(Losses, facts=utility.UtilityFacts(kink_slopes=(0.0, 2.0)))
    check_risk("risk=mine", risk, learns=True)


def test_members_of_an_environment_and_of_its_copies_are_named():
    with pytest.raises(UserError, match=r"env=mine: .*num_envs"):
        check_environment("env=mine", SimpleNamespace(problem=None, make=None), learns=True)
    check_environment("env=mine", SimpleNamespace(problem=None), learns=False)
    copies = Tabular(None, None, "chain", 5, 2, 0, 10, 1000, 8).make(2, evaluation=False)
    check_copies("env=mine", copies)
    copies.frame_stack = 4
    with pytest.raises(
        UserError, match=r"frame_stack is 4, but observations have the shape \(6,\)"
    ):
        check_copies("env=mine", copies)
    copies.frame_stack = 1
    del copies.frames_per_step
    with pytest.raises(UserError, match=r"env=mine: the result of make\(\).*frames_per_step"):
        check_copies("env=mine", copies)
