"""OCE utilities f, the ranking value of an action under f, and each risk measure's direct formula.

OCE_f(X) = sup_c {−c + E f(c + X)} (equation oce; table "Common Risk Measures as OCEs"). Signs
follow the table, (x)₋ = min(x, 0) (erratum E1) and β < 0 (erratum E2). Every utility is a schema as
well as the working object. `f` and `value` take numpy arrays or torch tensors; `direct` and `oce`
take numpy arrays.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace
from omegaconf import MISSING

from rigor.maths.discrete import distribution, quantile_maximiser, worst_mean

Array = Any  # a numpy array or a torch tensor; torch is never imported here

# The stock S_t is a float64 sum, known to about 1e-16 of its size, so C_t = S_t/mass(t) is known to
# 1e-4 of that size at this mass and no better below: the place of a kink is then noise, while what
# is left to earn weighs less than 1e-12 of a reward earned now. The choice there is by the mean.
MASS_LIMIT = 1e-12

# Where |β·mass| is smaller the certainty equivalent is the mean to the last digit of a float64.
_ENTROPIC_LIMIT = 1e-200


class Utility(Protocol):
    """What the agents, the exact solvers and the outer search ask of a utility."""

    @property
    def needs_stock(self) -> bool:
        """Whether the best action can depend on the stock."""

    @property
    def positively_homogeneous(self) -> bool:
        """Whether f(λx) = λ f(x) for λ > 0 ("indifference to scaling")."""

    @property
    def lipschitz(self) -> float | None:
        """The constant L of f, None where there is no global one (erratum E4)."""

    def f(self, x: Array) -> Array:
        """Return the utility of every total outcome."""

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return the ranking value of every action, [B, A]: (mean_j f(S + D z_j) − f(S))/D.

        An increasing function of that for the entropic utility. Finite for every mass >= 0.

        Args:
          stock: S_t, float64 [B], reward units.
          mass: D = d̃_t, float64 [B], >= 0.
          z: outcomes Σ_i w_{i,t} ξ_ij, float64 [B, A, N], reward units.
        """

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return the risk measure by its textbook formula."""

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return sup_c {−c + E f(c + X)} and the maximiser nearest 0."""


@dataclass
class Mean:
    """The mean: f(x) = x. J(c₀) is constant: c₀ = 0, without an outer search (erratum E5)."""

    needs_stock: ClassVar[bool] = False
    positively_homogeneous: ClassVar[bool] = True

    @property
    def lipschitz(self) -> float:
        """L = 1 (erratum E4)."""
        return 1.0

    def f(self, x: Array) -> Array:
        """Return x."""
        return x

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return mean_j z_j, [B, A]; the stock and the mass do not matter."""
        return array_namespace(z).mean(z, axis=-1)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return E[X]; `outcomes` and `probabilities` [n], equally likely when None."""
        x, p = distribution(outcomes, probabilities)
        return float(p @ x)

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return (E[X], 0): every c is a maximiser (erratum E5)."""
        return self.direct(outcomes, probabilities), 0.0


@dataclass
class CVaR:
    """The mean of the worst fraction `tau`, in (0, 1]: f(x) = min(x, 0)/τ (erratum E1)."""

    tau: float = MISSING

    needs_stock: ClassVar[bool] = True
    positively_homogeneous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_tau(self.tau)

    @property
    def lipschitz(self) -> float:
        """L = 1/τ (erratum E4)."""
        return 1.0 / self.tau

    def f(self, x: Array) -> Array:
        """Return min(x, 0)/τ."""
        return _piecewise_linear(x, 0.0, self.lipschitz)

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A]; see `_piecewise_linear_value`."""
        return _piecewise_linear_value(stock, mass, z, 0.0, self.lipschitz)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return the mean of the worst `tau` of the distribution, its last atom taken in part."""
        return worst_mean(*distribution(outcomes, probabilities), self.tau)

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return sup_c {−c + E f(c + X)} and its maximiser nearest 0 (erratum E5)."""
        x, p = distribution(outcomes, probabilities)
        return _attained(self, quantile_maximiser(x, p, self.tau), x, p)


