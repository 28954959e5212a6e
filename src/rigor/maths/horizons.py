"""Bundles of horizons (Γ, w): a discount as a weighted sum of exponentials, or as itself.

d_t ≈ d̃_t = Σ_i w_i γ_i^t (section "Multi-Horizon"). A bundle gives four functions of the time t in
whole agent steps: backup(t) multiplies the next quantiles in the target, readout(t) the quantiles
inside the utility, mass(t) = Σ readout(t) = d̃_t, and weights_at(t) = readout/mass. The weights are
normalised, d̃_0 = 1, which the total outcome's identity needs (erratum E9).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from omegaconf import MISSING

from rigor.maths.discount import Discount, Mixture

# A fit is made and judged over these agent steps, while d_t has not fallen below NEGLIGIBLE.
FIT_STEPS = 3000
NEGLIGIBLE = 1e-6
FIT_TIMES = 400  # of these steps, log-spaced, make the fit; all of them judge it
MOVES = 60  # rounds in which the nodes are moved
FIT_NODES = 300  # candidates, with 1 − γ log-spaced in [1e-4, 1]
WORST_FIT = 0.05  # the largest relative error accepted
_START_WEIGHT = 1e3  # how much more d_0 = 1 counts in a fit than another time


@dataclass
class Tables:
    """The functions of time of a bundle at t = 0 ... max_time + 1, float64.

    Attributes:
      backup: [max_time + 2, M].
      readout: [max_time + 2, M].
      mass: [max_time + 2].
      weights: [max_time + 2, M].
    """

    backup: np.ndarray
    readout: np.ndarray
    mass: np.ndarray
    weights: np.ndarray


@dataclass
class Bundle:
    """A bundle of M horizons (Γ, w).

    Attributes:
      gammas: Γ, float64 [M]; None for the single horizon that follows the discount itself.
      weights: w, float64 [M], summing to one.
      discount: the true discount.
      fit_error: the largest relative error of a fitted d̃_t; 0 when exact, or set by a quadrature.
    """

    gammas: np.ndarray | None
    weights: np.ndarray
    discount: Discount
    fit_error: float = 0.0

    @property
    def n_horizons(self) -> int:
        """M."""
        return len(self.weights)

    def backup(self, t: ArrayLike) -> np.ndarray:
        """Return γ_i, or d_{t+1}/d_t when single: float64 [..., M] for `t` [...] in agent steps."""
        if self.gammas is None:
            return self.discount.step_factor(t)[..., None]
        return np.broadcast_to(self.gammas, (*np.shape(t), self.n_horizons)).copy()

    def readout(self, t: ArrayLike) -> np.ndarray:
        """Return w_i γ_i^t, or d_t when single: float64 [..., M] for `t` [...] in agent steps."""
        if self.gammas is None:
            return self.discount.factor(t)[..., None]
        return self.weights * _powers(self.gammas, t)

    def mass(self, t: ArrayLike) -> np.ndarray:
        """Return d̃_t = Σ_i w_i γ_i^t, or d_t when single: float64 [...]."""
        return self.readout(t).sum(axis=-1)

    def weights_at(self, t: ArrayLike) -> np.ndarray:
        """Return w_{i,t} = w_i γ_i^t/d̃_t, float64 [..., M], summing to one.

        Powers of γ_i over the largest γ, so the weights outlive the underflow of d̃_t.
        """
        if self.gammas is None:
            return np.ones((*np.shape(t), 1))
        largest = self.gammas[self.weights > 0.0].max()
        ratios = (
            np.minimum(self.gammas / largest, 1.0) if largest > 0.0 else np.ones_like(self.gammas)
        )
        relative = self.weights * _powers(ratios, t)
        return relative / relative.sum(axis=-1, keepdims=True)

    def tables(self, max_time: int) -> Tables:
        """Tabulate all four at t = 0 ... max_time + 1 (a target needs one step more)."""
        t = np.arange(max_time + 2)
        return Tables(self.backup(t), self.readout(t), self.mass(t), self.weights_at(t))


@dataclass
class Single:
    """One horizon that follows the discount itself: Algorithm 2, exact for every discount."""

    def bundle(self, discount: Discount) -> Bundle:
        """Return the bundle of one of `discount`."""
        return Bundle(None, np.ones(1), discount)


@dataclass
class Multi:
    """Exponential horizons whose weighted sum stands for the discount: Algorithm 3.

    Attributes:
      m: number of horizons, >= 1; for `fitted` the most that the fit may use.
      gamma_max: of `lower`, `upper`, `right` and `midpoint`: the last edge γ(u_m), in (0, 1), as a
        share of the mixture's largest γ (which is 1, and γ_tail for the tail integral).
        `gauss_legendre` and `fitted` place their nodes themselves.
      quadrature: lower (the released rule, erratum E7), upper, right, midpoint, gauss_legendre, for
        discounts with a known mixture; fitted for every discount. The paper's own sum
        w(γ_i)(γ_i − γ_{i−1}) is unusable (erratum E8).
    """

    m: int = MISSING
    gamma_max: float = MISSING
    quadrature: str = MISSING

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"horizons.m={self.m}: at least one horizon is needed")
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
                "use m=2 or more, or another quadrature"
            )

    def bundle(self, discount: Discount) -> Bundle:
        """Return the bundle of at most `m` exponentials that stands for `discount`."""
        if self.quadrature == "fitted":
            if discount.atoms is not None and len(discount.atoms[0]) <= self.m:
                return Bundle(*discount.atoms, discount)
            return fitted(discount, self.m)
        name = type(discount).__name__
        if discount.mixture is None:
            raise ValueError(
                f"discount={name} is no known mixture of exponentials, which "
                f"horizons.quadrature={self.quadrature} needs; use horizons.quadrature=fitted"
            )
        nodes, weights = QUADRATURES[self.quadrature](discount.mixture, self.m, self.gamma_max)
        return Bundle(discount.mixture.gamma(nodes), weights / weights.sum(), discount)


def default_quadrature(discount_type: type) -> str:
    """Return lower for a class of discounts that are a known mixture, else fitted."""
    return "fitted" if getattr(discount_type, "mixture", None) is None else "lower"


def fitted(discount: Discount, m: int) -> Bundle:
    """Fit at most `m` exponentials to a discount by non-negative least squares.

    Minimises Σ_t (Σ_i w_i γ_i^t/d_t − 1)² over t <= FIT_STEPS with d_t >= NEGLIGIBLE. Where more
    than `m` of the candidate nodes carry weight, the two closest in log(1 − γ) are merged until `m`
    are left, which are then moved to where the sum is smallest.

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
        gammas, weights = _moved(gammas, t[some], d[some])
    weights = weights / weights.sum()
    error = float(np.abs(_powers(gammas, t) @ weights / d - 1.0).max())
    if error > WORST_FIT:
        raise ValueError(
            f"horizons.m={m}: {len(gammas)} exponentials fit discount={type(discount).__name__} to "
            f"a relative error of {error:.2g}, above {WORST_FIT}; raise horizons.m or use "
            f"horizons=single"
        )
    return Bundle(gammas, weights, discount, error)


