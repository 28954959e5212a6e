"""Discount functions d_t and their one-step factors d_{t+1}/d_t, in whole agent steps t.

Each class is both the config schema and the object that computes. All discounts are non-increasing
with d_0 = 1. One-step factors have closed forms of their own, because a quotient of discounts fails
once d_t underflows. If d_t = E γ^t is a known mixture of exponentials (equation discount-function),
`mixture` or `atoms` describes it, and `horizons.py` turns it into a bundle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike


@dataclass
class Mixture:
    """A discount as d_t = E[γ(U)^t], U uniform on [0, 1] and γ(u) increasing.

    Attributes:
      gamma: the map u -> γ(u), vectorised.
      cdf: its inverse γ -> u.
    """

    gamma: Callable[[ArrayLike], np.ndarray]
    cdf: Callable[[ArrayLike], np.ndarray]


Atoms = tuple[np.ndarray, np.ndarray]  # (gammas, weights) with d_t = Σ weights · gammas^t exactly


class Discount(Protocol):
    """A discount function, as horizons, agents and exact solvers read it."""

    @property
    def mixture(self) -> Mixture | None:
        """The continuous mixture of exponentials equal to d_t, or None."""

    @property
    def atoms(self) -> Atoms | None:
        """The finite mixture of exponentials equal to d_t, or None."""

    @property
    def tail_factor(self) -> float:
        """The limit of the one-step factor as t grows."""

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return d_t, float64, for whole agent steps `t` of any shape."""

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return d_{t+1}/d_t in [0, 1], float64, for whole agent steps `t` of any shape."""


@dataclass
class Exponential:
    """d_t = γ^t, with `gamma` in [0, 1] per agent step."""

    gamma: float

    mixture: ClassVar[Mixture | None] = None

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)

    @property
    def atoms(self) -> Atoms:
        """The single exponential γ, of weight 1."""
        return np.array([self.gamma]), np.ones(1)

    @property
    def tail_factor(self) -> float:
        """γ."""
        return self.gamma

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return γ^t (1 at t = 0, even for γ = 0); `t` whole agent steps, any shape."""
        return np.power(float(self.gamma), _steps(t))

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return γ in the shape of `t`."""
        return np.full_like(_steps(t), self.gamma)


@dataclass
class Hyperbolic:
    """d_t = 1/(1 + kt), with `k` > 0 per agent step; a mixture with γ(u) = u^k."""

    k: float

    atoms: ClassVar[Atoms | None] = None
    tail_factor: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_positive("k", self.k)

    @property
    def mixture(self) -> Mixture:
        """γ(u) = u^k, of density γ^{1/k − 1}/k."""
        return Mixture(lambda u: np.power(u, self.k), lambda gamma: np.power(gamma, 1.0 / self.k))

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return 1/(1 + kt); `t` whole agent steps, any shape."""
        return 1.0 / (1.0 + self.k * _steps(t))

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return (1 + kt)/(1 + k(t + 1))."""
        return _hyperbolic_step(self.k, t)


@dataclass
class GeneralizedHyperbolic:
    """d_t = (1 + kt)^−b, with `k` > 0 per agent step and `b` > 0; summable for b > 1."""

    k: float
    b: float

    atoms: ClassVar[Atoms | None] = None
    tail_factor: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _check_positive("k", self.k)
        _check_positive("b", self.b)

    @property
    def mixture(self) -> Mixture:
        """γ = e^{−kΛ}, Λ ~ Gamma(b, 1), with u the survival probability P(Λ > λ)."""
        from scipy.special import gammaincc, gammainccinv

        return Mixture(
            lambda u: np.exp(-self.k * gammainccinv(self.b, u)),
            lambda gamma: gammaincc(self.b, -np.log(gamma) / self.k),
        )

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return (1 + kt)^−b; `t` whole agent steps, any shape."""
        return np.power(1.0 + self.k * _steps(t), -self.b)

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return ((1 + kt)/(1 + k(t + 1)))^b."""
        return np.power(_hyperbolic_step(self.k, t), self.b)


@dataclass
class QuasiHyperbolic:
    """d_0 = 1 and d_t = βγ^t for t > 0, with `beta` in (0, 1] and `gamma` in [0, 1]."""

    beta: float
    gamma: float

    mixture: ClassVar[Mixture | None] = None

    def __post_init__(self) -> None:
        if not 0.0 < self.beta <= 1.0:
            raise ValueError(f"discount.beta={self.beta}: must be above 0 and at most 1")
        _check_gamma(self.gamma)

    @property
    def atoms(self) -> Atoms:
        """γ with weight β, and 0 with weight 1 − β, which contributes at t = 0 only."""
        if self.beta == 1.0 or self.gamma == 0.0:
            return np.array([self.gamma]), np.ones(1)
        return np.array([self.gamma, 0.0]), np.array([self.beta, 1.0 - self.beta])

    @property
    def tail_factor(self) -> float:
        """γ."""
        return self.gamma

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return 1 at t = 0 and βγ^t beyond; `t` whole agent steps, any shape."""
        t = _steps(t)
        return np.where(t == 0.0, 1.0, self.beta * np.power(float(self.gamma), t))

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return βγ at t = 0 and γ beyond."""
        return np.where(_steps(t) == 0.0, self.beta * self.gamma, self.gamma)


@dataclass
class CIR:
    """The price of a zero-coupon bond under Cox-Ingersoll-Ross rates (appendix, "discount-CIR").

    dr = a(b − r)dt + σ√r dW: `a` > 0, `b` > 0, `sigma` > 0, `r0` >= 0, time in agent steps.
    2ab >= σ² would keep r strictly positive, but d_t is non-increasing without it, so it is not
    required (erratum E12). d_t is asymptotically exponential, not hyperbolic (erratum E13).

    With h = √(a² + 2σ²), e = exp(−ht) and y(e) = a + h + (h − a)e, where h − a = 2σ²/(a + h),
    log d_t = −2ab/(a + h) t − 2ab/σ² log(y(e)/2h) − 2 r0 (1 − e)/y(e). The paper's exp(ht) would
    overflow from t ≈ 4,700 on (erratum E12).
    """

    a: float
    b: float
    sigma: float
    r0: float

    mixture: ClassVar[Mixture | None] = None
    atoms: ClassVar[Atoms | None] = None

    def __post_init__(self) -> None:
        _check_positive("a", self.a)
        _check_positive("b", self.b)
        _check_positive("sigma", self.sigma)
        if not 0.0 <= self.r0 < np.inf:
            raise ValueError(f"discount.r0={self.r0}: the initial rate must be 0 or above")

    @property
    def tail_factor(self) -> float:
        """exp(−2ab/(a + h)) (erratum E12)."""
        return float(np.exp(-2.0 * self.a * self.b / (self.a + self._h)))

    @property
    def _h(self) -> float:
        return float(np.hypot(self.a, np.sqrt(2.0) * self.sigma))

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return d_t from its logarithm; `t` whole agent steps, any shape."""
        t = _steps(t)
        h, gap = self._h, 2.0 * self.sigma**2 / (self.a + self._h)  # gap = h − a
        decayed = -np.expm1(-h * t)  # 1 − e
        y = 2.0 * h - gap * decayed
        power = 2.0 * self.a * self.b / self.sigma**2
        return np.exp(
            -2.0 * self.a * self.b / (self.a + h) * t
            - power * np.log1p(-gap / (2.0 * h) * decayed)
            - 2.0 * self.r0 * decayed / y
        )

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return d_{t+1}/d_t from closed-form differences of the logarithm's terms."""
        e = np.exp(-self._h * _steps(t))
        h, gap = self._h, 2.0 * self.sigma**2 / (self.a + self._h)
        decrease = -np.expm1(-h) * e  # e(t) − e(t + 1)
        y = self.a + h + gap * e
        y_next = y - gap * decrease
        power = 2.0 * self.a * self.b / self.sigma**2
        return np.exp(
            -2.0 * self.a * self.b / (self.a + h)
            - power * np.log1p(-gap * decrease / y)
            - 4.0 * h * self.r0 * decrease / (y * y_next)
        )


