"""Bundles of horizons (Γ, w): a discount as a weighted sum of exponentials, or the discount itself.

d_t ≈ d̃_t = Σ_i w_i γ_i^t (section "Multi-Horizon"). A bundle has four functions of the time t in
whole agent steps: step_factors(t) multiplies the next quantiles in the target, mixture(t) the
quantiles inside the utility, discount(t) = Σ_i mixture_i(t) = d̃_t, and normalised_weights(t) =
mixture(t)/discount(t). The weights w sum to one, so d̃_0 = 1, as the identity of the total outcome
requires (erratum E9).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rigor.maths.discount import Discount, Mixture

FIT_STEPS = 3000  # agent steps over which a fit is judged
NEGLIGIBLE = 1e-6  # steps with a smaller d_t are ignored
FIT_TIMES = 400  # log-spaced steps at which the exponentials are fitted
MAX_EVALUATIONS = 60  # of the least-squares search for the nodes
FIT_NODES = 300  # candidate nodes, with 1 − γ log-spaced in [1e-4, 1]
WORST_FIT = 0.05  # the largest accepted relative error
_START_WEIGHT = 1e3  # weight in a fit of d_0 = 1, relative to other steps


@dataclass
class HorizonTables:
    """A bundle's four functions of time at t = 0 ... max_time + 1, float64.

    Attributes:
      step_factors: [max_time + 2, M].
      mixture: [max_time + 2, M].
      discount: [max_time + 2].
      weights: [max_time + 2, M].
    """

    step_factors: np.ndarray
    mixture: np.ndarray
    discount: np.ndarray
    weights: np.ndarray


@dataclass
class Bundle:
    """A bundle of M horizons (Γ, w).

    Attributes:
      gammas: Γ, float64 [M]; None for a single horizon, whose discount is the true discount.
      weights: w, float64 [M], summing to one.
      true_discount: d_t.
      fit_error: the largest relative error of a fitted d̃_t; 0 for exact bundles and quadratures.
    """

    gammas: np.ndarray | None
    weights: np.ndarray
    true_discount: Discount
    fit_error: float = 0.0

    @property
    def n_horizons(self) -> int:
        """M."""
        return len(self.weights)

    def step_factors(self, t: ArrayLike) -> np.ndarray:
        """Return γ_i, or d_{t+1}/d_t when single: float64 [..., M] for `t` [...] in agent steps."""
        if self.gammas is None:
            return self.true_discount.step_factor(t)[..., None]
        return np.broadcast_to(self.gammas, (*np.shape(t), self.n_horizons)).copy()

    def mixture(self, t: ArrayLike) -> np.ndarray:
        """Return w_i γ_i^t, or d_t when single: float64 [..., M] for `t` [...] in agent steps."""
        if self.gammas is None:
            return self.true_discount.factor(t)[..., None]
        return self.weights * _powers(self.gammas, t)

    def discount(self, t: ArrayLike) -> np.ndarray:
        """Return d̃_t = Σ_i w_i γ_i^t, or d_t when single: float64 [...]."""
        return self.mixture(t).sum(axis=-1)

    def normalised_weights(self, t: ArrayLike) -> np.ndarray:
        """Return w_{i,t} = w_i γ_i^t/d̃_t, float64 [..., M], summing to one.

        Powers of γ_i/max γ do not underflow together, so the weights stay finite once d̃_t is 0.
        """
        if self.gammas is None:
            return np.ones((*np.shape(t), 1))
        largest = self.gammas[self.weights > 0.0].max()
        ratios = (
            np.minimum(self.gammas / largest, 1.0) if largest > 0.0 else np.ones_like(self.gammas)
        )
        relative = self.weights * _powers(ratios, t)
        return relative / relative.sum(axis=-1, keepdims=True)

    def tables(self, max_time: int) -> HorizonTables:
        """Tabulate all four functions at t = 0 ... max_time + 1; a target reads t + 1."""
        t = np.arange(max_time + 2)
        return HorizonTables(
            self.step_factors(t), self.mixture(t), self.discount(t), self.normalised_weights(t)
        )


@dataclass
class Single:
    """One horizon with the discount itself: Algorithm 2, exact for every discount."""

    def bundle(self, discount: Discount) -> Bundle:
        """Return the bundle with `discount` as its only horizon."""
        return Bundle(None, np.ones(1), discount)


@dataclass
class Multi:
    """Exponential horizons whose weighted sum approximates the discount: Algorithm 3.

    Attributes:
      m: number of horizons, >= 1; with `fitted` the largest number that the fit may use.
      gamma_max: the last edge γ(u_m) of `lower`, `upper`, `right` and `midpoint`, in (0, 1), as a
        fraction of the mixture's largest γ (which is 1, and γ_tail for the tail integral).
        `gauss_legendre` and `fitted` ignore it.
      quadrature: lower (the released rule, erratum E7), upper, right, midpoint, gauss_legendre for
        discounts with a known mixture; fitted for every discount. The paper's own sum
        w(γ_i)(γ_i − γ_{i−1}) is unusable (erratum E8).
    """

    m: int
    gamma_max: float
    quadrature: str

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"horizons.m={self.m}: must be 1 or more")
        if not 0.0 < self.gamma_max < 1.0:
            raise ValueError(
                f"horizons.gamma_max={self.gamma_max}: must lie strictly between 0 and 1"
            )
        if self.quadrature != "fitted" and self.quadrature not in QUADRATURES:
            raise ValueError(
                f"horizons.quadrature={self.quadrature}: choose one of "
                f"{', '.join([*QUADRATURES, 'fitted'])}"
            )
        if self.quadrature == "upper" and self.m == 1:
            raise ValueError(
                "horizons.m=1 with horizons.quadrature=upper leaves one horizon of weight 0; "
                "use horizons.m=2 or more, or another horizons.quadrature"
            )

    def bundle(self, discount: Discount) -> Bundle:
        """Return the bundle of at most `m` exponentials that approximates `discount`."""
        if self.quadrature == "fitted":
            if discount.atoms is not None and len(discount.atoms[0]) <= self.m:
                return Bundle(*discount.atoms, discount)
            return fitted(discount, self.m)
        if discount.mixture is None:
            raise ValueError(
                f"horizons.quadrature={self.quadrature}: needs a discount that is a known mixture "
                f"of exponentials, such as discount=hyperbolic; use horizons.quadrature=fitted"
            )
        nodes, weights = QUADRATURES[self.quadrature](discount.mixture, self.m, self.gamma_max)
        return Bundle(discount.mixture.gamma(nodes), weights / weights.sum(), discount)


def default_quadrature(discount_type: type) -> str:
    """Return `lower` for a class of discounts with a known mixture, else `fitted`."""
    return "fitted" if getattr(discount_type, "mixture", None) is None else "lower"


def fitted(discount: Discount, m: int) -> Bundle:
    """Fit at most `m` exponentials to a discount by non-negative least squares.

    Minimises Σ_t (Σ_i w_i γ_i^t/d_t − 1)² over t <= FIT_STEPS with d_t >= NEGLIGIBLE. If more than
    `m` candidate nodes get a positive weight, the two closest in log(1 − γ) are merged until `m`
    are left, whose positions are then optimised.

    Raises:
      ValueError: the largest relative error exceeds WORST_FIT.
    """
    t = np.arange(FIT_STEPS + 1)
    d = discount.factor(t)
    t, d = t[d >= NEGLIGIBLE], d[d >= NEGLIGIBLE]
    some = np.unique(np.round(np.geomspace(1, len(t), FIT_TIMES)).astype(np.int64)) - 1
    gammas, weights = _non_negative_fit(1.0 - np.geomspace(1e-4, 1.0, FIT_NODES), t[some], d[some])
    if len(gammas) > m:
        while len(gammas) > m:
            gammas, weights = _merge_closest(gammas, weights)
        gammas, weights = _optimised(gammas, t[some], d[some])
    weights = weights / weights.sum()
    error = float(np.abs(_powers(gammas, t) @ weights / d - 1.0).max())
    if error > WORST_FIT:
        more = "raise horizons.m, or " if len(gammas) == m else ""
        raise ValueError(
            f"horizons.m={m}: a sum of exponentials (the best has {len(gammas)}) fits the discount "
            f"with a relative error of {error:.2g}, above {WORST_FIT}; {more}use "
            "agent=singlehorizon, which needs no sum"
        )
    return Bundle(gammas, weights, discount, error)


def _powers(gammas: np.ndarray, t: ArrayLike) -> np.ndarray:
    """Return γ_i^t, [..., M], with 0⁰ = 1, which logarithms would not give."""
    return np.power(gammas, np.asarray(t, dtype=np.float64)[..., None])


def _non_negative_fit(
    gammas: np.ndarray, t: np.ndarray, d: np.ndarray, start_weight: float = _START_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of positive weight, ascending in γ, and the weights of the best fit."""
    gammas = np.sort(gammas)
    weights, _ = _solve(gammas, t, d, start_weight)
    return gammas[weights > 0.0], weights[weights > 0.0]


