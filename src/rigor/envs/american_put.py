"""An American put on a mean-reverting price: when to exercise.

The price is the Ornstein-Uhlenbeck process of the paper's appendix "American Put Option Trading",
dP = κ(ζ − P) dτ + σ dW, sampled from its exact transition distribution. The Gymnasium form is
`rigor.envs.gymnasium_forms.PutEnv`.
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

DEVIATIONS = 6.0  # a standard normal lies below −6 with probability 9.9e-10
HOLD, EXERCISE = 0, 1


Array = Any  # a numpy array or a torch tensor


@dataclass
class AmericanPut:
    """An American put that can be exercised at N + 1 times.

    Attributes:
      steps: N; decisions are taken at t = 0 ... N, Δ = maturity / N years apart.
      maturity: years.
      strike: K, currency.
      start: P_0, currency.
      kappa: κ, rate of reversion, 1/year; 0 is a Brownian motion.
      zeta: ζ, long-run price, currency.
      sigma: σ, volatility, currency per square root of a year.
      num_envs: copies stepped together.
    """

    steps: int
    maturity: float
    strike: float
    start: float
    kappa: float
    zeta: float
    sigma: float
    num_envs: int

    def __post_init__(self) -> None:
        for key in ("steps", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")
        for key in ("maturity", "strike"):
            if not 0 < getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be above 0 and finite")
        for key in ("kappa", "sigma"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 0 or more and finite")
        for key in ("start", "zeta"):
            if not math.isfinite(getattr(self, key)):
                raise ValueError(f"env.{key}={getattr(self, key)}: must be a finite number")

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation."""
        return Batched(self, n_envs)

    @property
    def problem(self) -> Problem:
        """The facts that the put knows of itself; of its returns it knows bounds only."""
        return Problem(
            n_decisions=self.n_decisions,
            return_bounds=self.return_bounds,
            coordinates=self.coordinates,
            action_basis=np.eye(2),  # hold and exercise have nothing in common
            next_states=functools.partial(sample_next_states, self),
            model=self._model,
        )

    def _model(self) -> Model:
        from rigor.envs.american_put_model import PutModel

        return PutModel(self)

    @property
    def n_decisions(self) -> int:
        """N + 1 decisions, at t = 0 ... N."""
        return self.steps + 1

    @functools.cached_property
    def decay(self) -> float:
        """e^{−κΔ}, the factor on P − ζ in one step."""
        return math.exp(-self.kappa * self.maturity / self.steps)

    @functools.cached_property
    def noise(self) -> float:
        """The standard deviation s of one step, currency."""
        return self._deviation(self.maturity / self.steps)

    def _deviation(self, time: float) -> float:
        """Return the standard deviation of the price after `time` years, given the price now.

        Its square is σ² (1 − e^{−2κτ}) / (2κ), and σ² τ at κ = 0.
        """
        rate = 2 * self.kappa
        elapsed = -math.expm1(-rate * time) / rate if rate else time
        return self.sigma * math.sqrt(elapsed)

    def payoff(self, price: np.ndarray) -> np.ndarray:
        """Return (K − P)₊, currency, any shape."""
        return np.maximum(self.strike - price, 0.0)

    @functools.cached_property
    def payoff_bounds(self) -> np.ndarray:
        """The payoff at t = 0 ... N at six standard deviations below the mean price, [N + 1].

        At each t, the price is higher than that with probability 1 − 9.9e-10.
        """
        time = np.arange(self.n_decisions) * (self.maturity / self.steps)
        mean = self.zeta + (self.start - self.zeta) * np.exp(-self.kappa * time)
        return self.payoff(mean - DEVIATIONS * np.array([self._deviation(years) for years in time]))

    def return_bounds(self, factor: np.ndarray) -> tuple[float, float]:
        """Return the smallest discounted return and a bound on the largest, currency.

        The bound is max_t d_t · `payoff_bounds`_t. At any given t, the payoff exceeds it with
        probability below 1e-9.

        Args:
          factor: d_t at t = 0 ... N, float64 [N + 1].
        """
        if factor.shape != (self.n_decisions,):
            raise ValueError(f"factor must have shape ({self.n_decisions},), got {factor.shape}")
        return 0.0, float((factor * self.payoff_bounds).max())

    # --- `rigor.envs.batched.Dynamics`; the state is the price

    @property
    def n_actions(self) -> int:
        """Two actions: hold, exercise."""
        return 2

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: price and time."""
        return (2,)

    @property
    def max_time(self) -> int:
        """N + 1, the time after the last decision."""
        return self.n_decisions

    @property
    def reward_bound(self) -> float:
        """The largest of `payoff_bounds`, because prices have no lower bound."""
        return float(self.payoff_bounds.max())

    def begin(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return the initial price of n episodes, float64 [n], without using `rng`."""
        return np.full(n, float(self.start))

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Sample the standard normal Z of n price moves, [n]."""
        return rng.standard_normal(n)

    def stratified_noise(self, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
        """Sample Z k times for each of n moves, once from each k-th of the normal distribution."""
        from scipy.special import ndtri

        return ndtri(stratified_uniforms(n, k, rng))

    def recover(self, observation: np.ndarray) -> np.ndarray:
        """Return the price [n] of observations [n, 2]."""
        return observation[:, 0].astype(np.float64)

    def move(
        self, t: np.ndarray, state: np.ndarray, action: np.ndarray, noise: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Exercise, or P′ = ζ + (P − ζ) e^{−κΔ} + s Z.

        At t = N every action exercises. Exercise leaves the price unchanged.

        Args:
          t: steps, int64 [n]. state: price, currency, float64 [n].
          action: 0 holds, 1 exercises, int64 [n]. noise: Z, [n].

        Returns:
          Next price and payoff (currency), and whether the option was exercised, [n] each.
        """
        over = (action == EXERCISE) | (t == self.steps)
        moved = self.zeta + (state - self.zeta) * self.decay + self.noise * noise
        return np.where(over, state, moved), np.where(over, self.payoff(state), 0.0), over

    def observe(self, t: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return (price in currency, t in steps), float32 [n, 2]."""
        return np.stack([state, t], axis=1).astype(np.float32)

    def coordinates(self, observation: Array) -> Array:
        """Return the price's distance to the strike in two units, and the time, float32 [B, 3].

        The units are the standard deviation of the price over the remaining time (plus half a step)
        and over the whole life of the option. Time runs from −3 to 3.

        Args:
          observation: price and t, float32 [B, 2], numpy or torch.
        """
        xp = array_namespace(observation)
        distance, t = observation[:, 0] - self.strike, observation[:, 1]
        left = (xp.clip(self.steps - t, 0.0) + 0.5) * (self.maturity / self.steps)  # years
        rate = 2 * self.kappa
        elapsed = -xp.expm1(-rate * left) / rate if rate else left
        whole_life = self._deviation(self.maturity) or 1.0
        return xp.stack(
            [
                distance / (self.sigma * xp.sqrt(elapsed) + 1e-6 * self.strike),
                distance / whole_life,
                6.0 * t / self.steps - 3.0,
            ],
            1,
        )