@dataclass
class MeanCVaR:
    """κ·mean + (1 − κ)·CVaR_τ: f(x) = κ₁ max(x, 0) + κ₂ min(x, 0), κ₁ = κ, κ₂ = (1 − κ)/τ + κ.

    `kappa` lies in [0, 1] and `tau` in (0, 1].
    """

    kappa: float = MISSING
    tau: float = MISSING

    needs_stock: ClassVar[bool] = True
    positively_homogeneous: ClassVar[bool] = True

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

    def f(self, x: Array) -> Array:
        """Return κ₁ max(x, 0) + κ₂ min(x, 0)."""
        return _piecewise_linear(x, self.kappa, self.lipschitz)

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A]; see `_piecewise_linear_value`."""
        return _piecewise_linear_value(stock, mass, z, self.kappa, self.lipschitz)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return κ E[X] + (1 − κ) CVaR_τ(X)."""
        x, p = distribution(outcomes, probabilities)
        return self.kappa * float(p @ x) + (1.0 - self.kappa) * worst_mean(x, p, self.tau)

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return sup_c {−c + E f(c + X)} and its maximiser nearest 0 (erratum E5).

        The slope is (1 − κ)(P(X < −c)/τ − 1) almost everywhere: the maximisers are CVaR's.
        """
        x, p = distribution(outcomes, probabilities)
        c = 0.0 if self.kappa == 1.0 else quantile_maximiser(x, p, self.tau)
        return _attained(self, c, x, p)


@dataclass
class Entropic:
    """log E[exp(βX)]/β: f(x) = (exp(βx) − 1)/β, `beta` < 0 per raw reward unit (erratum E2)."""

    beta: float = MISSING

    needs_stock: ClassVar[bool] = False
    positively_homogeneous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not -np.inf < self.beta < 0.0:
            raise ValueError(
                f"risk.beta={self.beta}: the entropic risk is averse for beta < 0 and would seek "
                f"risk above it (the paper's theorem writes the opposite sign); "
                f"take a negative number, or risk=mean for beta = 0"
            )

    @property
    def lipschitz(self) -> None:
        """None: f' = exp(βx) is unbounded (erratum E4)."""
        return None

    def f(self, x: Array) -> Array:
        """Return (exp(βx) − 1)/β; −inf where a large negative x overflows (erratum E2)."""
        with np.errstate(over="ignore"):  # −inf is the answer there
            return array_namespace(x).expm1(self.beta * x) / self.beta

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return the certainty equivalent log(mean_j exp(βD z_j))/(βD), [B, A].

        It is increasing in mean_j f(S + D z_j) whatever the stock, and is the mean at D = 0. With
        y = z − min z >= 0 it is min z + log1p(mean_j expm1(βD y_j))/(βD): nothing overflows.
        """
        xp = array_namespace(z)
        rate = self.beta * mass[:, None, None]  # [B, 1, 1]
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
        gone = p @ np.expm1(rates)
        # near −1 only the lowest outcomes are left, and 1 + gone has lost their digits
        log = np.log1p(gone) if gone > -0.5 else np.log(p @ np.exp(rates))
        return float(lowest + log / self.beta)

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return sup_c {−c + E f(c + X)} and its maximiser, c = −(the certainty equivalent)."""
        x, p = distribution(outcomes, probabilities)
        return _attained(self, -self.direct(x, p), x, p)


