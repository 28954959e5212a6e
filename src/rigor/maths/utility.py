"""OCE utilities f, the ranking value of an action under f, and each risk measure's direct formula.

OCE_f(X) = sup_c {−c + E f(c + X)} (equation oce; table "Common Risk Measures as OCEs"). Signs
follow the table: (x)₋ = min(x, 0) (erratum E1) and β < 0 (erratum E2). Each utility is both the
config schema and the object that computes. `f` and `value` take numpy arrays or torch tensors;
`direct` and `oce` take numpy arrays.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace

from rigor.maths.discrete_distribution import distribution, quantile_maximiser, worst_mean
from rigor.maths.piecewise_linear import piecewise_linear, piecewise_linear_value, ratio

Array = Any  # a numpy array or a torch tensor; torch is never imported here
ValueAndStock = tuple[float, float]  # an OCE and a maximiser c

# Below this discount the agents choose by the mean. S_t is a float64 sum with an error of about
# 1e-16, so C_t = S_t/discount(t) has an error of 1e-4 here: too large to locate the kink, while
# future rewards weigh less than 1e-12 of a reward earned now.
DISCOUNT_LIMIT = 1e-12

# Where |β·discount| is smaller, the certainty equivalent equals the mean in float64.
_ENTROPIC_LIMIT = 1e-200


@dataclass(frozen=True)
class UtilityFacts:
    """Optional facts about f that allow closed forms; by default no fact is known.

    Attributes:
      exponential_rate: β of f(x) = (exp(βx) − 1)/β, or 0 for its limit, the mean. The solvers then
        need no stock.
      kink_slopes: the slopes above and below 0 of an f that is linear on both sides of 0.
      curvature: K, the most that the slope of f falls per reward unit; infinite at a kink.
    """

    exponential_rate: float | None = None
    kink_slopes: tuple[float, float] | None = None
    curvature: float = np.inf


class Utility(Protocol):
    """A utility. It may also have an attribute `facts: UtilityFacts`, which `facts_of` reads."""

    @property
    def needs_stock(self) -> bool:
        """Whether the best action can depend on the stock."""

    @property
    def lipschitz(self) -> float | None:
        """The Lipschitz constant L of f, or None if f has none (erratum E4)."""

    def f(self, x: Array) -> Array:
        """Return the utility of every total outcome."""

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return the ranking value of every action, [B, A]: (mean_j f(S + D z_j) − f(S))/D.

        The entropic utility returns an increasing function of it. Finite for every discount >= 0.

        Args:
          stock: S_t, float64 [B], reward units.
          discount: D = d̃_t, float64 [B], >= 0.
          z: outcomes Σ_i w_{i,t} ξ_ij, float64 [B, A, N], reward units.
        """

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return sup_c {−c + E f(c + X)} and the maximiser nearest 0."""


def facts_of(utility: Utility) -> UtilityFacts:
    """Return the facts that a utility states; a utility of the user may state none."""
    return getattr(utility, "facts", UtilityFacts())


def tail_of(utility: Utility) -> float:
    """Return the fraction of worst outcomes that decides a risk measure: its `tau`, or else 1."""
    return float(getattr(utility, "tau", 1.0))


def is_mean(utility: Utility) -> bool:
    """Whether f(x) = x, so that mean returns alone rank the actions."""
    return facts_of(utility).exponential_rate == 0.0


def steepest_slope(utility: Utility, lowest: float) -> float:
    """Return L, or the slope of f at the lowest total outcome where f has no constant L."""
    if utility.lipschitz is not None:
        return utility.lipschitz
    step = max(abs(lowest), 1.0) * 1e-6
    ends = np.array([lowest - step, lowest])
    return float(np.diff(utility.f(ends))[0] / step)


@dataclass
class Mean:
    """The mean: f(x) = x. J(c₀) is constant, so c₀ = 0 without an outer search (erratum E5)."""

    needs_stock: ClassVar[bool] = False
    lipschitz: ClassVar[float] = 1.0  # erratum E4
    facts: ClassVar[UtilityFacts] = UtilityFacts(exponential_rate=0.0)

    def f(self, x: Array) -> Array:
        """Return x."""
        return x

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return mean_j z_j, [B, A], which depends on neither stock nor discount."""
        return array_namespace(z).mean(z, axis=-1)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return E[X]; `outcomes` and `probabilities` [n], equally likely when None."""
        x, p = distribution(outcomes, probabilities)
        return float(p @ x)

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return (E[X], 0): every c is a maximiser (erratum E5)."""
        return self.direct(outcomes, probabilities), 0.0