def _powers(gammas: np.ndarray, t: ArrayLike) -> np.ndarray:
    """Return γ_i^t, [..., M]. Powers, not logarithms: 0⁰ = 1 at t = 0 where γ_i = 0."""
    return np.power(gammas, np.asarray(t, dtype=np.float64)[..., None])


def _non_negative_fit(
    gammas: np.ndarray, t: np.ndarray, d: np.ndarray, start_weight: float = _START_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes that carry weight, ascending in γ, and the weights of the best fit."""
    gammas = np.sort(gammas)
    weights, _ = _solve(gammas, t, d, start_weight)
    return gammas[weights > 0.0], weights[weights > 0.0]


def _solve(
    gammas: np.ndarray, t: np.ndarray, d: np.ndarray, start_weight: float = _START_WEIGHT
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best weights of all nodes, [M], and the relative residuals they leave, [T].

    `start_weight` multiplies the equation of t = 0: the weights must sum to one (erratum E9), and
    normalising a fit that ignores it would double its error.
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


def _moved(gammas: np.ndarray, t: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes moved in log(1 − γ) to the least squares, and their weights.

    For every place of the nodes the weights are the best ones, so only places are searched.
    """
    from scipy.optimize import least_squares

    nearest_to_one, farthest = np.log(1e-5), np.log(1.0 - 1e-9)
    start = np.clip(np.log1p(-gammas), nearest_to_one + 1e-6, farthest - 1e-6)
    found = least_squares(
        lambda places: _solve(-np.expm1(places), t, d)[1],
        start,
        bounds=(nearest_to_one, farthest),
        max_nfev=MOVES,
    )
    return _non_negative_fit(-np.expm1(found.x), t, d)


def _edges(mixture: Mixture, m: int, gamma_max: float) -> np.ndarray:
    """Return u_i = 1 − b^i, i = 0 ... m, where γ(u_m)/γ(1) = gamma_max, so b^m = 1 − u_m.

    Raises:
      ValueError: u_m rounds to 0 or 1, so that no nodes fit between.
    """
    last = float(mixture.cdf(gamma_max * mixture.gamma(1.0)))
    if not 0.0 < last < 1.0:
        raise ValueError(
            f"horizons.gamma_max={gamma_max}: the mixture of this discount has no mass on one side "
            f"of it; use another gamma_max or horizons.quadrature=gauss_legendre"
        )
    return -np.expm1(np.log1p(-last) * np.arange(m + 1) / m)


def _cells(mixture: Mixture, m: int, gamma_max: float) -> np.ndarray:
    """Return the edges with the last put at 1: the m cells of the released rule (erratum E7)."""
    return np.append(_edges(mixture, m, gamma_max)[:-1], 1.0)


def _lower(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes u_0 ... u_{m−1}, w_i = u_{i+1} − u_i with u_m := 1, as released (erratum E7)."""
    cells = _cells(mixture, m, gamma_max)
    return cells[:-1], np.diff(cells)


def _upper(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes u_0 ... u_{m−1}, w_0 = 0, w_i = u_i − u_{i−1}; no node at 1."""
    nodes = _edges(mixture, m, gamma_max)[:-1]
    return nodes, np.diff(nodes, prepend=0.0)


def _right(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes u_1 ... u_m, w_i = u_i − u_{i−1}."""
    edges = _edges(mixture, m, gamma_max)
    return edges[1:], np.diff(edges)


def _midpoint(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in the middle, in u, of the released rule's cells, weighted by their widths."""
    cells = _cells(mixture, m, gamma_max)
    return (cells[1:] + cells[:-1]) / 2.0, np.diff(cells)


def _gauss_legendre(mixture: Mixture, m: int, gamma_max: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss–Legendre nodes and weights on [0, 1]; `gamma_max` plays no part."""
    nodes, weights = np.polynomial.legendre.leggauss(m)
    return (nodes + 1.0) / 2.0, weights / 2.0


QUADRATURES: dict[str, Callable[[Mixture, int, float], tuple[np.ndarray, np.ndarray]]] = {
    "lower": _lower,
    "upper": _upper,
    "right": _right,
    "midpoint": _midpoint,
    "gauss_legendre": _gauss_legendre,
}