def _solve(
    gammas: np.ndarray, t: np.ndarray, d: np.ndarray, start_weight: float = _START_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best weights of all nodes, [M], and their relative residuals, [T].

    `start_weight` multiplies the equation of t = 0, because the weights must sum to one (erratum
    E9) and normalising an unconstrained fit would double its error.
    """
    from scipy.optimize import nnls

    equations, ones = _powers(gammas, t) / d[:, None], np.ones_like(d)
    equations[0] *= start_weight
    ones[0] *= start_weight
    weights, _ = nnls(equations, ones, maxiter=100 * len(gammas))
    return weights, equations @ weights - ones


def _merge_closest(gammas: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace the two nodes closest in log(1 − γ) by their weighted mean."""
    first = int(np.argmin(-np.diff(np.log1p(-gammas))))
    pair = slice(first, first + 2)
    merged = np.average(gammas[pair], weights=weights[pair])
    return (
        np.concatenate([gammas[:first], [merged], gammas[first + 2 :]]),
        np.concatenate([weights[:first], [weights[pair].sum()], weights[first + 2 :]]),
    )


def _optimised(gammas: np.ndarray, t: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of least squares, searched in log(1 − γ), and their weights.

    The best weights follow from the nodes, so the search is over the nodes alone.
    """
    from scipy.optimize import least_squares

    nearest_to_one, farthest = np.log(1e-5), np.log(1.0 - 1e-9)
    start = np.clip(np.log1p(-gammas), nearest_to_one + 1e-6, farthest - 1e-6)
    solution = least_squares(
        lambda logs: _solve(-np.expm1(logs), t, d)[1],
        start,
        bounds=(nearest_to_one, farthest),
        max_nfev=MAX_EVALUATIONS,
    )
    return _non_negative_fit(-np.expm1(solution.x), t, d)


def _edges(mixture: Mixture, m: int, gamma_max: float) -> np.ndarray:
    """Return u_i = 1 − b^i, i = 0 ... m, where γ(u_m)/γ(1) = gamma_max, so b^m = 1 − u_m.

    Raises:
      ValueError: u_m rounds to 0 or 1, which leaves no interval to divide.
    """
    last = float(mixture.cdf(gamma_max * mixture.gamma(1.0)))
    if not 0.0 < last < 1.0:
        raise ValueError(
            f"horizons.gamma_max={gamma_max}: all weight of the discount's mixture is on one side; "
            f"use another horizons.gamma_max or horizons.quadrature=gauss_legendre"
        )
    return -np.expm1(np.log1p(-last) * np.arange(m + 1) / m)


def _cells(mixture: Mixture, m: int, gamma_max: float) -> np.ndarray:
    """Return the edges with the last moved to 1: the m cells of the released rule (erratum E7)."""
    return np.append(_edges(mixture, m, gamma_max)[:-1], 1.0)


def _lower(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes u_0 ... u_{m−1}, w_i = u_{i+1} − u_i, u_m := 1, as released (erratum E7)."""
    cells = _cells(mixture, m, gamma_max)
    return cells[:-1], np.diff(cells)


def _upper(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes u_0 ... u_{m−1}, w_0 = 0, w_i = u_i − u_{i−1}."""
    nodes = _edges(mixture, m, gamma_max)[:-1]
    return nodes, np.diff(nodes, prepend=0.0)


def _right(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes u_1 ... u_m, w_i = u_i − u_{i−1}."""
    edges = _edges(mixture, m, gamma_max)
    return edges[1:], np.diff(edges)


def _midpoint(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the midpoints in u of the released rule's cells, weighted by their widths."""
    cells = _cells(mixture, m, gamma_max)
    return (cells[1:] + cells[:-1]) / 2.0, np.diff(cells)


def _gauss_legendre(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss–Legendre nodes and weights on [0, 1]; `gamma_max` is ignored."""
    nodes, weights = np.polynomial.legendre.leggauss(m)
    return (nodes + 1.0) / 2.0, weights / 2.0


QUADRATURES: dict[str, Callable[[Mixture, int, float], tuple[np.ndarray, np.ndarray]]] = {
    "lower": _lower,
    "upper": _upper,
    "right": _right,
    "midpoint": _midpoint,
    "gauss_legendre": _gauss_legendre,
}