@dataclass
class CVaR:
    """The mean of the worst fraction `tau`, in (0, 1]: f(x) = min(x, 0)/τ (erratum E1)."""

    tau: float

    needs_stock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    @property
    def lipschitz(self) -> float:
        """L = 1/τ (erratum E4)."""
        return 1.0 / self.tau

    @property
    def facts(self) -> UtilityFacts:
        """The slopes 0 and 1/τ of f."""
        return UtilityFacts(kink_slopes=(0.0, self.lipschitz))

    def f(self, x: Array) -> Array:
        """Return min(x, 0)/τ."""
        return piecewise_linear(x, 0.0, self.lipschitz)

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A]; see `piecewise_linear_value`."""
        return piecewise_linear_value(stock, discount, z, 0.0, self.lipschitz)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return the mean of the worst fraction `tau`; the last atom counts in part."""
        return worst_mean(*distribution(outcomes, probabilities), self.tau)

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return sup_c {−c + E f(c + X)} and its maximiser nearest 0 (erratum E5)."""
        x, p = distribution(outcomes, probabilities)
        return _attained(self, quantile_maximiser(x, p, self.tau), x, p)


@dataclass
class MeanCVaR:
    """κ·mean + (1 − κ)·CVaR_τ: f(x) = κ₁ max(x, 0) + κ₂ min(x, 0), κ₁ = κ, κ₂ = (1 − κ)/τ + κ.

    `kappa` lies in [0, 1] and `tau` in (0, 1].
    """

    kappa: float
    tau: float

    needs_stock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.kappa <= 1.0:
            raise ValueError(
                f"risk.kappa={self.kappa}: the weight of the mean lies from 0 (CVaR) to 1 (mean)"
            )
        _check_tau(self.tau)

    @property
    def lipschitz(self) -> float:
        """L = κ₂ (erratum E4)."""
        return (1.0 - self.kappa) / self.tau + self.kappa

    @property
    def facts(self) -> UtilityFacts:
        """The slopes κ₁ and κ₂ of f."""
        return UtilityFacts(kink_slopes=(self.kappa, self.lipschitz))

    def f(self, x: Array) -> Array:
        """Return κ₁ max(x, 0) + κ₂ min(x, 0)."""
        return piecewise_linear(x, self.kappa, self.lipschitz)

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A]; see `piecewise_linear_value`."""
        return piecewise_linear_value(stock, discount, z, self.kappa, self.lipschitz)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return κ E[X] + (1 − κ) CVaR_τ(X)."""
        x, p = distribution(outcomes, probabilities)
        return self.kappa * float(p @ x) + (1.0 - self.kappa) * worst_mean(x, p, self.tau)

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return sup_c {−c + E f(c + X)} and its maximiser nearest 0 (erratum E5).

        The slope is (1 − κ)(P(X < −c)/τ − 1) almost everywhere: the maximisers are CVaR's.
        """
        x, p = distribution(outcomes, probabilities)
        c = 0.0 if self.kappa == 1.0 else quantile_maximiser(x, p, self.tau)
        return _attained(self, c, x, p)


