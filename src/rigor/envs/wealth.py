"""Goal-based wealth management: when to pay for a goal, and how to invest until then.

The dynamics are those of the paper's section "Goal-Based Wealth Management". The paper leaves some
details open (erratum E11): here there are T + 1 decisions, at t = 0 ... T, and each chooses the
goal first and then the portfolio for the remaining wealth. The Gymnasium form is
`rigor.envs.gymnasium_forms.WealthEnv`.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from rigor.envs.batched import Batched, sample_next_states, stratified_uniforms
from rigor.envs.model import Model
from rigor.envs.problem import Problem
from rigor.envs.vector import VectorEnv

REFERENCE_PERIODS = 10  # T at which the means and covariances per period are stated (E26)
SCALINGS = {"volatility": 0.5, "covariance": 0.25}  # σ_p is multiplied by (10/T) to this power
DEGREE = 6  # acting on degree-6 fits of the exact values loses .02 % of the optimum
WEIGHT_TOLERANCE = 1e-3  # the paper's weights sum to 1 within 1e-4 (E25)


Array = Any  # a numpy array or a torch tensor


@dataclass
class Wealth:
    """Goal-based wealth management with an early goal at T // 2 and a late one at T.

    Attributes:
      periods: T, so that decisions are taken at t = 0 ... T.
      wealth: initial wealth, currency.
      early_cost: cost of the goal on offer at T // 2 only, currency. early_utility: its reward.
      late_cost: cost of the goal on offer at T only, currency. late_utility: its reward.
      scaling: how σ_p changes with T, while means change by 10 / T: `volatility` by (10 / T)^½, as
        the paper states, or `covariance` by (10 / T)^¼, as in its tables (erratum E26).
      action: action space of the Gymnasium form: `flat`, goal · L + portfolio, or `factored`, the
        pair.
      num_envs: copies stepped together.
      asset_means: mean log return of each asset in one of ten periods, [n].
      asset_covariance: covariance of these returns, [n, n].
      weights: weights of every portfolio, [L, n]; a row sums to 1 and may hold negative numbers.
    """

    periods: int
    wealth: float
    early_cost: float
    early_utility: float
    late_cost: float
    late_utility: float
    scaling: str
    action: str
    num_envs: int
    asset_means: list[float]
    # OmegaConf refuses the whole number 1 in a list[list[float]]
    asset_covariance: list[Any]
    weights: list[Any]

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
        """Return n_envs copies with flat actions, the same in training and evaluation."""
        return Batched(self, n_envs)

    @property
    def problem(self) -> Problem:
        """The facts that wealth management knows of itself."""
        return Problem(
            n_decisions=self.n_decisions,
            return_bounds=self.return_bounds,
            attainable_returns=self.attainable_returns,
            coordinates=self.coordinates,
            action_basis=self.action_basis,
            next_states=functools.partial(sample_next_states, self),
            model=self._model,
        )

    def _model(self) -> Model:
        from rigor.envs.wealth_model import WealthModel

        return WealthModel(self)

    @property
    def early_time(self) -> int:
        """T // 2, the time at which the early goal is on offer, periods."""
        return self.periods // 2

    @property
    def n_decisions(self) -> int:
        """T + 1 decisions, at t = 0 ... T."""
        return self.periods + 1

    @functools.cached_property
    def volatilities(self) -> np.ndarray:
        """σ_p = √(w Σ w) · (10 / T)^½ (or ^¼) of the log return of a period, float64 [L]."""
        weights, covariance = np.array(self.weights, float), np.array(self.asset_covariance, float)
        variance = np.einsum("li,ij,lj->l", weights, covariance, weights)
        return np.sqrt(variance) * (REFERENCE_PERIODS / self.periods) ** SCALINGS[self.scaling]

    @functools.cached_property
    def drifts(self) -> np.ndarray:
        """Mean log return of a period, μ_p − σ_p² / 2, μ_p = w · means · 10 / T, float64 [L]."""
        means = np.array(self.weights, float) @ np.array(self.asset_means, float)
        return means * (REFERENCE_PERIODS / self.periods) - self.volatilities**2 / 2

    @functools.cached_property
    def offers(self) -> np.ndarray:
        """Cost and utility of the goal on offer at t, float64 [T + 1, 2]; (inf, 0) for none."""
        offers = np.tile([math.inf, 0.0], (self.n_decisions, 1))
        offers[self.early_time] = self.early_cost, self.early_utility
        offers[self.periods] = self.late_cost, self.late_utility
        return offers

    def attainable_returns(self, factor: np.ndarray) -> np.ndarray:
        """Return every possible discounted return (no goal, either goal, both), utility, [4].

        Args:
          factor: d_t at t = 0 ... T, float64 [T + 1].
        """
        if factor.shape != (self.n_decisions,):
            raise ValueError(f"factor must have shape ({self.n_decisions},), got {factor.shape}")
        early = factor[self.early_time] * self.early_utility
        late = factor[self.periods] * self.late_utility
        return np.array([0.0, early, late, early + late])

    def return_bounds(self, factor: np.ndarray) -> tuple[float, float]:
        """Return the smallest and the largest of `attainable_returns`, utility."""
        returns = self.attainable_returns(factor)
        return float(returns.min()), float(returns.max())

    # --- `rigor.envs.batched.Dynamics`; the state is the wealth

    @property
    def n_actions(self) -> int:
        """Two choices of the goal times L portfolios."""
        return 2 * len(self.weights)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: wealth and time."""
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
        """Return the initial wealth of n episodes, float64 [n], without using `rng`."""
        return np.full(n, float(self.wealth))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample the standard normal Z of n returns, [n]."""
        return rng.standard_normal(n)

    def stratified_noise(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Sample Z k times for each of n moves, once from each k-th of the normal distribution."""
        from scipy.special import ndtri

        return ndtri(stratified_uniforms(n, k, rng))

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the wealth [n] of observations [n, 2]."""
        return observation[:, 0].astype(np.float64)

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pay for the goal, then W′ = W · exp((μ_p − σ_p² / 2) + σ_p Z).

        A goal that costs more than the wealth is not taken. Nothing is invested after the last
        decision.

        Args:
          t: periods, int64 [n]. state: wealth, currency, float64 [n].
          action: goal · L + portfolio, int64 [n]. noise: Z, [n].

        Returns:
          Next wealth (currency), utility of the goal taken, and whether t was T, [n] each.
        """
        goal, portfolio = np.divmod(action, len(self.weights))
        cost, utility = self.offers[t, 0], self.offers[t, 1]
        paid = (goal == 1) & (state >= cost)
        left = state - np.where(paid, cost, 0.0)
        over = t == self.periods
        grown = left * np.exp(self.drifts[portfolio] + self.volatilities[portfolio] * noise)
        return np.where(over, left, grown), np.where(paid, utility, 0.0), over

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return (wealth in currency, t in periods), float32 [n, 2]."""
        return np.stack([state, t], axis=1).astype(np.float32)

    def coordinates(self, observation: Array) -> Array:
        """Return the distance of log wealth to each threshold, and the time, float32 [B, 5].

        The thresholds are the late cost, the early cost and the sum of both (−9 after T // 2, when
        these two no longer matter). The unit is the standard deviation of the average portfolio's
        log return until the goal. The fourth coordinate is the distance to the initial wealth in
        units of the whole time. Time runs from −3 to 3.

        Args:
          observation: wealth and t, float32 [B, 2], numpy or torch.
        """
        xp = array_namespace(observation)
        log, t = xp.log(xp.clip(observation[:, 0], 1e-6)), observation[:, 1]
        sigma = max(float(self.volatilities.mean()), 1e-6)  # 0 in a riskless market
        late = sigma * xp.sqrt(xp.clip(self.periods - t, 0.0) + 0.5)
        until_early = xp.clip(self.early_time - t, 0.0)
        past = t > self.early_time
        early = (log - math.log(self.early_cost)) / (sigma * xp.sqrt(until_early + 0.5))
        both = (log - math.log(self.early_cost + self.late_cost)) / late
        no_goal = xp.full_like(log, -9.0)
        return xp.stack(
            [
                (log - math.log(self.late_cost)) / late,
                xp.where(past, no_goal, early),
                xp.where(past, no_goal, both),
                (log - math.log(self.wealth)) / (sigma * math.sqrt(self.periods)),
                6.0 * t / self.periods - 3.0,
            ],
            1,
        )

    @functools.cached_property
    def action_basis(self) -> np.ndarray:
        """Chebyshev polynomials of each portfolio's log volatility, float64 [A, 14].

        Seven columns, of degrees 0 to 6, describe the portfolio. Seven more are 0 for actions that
        do not take the goal and repeat the polynomials for actions that do.
        """
        logs = np.log(np.maximum(self.volatilities, 1e-12))
        width = np.ptp(logs)
        scaled = 2 * (logs - logs.min()) / width - 1 if width else np.zeros(len(logs))  # −1 ... 1
        portfolio = np.polynomial.chebyshev.chebvander(scaled, DEGREE)  # [L, 7]
        return np.block([[portfolio, 0.0 * portfolio], [portfolio, portfolio]])


def _check_table(means: list[float], covariance: list[Any], weights: list[Any]) -> None:
    """Refuse a table of assets and portfolios that does not describe a market."""
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