@dataclass
class Capped:
    """One-step factors min(d̂_t, γ_tail) of another discount (section "Infinite Horizon").

    This holds d̂ constant from a time T on only if the base's d̂ is non-decreasing, which is not the
    case for CIR with r0 < b (erratum E14).

    Attributes:
      base: the discount to cap.
      gamma_tail: the largest one-step factor, in (0, 1).
    """

    base: Any
    gamma_tail: float

    mixture: ClassVar[Mixture | None] = None
    atoms: ClassVar[Atoms | None] = None

    def __post_init__(self) -> None:
        if not hasattr(self.base, "step_factor"):
            raise ValueError(f"discount.base={self.base!r}: not a discount of the group discount")
        _check_tail(self.gamma_tail)

    @property
    def tail_factor(self) -> float:
        """min(the base's limit, γ_tail)."""
        return min(float(self.base.tail_factor), self.gamma_tail)

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return Π_{s<t} min(d̂_s, γ_tail); `t` whole agent steps, any shape."""
        t = np.asarray(t, dtype=np.int64)
        with np.errstate(divide="ignore"):  # log 0, for a base with γ = 0
            # a running product would stay at the smallest float, since .98 of it rounds back up
            logs = np.log(self.step_factor(np.arange(t.max(initial=0))))
        return np.exp(np.concatenate([np.zeros(1), np.cumsum(logs)]))[t]

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return min(d̂_t, γ_tail)."""
        return np.minimum(self.base.step_factor(t), self.gamma_tail)