@dataclass
class Entropic:
    """log E[exp(βX)]/β: f(x) = (exp(βx) − 1)/β, `beta` < 0 per raw reward unit (erratum E2)."""

    beta: float

    needs_stock: ClassVar[bool] = False
    lipschitz: ClassVar[None] = None  # f' = exp(βx) is unbounded (erratum E4)

    def __post_init__(self) -> None:
        if not -np.inf < self.beta < 0.0:
            raise ValueError(
                f"risk.beta={self.beta}: must be negative; the entropic risk is averse there "
                f"(the paper's theorem writes the opposite sign); use risk=mean for beta = 0"
            )

    @property
    def facts(self) -> UtilityFacts:
        """The rate β."""
        return UtilityFacts(exponential_rate=self.beta)

    def f(self, x: Array) -> Array:
        """Return (exp(βx) − 1)/β; −inf where a large negative x overflows (erratum E2)."""
        with np.errstate(over="ignore"):  # −inf is the answer there
            return array_namespace(x).expm1(self.beta * x) / self.beta

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return the certainty equivalent log(mean_j exp(βD z_j))/(βD), [B, A].

        It increases with mean_j f(S + D z_j) for every stock S, and is the mean at D = 0. With
        y = z − min z >= 0 it is min z + log1p(mean_j expm1(βD y_j))/(βD), which cannot overflow.
        """
        xp = array_namespace(z)
        rate = self.beta * discount[:, None, None]  # [B, 1, 1]
        is_mean = -rate < _ENTROPIC_LIMIT
        rate = xp.where(is_mean, -xp.ones_like(rate), rate)
        lowest = xp.min(z, axis=-1, keepdims=True)  # [B, A, 1]
        shifted = xp.mean(xp.expm1(rate * (z - lowest)), axis=-1)  # [B, A]
        equivalent = lowest[..., 0] + xp.log1p(shifted) / rate[..., 0]
        return xp.where(is_mean[..., 0], xp.mean(z, axis=-1), equivalent)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return log(E exp(βX))/β without overflow."""
        x, p = distribution(outcomes, probabilities)
        lowest = x.min()
        rates = self.beta * (x - lowest)
        decline = p @ np.expm1(rates)
        # near −1, 1 + decline would lose the digits of the lowest outcomes
        log = np.log1p(decline) if decline > -0.5 else np.log(p @ np.exp(rates))
        return float(lowest + log / self.beta)

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return sup_c {−c + E f(c + X)} and its maximiser, c = −(the certainty equivalent)."""
        x, p = distribution(outcomes, probabilities)
        return _attained(self, -self.direct(x, p), x, p)


@dataclass
class MeanVariance:
    """E[X] − κ Var(X), monotone: f(x) = x − κx² up to 1/(2κ) and 1/(4κ) above it.

    `kappa` > 0 per raw reward unit. The OCE equals E − κ Var if ess sup X − E[X] <= 1/(2κ), and is
    larger otherwise (erratum E3).
    """

    kappa: float

    needs_stock: ClassVar[bool] = True
    lipschitz: ClassVar[None] = None  # f' = 1 − 2κx is unbounded below the bend (erratum E4)

    def __post_init__(self) -> None:
        if not 0.0 < self.kappa < np.inf:
            raise ValueError(
                f"risk.kappa={self.kappa}: the weight of the variance must be positive and finite; "
                f"use risk=mean for kappa = 0"
            )

    @property
    def facts(self) -> UtilityFacts:
        """The curvature 2κ."""
        return UtilityFacts(curvature=2.0 * self.kappa)

    def f(self, x: Array) -> Array:
        """Return y − κy² with y = min(x, 1/(2κ))."""
        y = array_namespace(x).clip(x, max=0.5 / self.kappa)
        return y * (1.0 - self.kappa * y)

    def value(self, stock: Array, discount: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A], in closed form around S.

        With g = 1/(2κ) − S, the distance to the bend: for g > 0 and y = min(z, g/D) it is the mean
        of κ y (2g − D y), for g <= 0 the mean of −κ D max(g/D − z, 0)².
        """
        xp = array_namespace(z)
        distance = 0.5 / self.kappa - stock
        bend = ratio(distance, discount)[:, None, None]
        distance, discount = distance[:, None, None], discount[:, None, None]
        y = xp.minimum(z, xp.clip(bend, min=0.0))
        below = y * (2.0 * xp.clip(distance, min=0.0) - discount * y)
        above = -discount * xp.clip(xp.clip(bend, max=0.0) - z, min=0.0) ** 2
        return self.kappa * xp.mean(xp.where(distance > 0.0, below, above), axis=-1)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return E[X] − κ Var(X)."""
        x, p = distribution(outcomes, probabilities)
        mean = float(p @ x)
        return mean - self.kappa * float(p @ (x - mean) ** 2)

    def oce(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> ValueAndStock:
        """Return sup_c {−c + E f(c + X)} and its only maximiser (erratum E3).

        With v = 1/(2κ) − c the first-order condition is E max(v − X, 0) = 1/(2κ). Its left side
        increases and is piecewise linear in v, so the segment that holds v gives it in closed form.
        """
        x, p = distribution(outcomes, probabilities)
        order = np.argsort(x, kind="stable")
        above_lowest = x[order] - x[order[0]]
        roots = (0.5 / self.kappa + np.cumsum(p[order] * above_lowest)) / np.cumsum(p[order])
        # roots[k] solves the condition if exactly the k + 1 lowest outcomes lie below v
        valid = roots <= np.append(above_lowest[1:], np.inf)
        v = roots[np.argmax(valid)] + x[order[0]]
        return _attained(self, float(0.5 / self.kappa - v), x, p)


@dataclass(frozen=True)
class RiskLevel:
    """Another level of a risk measure, for an agent that was trained for one level.

    For every return G: E f'(c' + G) = scale · E f(c' + shift + G) + offset. So the agent that
    starts at the stock c = c' + shift plays the best policy of f' for c'.

    Attributes:
      utility: f', of the other level.
      shift: reward units. scale: above 0. offset: reward units.
    """

    utility: Utility
    shift: float
    scale: float
    offset: float

    def objective(self, stock: Array, trained: Array) -> Array:
        """Return J'(c − shift) from the trained level's J(c) at stocks c."""
        return self.scale * (trained + stock) + self.offset - (stock - self.shift)


def other_level(utility: Utility, level: float) -> RiskLevel:
    """Return the level `tau` of CVaR, or `kappa` of mean-variance, for an agent of another level.

    CVaR: f_τ' = (τ/τ') f_τ, so at a given stock both rank the actions alike. Mean-variance: f_κ is
    constant beyond its bend, f_κ(x) = 1/(4κ) − κ max(1/(2κ) − x, 0)², so f_κ'(x) = 1/(4κ') −
    (κ'/κ)(1/(4κ) − f_κ(x + 1/(2κ) − 1/(2κ'))): the same ranking at a shifted stock.

    Raises:
      ValueError: the level is out of range, or no agent of this risk measure serves other levels.
    """
    if isinstance(utility, CVaR):
        return RiskLevel(CVaR(level), 0.0, utility.tau / level, 0.0)
    if isinstance(utility, MeanVariance):
        other, kappa = MeanVariance(level), utility.kappa
        shift, ratio = 0.5 / kappa - 0.5 / level, level / kappa
        return RiskLevel(other, shift, ratio, 0.25 / level - ratio * 0.25 / kappa)
    raise ValueError(
        "an agent serves other levels for risk=cvar (risk.tau) and risk=mean_variance (risk.kappa) "
        "only: with another risk measure the level changes how actions are ranked"
    )


def _check_tau(tau: float) -> None:
    """Refuse a fraction outside (0, 1]."""
    if not 0.0 < tau <= 1.0:
        raise ValueError(
            f"risk.tau={tau}: the fraction of worst outcomes lies above 0 and at most at 1 (mean)"
        )


def _attained(utility: Utility, c: float, x: np.ndarray, p: np.ndarray) -> ValueAndStock:
    """Return −c + E f(c + X) and c (as +0.0 rather than −0.0)."""
    return float(p @ utility.f(c + x) - c), c + 0.0
