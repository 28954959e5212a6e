"""Goal-based wealth management: when to pay for a goal, and how to invest until then.

The dynamics are those of the paper's section "Goal-Based Wealth Management" with the details that
it leaves open (erratum E11): T + 1 decisions at t = 0 ... T, in each the goal first, then the
portfolio for what is left. Its Gymnasium form is `rigor.envs.single.WealthEnv`.
"""

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace
from omegaconf import MISSING
from scipy.special import ndtri

from rigor.envs.batched import Batched, even
from rigor.envs.vector import VectorEnv

if TYPE_CHECKING:
    from rigor.exact.model import Model

REFERENCE_PERIODS = 10  # what the table's means and covariance are per period of (E26)
SCALINGS = {"volatility": 0.5, "covariance": 0.25}  # σ_p times (10 / T) to this power (E26)
DEGREE = 6  # choosing by the exact values made such polynomials costs .02 % of the optimum
WEIGHT_TOLERANCE = 1e-3  # the paper's weights sum to 1 within 1e-4 (E25)


Array = Any  # a numpy array or a torch tensor


@dataclass
class Wealth:
    """Goal-based wealth management with an early goal at T // 2 and a late one at T.

    Attributes:
      periods: T, so that decisions are taken at t = 0 ... T.
      wealth: initial wealth, currency.
      early_cost: of the goal on offer at T // 2 only, currency; early_utility: its reward.
      late_cost: of the goal on offer at T only, currency; late_utility: its reward.
      scaling: how σ_p changes with T, the means changing by 10 / T: `volatility` by (10 / T)^½, as
        the paper says, `covariance` by (10 / T)^¼, as its tables were made (erratum E26).
      action: of the Gymnasium form: `flat`, goal · L + portfolio, or `factored`, the pair.
      num_envs: copies stepped together.
      asset_means: mean log return of each asset in one of ten periods, [n].
      asset_covariance: of these returns, [n, n].
      weights: of every portfolio, [L, n]; a row sums to 1 and may hold negative numbers.
    """

    periods: int = MISSING
    wealth: float = MISSING
    early_cost: float = MISSING
    early_utility: float = MISSING
    late_cost: float = MISSING
    late_utility: float = MISSING
    scaling: str = MISSING
    action: str = MISSING
    num_envs: int = MISSING
    asset_means: list[float] = MISSING
    # OmegaConf refuses the whole number 1 in a list[list[float]]
    asset_covariance: list[Any] = MISSING
    weights: list[Any] = MISSING

    def __post_init__(self) -> None:
        for key in ("periods", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")
        for key in ("wealth", "early_cost", "late_cost"):
            if not 0 < getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be above 0 and finite")
        for key in ("early_utility", "late_utility"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 0 or more and finite")
        for key, names in (("scaling", tuple(SCALINGS)), ("action", ("flat", "factored"))):
            if getattr(self, key) not in names:
                raise ValueError(f"env.{key}={getattr(self, key)}: choose {' or '.join(names)}")
        _check_table(self.asset_means, self.asset_covariance, self.weights)

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation; their actions are flat."""
        return Batched(self, n_envs)

    def model(self) -> "Model":
        """Return the exact model."""
        from rigor.exact.wealth import WealthModel

        return WealthModel(self)

    @property
    def early_time(self) -> int:
        """T // 2, when the early goal is on offer, periods."""
        return self.periods // 2

    @property
    def n_decisions(self) -> int:
        """T + 1 decisions, at t = 0 ... T."""
        return self.periods + 1

    @functools.cached_property
    def volatilities(self) -> np.ndarray:
        """σ_p = √(w Σ w) · (10 / T)^½ or ^¼: of the log return of a period, float64 [L]."""
        weights, covariance = np.array(self.weights, float), np.array(self.asset_covariance, float)
        variance = np.einsum("li,ij,lj->l", weights, covariance, weights)
        return np.sqrt(variance) * (REFERENCE_PERIODS / self.periods) ** SCALINGS[self.scaling]

    @functools.cached_property
    def drifts(self) -> np.ndarray:
        """μ_p − σ_p² / 2, μ_p = w · means · 10 / T: mean log return of a period, float64 [L]."""
        means = np.array(self.weights, float) @ np.array(self.asset_means, float)
        return means * (REFERENCE_PERIODS / self.periods) - self.volatilities**2 / 2

    @functools.cached_property
    def offers(self) -> np.ndarray:
        """Cost and utility of the goal on offer at t, float64 [T + 1, 2]; (inf, 0) for none."""
        offers = np.tile([math.inf, 0.0], (self.n_decisions, 1))
        offers[self.early_time] = self.early_cost, self.early_utility
        offers[self.periods] = self.late_cost, self.late_utility
        return offers

    def totals(self, factor: np.ndarray) -> np.ndarray:
        """Return every possible discounted return: of no goal, either, and both; utility, [4].

        Args:
          factor: d_t at t = 0 ... T, float64 [T + 1].
        """
        if factor.shape != (self.n_decisions,):
            raise ValueError(f"factor must have shape ({self.n_decisions},), got {factor.shape}")
        early = factor[self.early_time] * self.early_utility
        late = factor[self.periods] * self.late_utility
        return np.array([0.0, early, late, early + late])

    def returns(self, factor: np.ndarray) -> tuple[float, float]:
        """Return the smallest and the largest of `totals`, in utility."""
        totals = self.totals(factor)
        return float(totals.min()), float(totals.max())

    # --- the dynamics, as `rigor.envs.batched.Dynamics` asks for them; the state is the wealth

    @property
    def n_actions(self) -> int:
        """Two choices of the goal times L portfolios."""
        return 2 * len(self.weights)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Wealth and time."""
        return (2,)

    @property
    def max_time(self) -> int:
        """T + 1, the time after the last decision."""
        return self.n_decisions

    @property
    def reward_bound(self) -> float:
        """The larger of the two utilities."""
        return max(self.early_utility, self.late_utility)

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the initial wealth of n episodes, float64 [n]; nothing is drawn."""
        return np.full(n, float(self.wealth))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw the standard normal Z of n returns, [n]."""
        return rng.standard_normal(n)

    def strata(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Draw Z k times for each of n moves, once from each k-th of the normal law, [n · k]."""
        return ndtri(even(n, k, rng))

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the wealth [n] of observations [n, 2]."""
        return observation[:, 0].astype(np.float64)

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pay for the goal, then W′ = W · exp((μ_p − σ_p² / 2) + σ_p Z).

        A goal that wealth does not reach is not taken. After the last decision nothing is invested.

        Args:
          t: periods, int64 [n]. state: wealth, currency, float64 [n].
          action: goal · L + portfolio, int64 [n]. noise: Z, [n].

        Returns:
          Wealth (currency), utility of the goal taken, and whether t was T, [n] each.
        """
        goal, portfolio = np.divmod(action, len(self.weights))
        cost, utility = self.offers[t, 0], self.offers[t, 1]
        taken = (goal == 1) & (state >= cost)
        left = state - np.where(taken, cost, 0.0)
        over = t == self.periods
        grown = left * np.exp(self.drifts[portfolio] + self.volatilities[portfolio] * noise)
        return np.where(over, left, grown), np.where(taken, utility, 0.0), over

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return (wealth in currency, t in periods), float32 [n, 2]."""
        return np.stack([state, t], axis=1).astype(np.float32)

    # --- what a network may know of the problem

    def coordinates(self, observation: Array) -> Array:
        """Return where wealth stands before each threshold, and the time, float32 [B, 5].

        In log wealth, per standard deviation of what the average portfolio still does until then:
        before the late cost, the early cost and both together (−9 once the early goal is past),
        and before the initial wealth over the whole time. Time runs from −3 to 3.

        Args:
          observation: wealth and t, float32 [B, 2], numpy or torch.
        """
        xp = array_namespace(observation)
        log, t = xp.log(xp.clip(observation[:, 0], 1e-6)), observation[:, 1]
        spread = max(float(self.volatilities.mean()), 1e-6)  # a riskless market has none
        late = spread * xp.sqrt(xp.clip(self.periods - t, 0.0) + 0.5)
        ahead = xp.clip(self.early_time - t, 0.0)
        past = t > self.early_time
        early = (log - math.log(self.early_cost)) / (spread * xp.sqrt(ahead + 0.5))
        both = (log - math.log(self.early_cost + self.late_cost)) / late
        nowhere = xp.full_like(log, -9.0)
        return xp.stack(
            [
                (log - math.log(self.late_cost)) / late,
                xp.where(past, nowhere, early),
                xp.where(past, nowhere, both),
                (log - math.log(self.wealth)) / (spread * math.sqrt(self.periods)),
                6.0 * t / self.periods - 3.0,
            ],
            1,
        )

    @functools.cached_property
    def action_basis(self) -> np.ndarray:
        """The actions as polynomials in the logarithm of a portfolio's volatility, float64 [A, 14].

        Chebyshev's of degree 6 for the portfolio, and the same again for the goal on top.
        """
        logs = np.log(np.maximum(self.volatilities, 1e-12))
        spread = np.ptp(logs)
        place = 2 * (logs - logs.min()) / spread - 1 if spread else np.zeros(len(logs))
        portfolio = np.polynomial.chebyshev.chebvander(place, DEGREE)  # [L, 7]
        return np.block([[portfolio, 0.0 * portfolio], [portfolio, portfolio]])


def _check_table(means: list[float], covariance: list[Any], weights: list[Any]) -> None:
    """Refuse a table of assets and portfolios that is not one."""
    n = len(means)
    if not n or not np.isfinite(means).all():
        raise ValueError(f"env.asset_means={list(means)}: needs a finite number for every asset")
    sigma = _matrix("asset_covariance", covariance, n)
    if sigma.shape != (n, n) or not np.array_equal(sigma, sigma.T):
        raise ValueError(
            f"env.asset_covariance={sigma.tolist()}: must be a symmetric matrix, {n} by {n} as "
            "env.asset_means"
        )
    table = _matrix("weights", weights, n)
    for i, row in enumerate(table):
        if abs(row.sum() - 1) > WEIGHT_TOLERANCE:
            raise ValueError(
                f"env.weights[{i}]={row.tolist()}: sums to {row.sum():.6g}; the weights of a "
                f"portfolio must sum to 1 within {WEIGHT_TOLERANCE:g}"
            )
        if row @ sigma @ row < 0:
            raise ValueError(
                f"env.asset_covariance={sigma.tolist()}: gives portfolio {i} a negative variance; "
                "it must be positive semi-definite"
            )


def _matrix(key: str, rows: list[Any], n: int) -> np.ndarray:
    """Return a table of finite numbers with n columns, float64 [rows, n]."""
    try:
        matrix = np.array(rows, dtype=float)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] != n or not np.isfinite(matrix).all():
        raise ValueError(
            f"env.{key}={rows}: must be rows of {n} finite numbers each, one for every asset of "
            "env.asset_means"
        )
    return matrix
