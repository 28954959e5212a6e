"""The American put, configured like a user's run, against reference values.

The reference values were computed on a grid of prices by a separate program. The loss of a policy
that is not optimal converges slowly on a grid, because its boundary moves by whole cells. At N = 50
four of the values (in comments) were too inaccurate to test anything, and values from
`SmoothReturn` below replace them. It uses no grid: it finds the boundaries as roots and integrates
above them.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from command_line import composed
from problems import QuietProgress
from scipy.optimize import brentq
from scipy.special import ndtr

from rigor.config import config
from rigor.exact.solve import solve_finite

ACCURATE = ("horizons=multi", "horizons.quadrature=gauss_legendre", "variant=time_inconsistent")
LOWER = ("horizons=multi", "horizons.quadrature=lower", "variant=time_inconsistent")
slow = pytest.mark.slow


def solved(*overrides: str) -> dict[str, Any]:
    choices = composed("env=american_put", "agent=backward_induction", "tracker=none", *overrides)
    return solve_finite(config.build(choices), QuietProgress()).metrics


@functools.cache
def put(n: int, k: float, *more: str) -> dict[str, Any]:
    return solved(f"env.steps={n}", "discount=hyperbolic", f"discount.k={k}", *more)


def loss_and_change(n: int, k: float, *more: str) -> tuple[float, float]:
    """Return an agent's loss of J and the change of its undiscounted return, in percent."""
    best, found = put(n, k), put(n, k, *more)
    change = found["score_exact"] / best["score_exact"] - 1
    return 100 * found["regret"] / best["objective_optimal"], 100 * change


@pytest.mark.parametrize(
    ("n", "k", "objective", "undiscounted"),
    [
        (10, 0.05, 5.4325, 6.619),
        (10, 1, 1.7537, 5.801),
        (20, 0.05, 4.8596, 6.680),
        (20, 0.2, 3.0606, 6.137),
        (20, 1, 1.3318, 5.315),
        (50, 0.05, 3.7778, 6.457),
        (50, 1, 0.8802, 4.560),
    ],
)
def test_the_consistent_optimum(n, k, objective, undiscounted):
    found = put(n, k)
    assert found["objective_optimal"] == pytest.approx(objective, abs=0.001)
    assert found["regret"] == pytest.approx(0.0, abs=1e-9)
    assert found["score_exact"] == pytest.approx(undiscounted, abs=0.03)


@pytest.mark.parametrize(
    ("n", "k", "bootstrap", "loss", "change"),
    [
        (10, 0.05, "per_head", 0.01, -0.1),
        (10, 0.05, "shared", 0.02, -0.2),
        (10, 1, "per_head", 3.3, -14.8),
        (10, 1, "shared", 3.7, -15.9),
        pytest.param(20, 0.05, "per_head", 0.06, -0.5, marks=slow),
        pytest.param(20, 0.05, "shared", 0.12, -1.0, marks=slow),
        pytest.param(20, 0.2, "per_head", 1.1, -6.1, marks=slow),
        pytest.param(20, 0.2, "shared", 1.7, -8.9, marks=slow),
        pytest.param(20, 1, "per_head", 5.0, -24.2, marks=slow),
        pytest.param(20, 1, "shared", 5.9, -26.4, marks=slow),
        pytest.param(50, 0.05, "per_head", 0.4, -1.4, marks=slow),
        pytest.param(50, 0.05, "shared", 0.9, -5.2, marks=slow),
        # without a grid of prices; the reference had 6.4 and -37.4 (which holds), 8.5 and -42.2
        pytest.param(50, 1, "per_head", 6.537, -37.80, marks=slow),
        pytest.param(50, 1, "shared", 8.155, -41.48, marks=slow),
    ],
)
def test_the_cost_of_inconsistency(n, k, bootstrap, loss, change):
    found = loss_and_change(n, k, *ACCURATE, "horizons.m=20", f"agent.bootstrap={bootstrap}")
    assert found[0] == pytest.approx(loss, abs=0.1)
    assert found[1] == pytest.approx(change, abs=0.6)