@dataclass
class MeanVariance:
    """E[X] − κ Var(X), monotone: f(x) = x − κx² up to 1/(2κ) and 1/(4κ) above it.

    `kappa` > 0 per raw reward unit. The OCE is E − κ Var only if ess sup X − E[X] <= 1/(2κ);
    else it is larger (erratum E3).
    """

    kappa: float = MISSING

    needs_stock: ClassVar[bool] = True
    positively_homogeneous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0.0 < self.kappa < np.inf:
            raise ValueError(
                f"risk.kappa={self.kappa}: the weight of the variance must be positive and finite; "
                f"use risk=mean for kappa = 0"
            )

    @property
    def lipschitz(self) -> None:
        """None: f' = 1 − 2κx is unbounded below the bend (erratum E4)."""
        return None

    def f(self, x: Array) -> Array:
        """Return y − κy² with y = min(x, 1/(2κ))."""
        y = array_namespace(x).clip(x, max=0.5 / self.kappa)
        return y * (1.0 - self.kappa * y)

    def value(self, stock: Array, mass: Array, z: Array) -> Array:
        """Return (mean_j f(S + D z_j) − f(S))/D, [B, A], in closed form around S.

        With the room g = 1/(2κ) − S left below the bend: for g > 0 and y = min(z, g/D) it is the
        mean of κ y (2g − D y), for g <= 0 that of −κ D max(g/D − z, 0)².
        """
        xp = array_namespace(z)
        room = 0.5 / self.kappa - stock
        bend = _ratio(room, mass)[:, None, None]
        room, mass = room[:, None, None], mass[:, None, None]
        y = xp.minimum(z, xp.clip(bend, min=0.0))
        below = y * (2.0 * xp.clip(room, min=0.0) - mass * y)
        above = -mass * xp.clip(xp.clip(bend, max=0.0) - z, min=0.0) ** 2
        return self.kappa * xp.mean(xp.where(room > 0.0, below, above), axis=-1)

    def direct(self, outcomes: np.ndarray, probabilities: np.ndarray | None = None) -> float:
        """Return E[X] − κ Var(X)."""
        x, p = distribution(outcomes, probabilities)
        mean = float(p @ x)
        return mean - self.kappa * float(p @ (x - mean) ** 2)

    def oce(
        self, outcomes: np.ndarray, probabilities: np.ndarray | None = None
    ) -> tuple[float, float]:
        """Return sup_c {−c + E f(c + X)} and its only maximiser (erratum E3).

        With v = 1/(2κ) − c the first-order condition is E max(v − X, 0) = 1/(2κ); its left side is
        increasing and piecewise linear in v, so v is found segment by segment.
        """
        x, p = distribution(outcomes, probabilities)
        order = np.argsort(x, kind="stable")
        above_lowest = x[order] - x[order[0]]
        levels = (0.5 / self.kappa + np.cumsum(p[order] * above_lowest)) / np.cumsum(p[order])
        # levels[k] solves the condition when exactly the k + 1 lowest outcomes lie below v
        fits = levels <= np.append(above_lowest[1:], np.inf)
        v = levels[np.argmax(fits)] + x[order[0]]
        return _attained(self, float(0.5 / self.kappa - v), x, p)


def _check_tau(tau: float) -> None:
    """Refuse a tail outside (0, 1]."""
    if not 0.0 < tau <= 1.0:
        raise ValueError(
            f"risk.tau={tau}: the share of worst outcomes lies above 0 and at most at 1 (mean)"
        )


def _attained(utility: Utility, c: float, x: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Return −c + E f(c + X) and c (as +0.0 rather than −0.0)."""
    return float(p @ utility.f(c + x) - c), c + 0.0


def _ratio(stock: Array, mass: Array) -> Array:
    """Return stock/mass with 0/0 = 0; a mass of 0 sends any other stock to ±inf."""
    xp = array_namespace(stock)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return xp.where(stock == 0.0, xp.zeros_like(stock), stock / mass)


def _piecewise_linear(x: Array, gain: float, loss: float) -> Array:
    """Return gain·max(x, 0) + loss·min(x, 0)."""
    xp = array_namespace(x)
    return gain * xp.clip(x, min=0.0) + loss * xp.clip(x, max=0.0)


def _piecewise_linear_value(stock: Array, mass: Array, z: Array, gain: float, loss: float) -> Array:
    """Return mean_j (f(C + z_j) − f(C)), [B, A], C = S/D, without subtracting large numbers.

    From C <= 0 the way to the kink is worth κ₂ and what lies beyond it κ₁, from C > 0 the reverse:
    κ₂ min(z, −C) + κ₁ max(z + C, 0), or κ₁ max(z, −C) + κ₂ min(z + C, 0).

    `gain` is κ₁, the slope above 0, and `loss` is κ₂, the slope below it.
    """
    xp = array_namespace(z)
    c = _ratio(stock, mass)[:, None, None]  # [B, 1, 1]
    shortfall, surplus = xp.clip(c, max=0.0), xp.clip(c, min=0.0)  # no 0·inf in the other branch
    behind = loss * xp.minimum(z, -shortfall) + gain * xp.clip(z + shortfall, min=0.0)
    ahead = gain * xp.maximum(z, -surplus) + loss * xp.clip(z + surplus, max=0.0)
    return xp.mean(xp.where(c <= 0.0, behind, ahead), axis=-1)