@dataclass
class TailIntegral:
    """d_t = γ_tail^t/(1 + kt): the hyperbolic integral stopped at γ_tail (appendix).

    `k` > 0 per agent step, `gamma_tail` in (0, 1). The one-step factor is
    γ_tail (1 + kt)/(1 + kt + k), where the paper has γ_tail^k (erratum E6).
    """

    k: float
    gamma_tail: float

    atoms: ClassVar[Atoms | None] = None

    def __post_init__(self) -> None:
        _check_positive("k", self.k)
        _check_tail(self.gamma_tail)

    @property
    def mixture(self) -> Mixture:
        """γ(u) = γ_tail u^k."""
        return Mixture(
            lambda u: self.gamma_tail * np.power(u, self.k),
            lambda gamma: np.power(np.divide(gamma, self.gamma_tail), 1.0 / self.k),
        )

    @property
    def tail_factor(self) -> float:
        """γ_tail."""
        return self.gamma_tail

    def factor(self, t: ArrayLike) -> np.ndarray:
        """Return γ_tail^t/(1 + kt); `t` whole agent steps, any shape."""
        return np.power(self.gamma_tail, _steps(t)) / (1.0 + self.k * _steps(t))

    def step_factor(self, t: ArrayLike) -> np.ndarray:
        """Return γ_tail (1 + kt)/(1 + k(t + 1)) (erratum E6)."""
        return self.gamma_tail * _hyperbolic_step(self.k, t)


def _steps(t: ArrayLike) -> np.ndarray:
    """Return whole agent steps as float64."""
    return np.asarray(t, dtype=np.float64)


def _hyperbolic_step(k: float, t: ArrayLike) -> np.ndarray:
    """Return (1 + kt)/(1 + k(t + 1))."""
    return (1.0 + k * _steps(t)) / (1.0 + k * (_steps(t) + 1.0))


def _check_gamma(gamma: float) -> None:
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"discount.gamma={gamma}: must lie in [0, 1]")


def _check_tail(gamma_tail: float) -> None:
    if not 0.0 < gamma_tail < 1.0:
        raise ValueError(
            f"discount.gamma_tail={gamma_tail}: must lie strictly between 0 and 1; choose the "
            "uncapped discount for no cap"
        )


def _check_positive(name: str, value: float) -> None:
    if not 0.0 < value < np.inf:
        raise ValueError(f"discount.{name}={value}: must be positive and finite")
