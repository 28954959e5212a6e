"""One copy of each small problem as a Gymnasium environment, stepped as a batch of one.

Chance comes from `np_random` alone, so `reset(seed=...)` settles it. Build them from a schema:
`WealthEnv(wealth)`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rigor.envs.batched import Moved, advance
from rigor.envs.option import Put
from rigor.envs.tabular import Tabular
from rigor.envs.wealth import Wealth

LARGEST = float(np.finfo(np.float32).max)


class WealthEnv(gymnasium.Env[np.ndarray, Any]):
    """Goal-based wealth management.

    ## Description
    Invest wealth over T periods and choose whether to pay for each of two goals, one on offer at
    T // 2 and one at T.

    ## Observation space
    `Box`, float32 [2]:

    | Num | Observation | Min | Max   | Unit     |
    |-----|-------------|-----|-------|----------|
    | 0   | wealth W    | 0   | 3.4e38 | currency |
    | 1   | time t      | 0   | T + 1 | periods  |

    ## Action space
    `Discrete(2 L)` for L portfolios, goal · L + portfolio (`env.action=flat`), or
    `MultiDiscrete([2, L])`, the pair (`factored`). goal 1 takes the goal on offer; portfolio says
    how the rest is invested, from conservative to aggressive.

    ## Dynamics
    W′ = (W − cost) · exp((μ_p − σ_p² / 2) + σ_p Z), Z standard normal. Without an offer, or with
    wealth below its cost, goal 1 does nothing. After the decision at T nothing is invested.

    ## Reward
    The utility of the goal taken, else 0.

    ## Start
    W = `env.wealth`, t = 0.

    ## Episode end
    Termination with the decision at t = T, after T + 1 steps. No truncation.
    """

    def __init__(self, problem: Wealth) -> None:
        self._problem = problem
        self._n_portfolios = len(problem.weights)
        high = np.array([LARGEST, problem.max_time], np.float32)
        self.observation_space = spaces.Box(np.zeros(2, np.float32), high)
        self.action_space = (
            spaces.MultiDiscrete([2, self._n_portfolios])
            if problem.action == "factored"
            else spaces.Discrete(problem.n_actions)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; return the observation [2] and no information."""
        super().reset(seed=seed)
        self._t, self._wealth = np.zeros(1, np.int64), self._problem.begin(1, self.np_random)
        return self._problem.observe(self._t, self._wealth)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        _refuse_unknown(action, self.action_space)
        if self._problem.action == "factored":
            action = action[0] * self._n_portfolios + action[1]
        moved = advance(self._problem, self._t, self._wealth, np.array([action]), self.np_random)
        self._t, self._wealth = moved.t, moved.state
        return self._problem.observe(moved.t, moved.state)[0], *_told(moved), {}


class PutEnv(gymnasium.Env[np.ndarray, Any]):
    """An American put on a mean-reverting price.

    ## Description
    Hold an option to sell at K, or exercise it, at N + 1 times over `env.maturity` years.

    ## Observation space
    `Box`, float32 [2]:

    | Num | Observation | Min     | Max    | Unit     |
    |-----|-------------|---------|--------|----------|
    | 0   | price P     | -3.4e38 | 3.4e38 | currency |
    | 1   | time t      | 0       | N + 1  | steps    |

    ## Action space
    `Discrete(2)`: 0 holds, 1 exercises. At t = N both exercise.

    ## Dynamics
    P′ = ζ + (P − ζ) e^{−κΔ} + s Z with Z standard normal, Δ = maturity / N years and
    s² = σ² (1 − e^{−2κΔ}) / (2κ): the exact law of dP = κ(ζ − P) dτ + σ dW. P may be negative.

    ## Reward
    (K − P)₊ in currency when the option is exercised, else 0.

    ## Start
    P = `env.start`, t = 0.

    ## Episode end
    Termination with the exercise, after N + 1 steps at the latest. No truncation.
    """

    def __init__(self, problem: Put) -> None:
        self._problem = problem
        low = np.array([-LARGEST, 0], np.float32)
        self.observation_space = spaces.Box(low, np.array([LARGEST, problem.max_time], np.float32))
        self.action_space = spaces.Discrete(problem.n_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; return the observation [2] and no information."""
        super().reset(seed=seed)
        self._t, self._price = np.zeros(1, np.int64), self._problem.begin(1, self.np_random)
        return self._problem.observe(self._t, self._price)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold or exercise."""
        _refuse_unknown(action, self.action_space)
        moved = advance(self._problem, self._t, self._price, np.array([action]), self.np_random)
        self._t, self._price = moved.t, moved.state
        return self._problem.observe(moved.t, moved.state)[0], *_told(moved), {}


class TabularEnv(gymnasium.Env[Any, Any]):
    """A finite decision problem.

    ## Description
    S states, A actions, transitions and rewards from tables.

    ## Observation space
    `MultiDiscrete([S, N + 1])` for a finite horizon N, else `Discrete(S)`:

    | Num | Observation                       | Min | Max   | Unit  |
    |-----|-----------------------------------|-----|-------|-------|
    | 0   | the state                         | 0   | S − 1 |       |
    | 1   | time t, where N is finite         | 0   | N     | steps |

    ## Action space
    `Discrete(A)`.

    ## Dynamics
    The next state has the law `P[state, action]`.

    ## Reward
    One of `reward[state, action, next state]`, with probabilities `reward_probability` likewise.

    ## Start
    A state with the law `initial`, t = 0.

    ## Episode end
    1. Termination: the state is terminal, or N decisions have been taken.
    2. Truncation, where the horizon is infinite: `env.max_steps` steps.
    """

    def __init__(self, problem: Tabular) -> None:
        self._problem = problem
        self.action_space = spaces.Discrete(problem.n_actions)
        n = problem.n_decisions
        self.observation_space = (
            spaces.Discrete(problem.n_states)
            if n is None
            else spaces.MultiDiscrete([problem.n_states, n + 1])
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return the observation and no information."""
        super().reset(seed=seed)
        self._t, self._state = np.zeros(1, np.int64), self._problem.begin(1, self.np_random)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        _refuse_unknown(action, self.action_space)
        moved = advance(self._problem, self._t, self._state, np.array([action]), self.np_random)
        self._t, self._state = moved.t, moved.state
        return self._seen(), *_told(moved), {}

    def _seen(self) -> Any:
        """Return the state, or the array (state, t) where the horizon is finite."""
        if self._problem.n_decisions is None:
            return int(self._state[0])
        return np.concatenate([self._state, self._t])


def _refuse_unknown(action: Any, space: "spaces.Space[Any]") -> None:
    """Raise ValueError for an action that the space does not hold."""
    if not space.contains(action):
        raise ValueError(f"action {action!r} is not in {space}")


def _told(moved: Moved) -> tuple[float, bool, bool]:
    """Return reward, terminated and truncated of a batch of one."""
    return float(moved.reward[0]), bool(moved.terminated[0]), bool(moved.truncated[0])