@pytest.mark.parametrize(
    ("n", "loss"),
    # 23.842 without a grid of prices; the reference had 24.0
    [(10, 8.8), pytest.param(20, 15.1, marks=slow), pytest.param(50, 23.842, marks=slow)],
)
def test_most_of_the_released_quadratures_loss_is_not_inconsistency(n, loss):
    found, _ = loss_and_change(n, 0.05, *LOWER, "horizons.m=10", "agent.bootstrap=shared")
    assert found == pytest.approx(loss, abs=0.1)
    accurate, _ = loss_and_change(n, 0.05, *ACCURATE, "agent.bootstrap=shared")
    assert accurate < 0.05 * found


@pytest.mark.parametrize(("gamma", "value"), [(1, 6.85398), (0.99, 6.22291), (0.95, 4.50295)])
def test_an_exponential_agent_with_a_frozen_clock_is_consistent(gamma, value):
    one = ("discount=exponential", f"discount.gamma={gamma}")
    consistent, frozen = solved(*one), solved(*one, "variant=time_inconsistent")
    assert frozen["boundary"] == consistent["boundary"]
    # the sums are in another order
    assert frozen["objective_exact"] == pytest.approx(consistent["objective_exact"], rel=1e-12)
    assert frozen["regret"] == pytest.approx(0.0, abs=1e-9)
    assert frozen["objective_optimal"] == pytest.approx(value, abs=0.001)


# --- a solution without a grid of prices

PRICE, DEVIATION = 100.0, 20.0  # K = ζ = P₀, and σ; with κ = 2 the stationary deviation is σ / 2
X, WEIGHTS = np.polynomial.legendre.leggauss(12)


@dataclass
class SmoothReturn:
    """D functions of the price: `pay` (K − p) below a boundary, tabulated at nodes above it.

    Attributes:
      boundary: currency. pay: factor of the payoff for each function, [D].
      nodes, weights: prices and quadrature weights, each [n]. values: at the nodes, [D, n].
    """

    boundary: float
    pay: np.ndarray
    nodes: np.ndarray
    weights: np.ndarray
    values: np.ndarray

    def mean(self, prices: np.ndarray, n: int) -> np.ndarray:
        """Return the expected function values at the next price, [D, len(prices)]."""
        decay = np.exp(-2.0 / n)
        sd = DEVIATION / 2.0 * np.sqrt(1.0 - decay**2)
        means = PRICE + (prices - PRICE) * decay

        def density(z):
            return np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi)

        z = (self.boundary - means) / sd
        below = (PRICE - means) * ndtr(z) + sd * density(z)
        above = density((self.nodes - means[:, None]) / sd) / sd * self.weights
        return self.pay[:, None] * below + self.values @ above.T


def panels(boundary: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights above a boundary, up to prices of negligible probability."""
    edges = np.linspace(boundary, PRICE + 9.0 * DEVIATION / 2.0, round(6.0 * np.sqrt(n)))
    half = np.diff(edges)[:, None] / 2.0
    return (edges[:-1, None] + half * (1.0 + X)).ravel(), (half * WEIGHTS).ravel()


def last(pay: np.ndarray) -> SmoothReturn:
    """Return the payoff at t = N."""
    return SmoothReturn(PRICE, pay, np.empty(0), np.empty(0), np.empty((len(pay), 0)))


def waiting_values(
    horizons: list[SmoothReturn], gammas: np.ndarray, n: int, prices: np.ndarray
) -> np.ndarray:
    """Return the value of waiting for every horizon, [M, len(prices)]."""
    return gammas[:, None] * np.concatenate([function.mean(prices, n) for function in horizons])


def crossing(waiting: Callable[[np.ndarray], np.ndarray], weights: np.ndarray) -> float:
    """Return the price below which exercising has a higher value than waiting."""

    def gain(price):
        return weights @ waiting(np.atleast_1d(price)) - weights.sum() * (PRICE - price)

    prices = np.linspace(PRICE - 60.0, PRICE + 5.0, 201)
    (place,) = np.flatnonzero(np.diff(gain(prices) > 0.0))
    return brentq(lambda p: float(gain(p)[0]), prices[place], prices[place + 1], xtol=1e-12)


def boundaries(n: int, gammas: np.ndarray, weights: np.ndarray, bootstrap: str) -> list[float]:
    """Return the exercise boundary of an agent with a frozen clock, at t = 0 ... N."""
    horizons, found = [last(np.ones(1)) for _ in gammas], [PRICE]
    for _ in range(n):
        waiting = functools.partial(waiting_values, horizons, gammas, n)
        found.append(crossing(waiting, weights))
        later, horizons = horizons, []
        for i in range(len(gammas)):
            one = functools.partial(waiting_values, later[i : i + 1], gammas[i : i + 1], n)
            at = crossing(one, np.ones(1)) if bootstrap == "per_head" else found[-1]
            nodes, areas = panels(at, n)
            horizons.append(SmoothReturn(at, np.ones(1), nodes, areas, one(nodes)))
    return found[::-1]


def best_boundaries(n: int, factors: np.ndarray) -> list[float]:
    """Return the optimal exercise boundary at t = 0 ... N."""
    function, found = last(np.ones(1)), [PRICE]
    for t in reversed(range(n)):
        waiting = functools.partial(
            waiting_values, [function], factors[t + 1 : t + 2] / factors[t], n
        )
        found.append(crossing(waiting, np.ones(1)))
        nodes, areas = panels(found[-1], n)
        function = SmoothReturn(found[-1], np.ones(1), nodes, areas, waiting(nodes))
    return found[::-1]


def values_of(n: int, places: list[float], factors: np.ndarray) -> np.ndarray:
    """Return a policy's expected payoff [D] under several discounts [D, N + 1]."""
    function = last(factors[:, n])
    for t in range(n - 1, 0, -1):
        nodes, areas = panels(places[t], n)
        function = SmoothReturn(places[t], factors[:, t], nodes, areas, function.mean(nodes, n))
    return function.mean(np.array([PRICE]), n)[:, 0]  # at t = 0 the payoff is 0


def in_u(k: float, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return ten horizons and weights; 1 / (1 + kt) is the integral of u^(kt) over [0, 1]."""
    if rule == "lower":
        base = (1.0 - 0.999 ** (1.0 / k)) ** 0.1
        u = 1.0 - base ** np.arange(10)
        return u**k, np.diff(np.append(u, 1.0))
    x, weights = np.polynomial.legendre.leggauss(10)
    return ((1.0 + x) / 2.0) ** k, weights / 2.0


@pytest.mark.parametrize(
    ("n", "k", "rule", "bootstrap", "loss", "change"),
    [
        (10, 1, "gauss_legendre", "shared", 3.727, -15.84),
        pytest.param(10, 1, "gauss_legendre", "per_head", 3.217, -14.56, marks=slow),
        pytest.param(50, 1, "gauss_legendre", "shared", 8.155, -41.48, marks=slow),
        pytest.param(50, 1, "gauss_legendre", "per_head", 6.537, -37.80, marks=slow),
        pytest.param(50, 0.05, "lower", "shared", 23.842, None, marks=slow),
    ],
)
def test_the_model_agrees_with_a_solution_without_a_grid(n, k, rule, bootstrap, loss, change):
    factors = np.stack([1.0 / (1.0 + k * np.arange(n + 1)), np.ones(n + 1)])
    best = values_of(n, best_boundaries(n, factors[0]), factors)
    assert put(n, k)["objective_optimal"] == pytest.approx(best[0], abs=5e-4)
    places = boundaries(n, *in_u(k, rule), bootstrap)
    smooth = 100 * (values_of(n, places, factors) / best - 1.0)
    assert smooth[0] == pytest.approx(-loss, abs=1e-3)
    more = (f"horizons.quadrature={rule}", "horizons.m=10", f"agent.bootstrap={bootstrap}")
    found = loss_and_change(n, k, "horizons=multi", "variant=time_inconsistent", *more)
    assert found[0] == pytest.approx(loss, abs=0.02)
    if change is not None:
        assert smooth[1] == pytest.approx(change, abs=0.01)
        assert found[1] == pytest.approx(change, abs=0.1)
