"""Each small problem as a Gymnasium environment, stepped as a batch of one.

All randomness comes from `np_random`, so `reset(seed=...)` determines it. Build an environment from
its schema, as in `WealthEnv(wealth)`, or by `gymnasium.make` and an id of `rigor.gym`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rigor.envs.american_put import AmericanPut
from rigor.envs.batched import Moved, advance
from rigor.envs.minatar import SIDE, MinAtar
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
    `MultiDiscrete([2, L])`, the pair (`factored`). goal 1 pays for the goal on offer; portfolio
    numbers the way in which the rest is invested, from conservative to aggressive.

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

    def __init__(self, spec: Wealth) -> None:
        self.schema = spec
        self._n_portfolios = len(spec.weights)
        high = np.array([LARGEST, spec.max_time], np.float32)
        self.observation_space = spaces.Box(np.zeros(2, np.float32), high)
        self.action_space = (
            spaces.MultiDiscrete([2, self._n_portfolios])
            if spec.action == "factored"
            else spaces.Discrete(spec.n_actions)
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; return the observation [2] and no information."""
        super().reset(seed=seed)
        self._t, self._wealth = np.zeros(1, np.int64), self.schema.begin(1, self.np_random)
        return self.schema.observe(self._t, self._wealth)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        _refuse_unknown(action, self.action_space)
        if self.schema.action == "factored":
            action = action[0] * self._n_portfolios + action[1]
        moved = advance(self.schema, self._t, self._wealth, np.array([action]), self.np_random)
        self._t, self._wealth = moved.t, moved.state
        return self.schema.observe(moved.t, moved.state)[0], *_outcome(moved), {}


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
    s² = σ² (1 − e^{−2κΔ}) / (2κ), exact for dP = κ(ζ − P) dτ + σ dW. P may be negative.

    ## Reward
    (K − P)₊ in currency when the option is exercised, else 0.

    ## Start
    P = `env.start`, t = 0.

    ## Episode end
    Termination with the exercise, after N + 1 steps at the latest. No truncation.
    """

    def __init__(self, spec: AmericanPut) -> None:
        self.schema = spec
        low = np.array([-LARGEST, 0], np.float32)
        self.observation_space = spaces.Box(low, np.array([LARGEST, spec.max_time], np.float32))
        self.action_space = spaces.Discrete(spec.n_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; return the observation [2] and no information."""
        super().reset(seed=seed)
        self._t, self._price = np.zeros(1, np.int64), self.schema.begin(1, self.np_random)
        return self.schema.observe(self._t, self._price)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Hold or exercise."""
        _refuse_unknown(action, self.action_space)
        moved = advance(self.schema, self._t, self._price, np.array([action]), self.np_random)
        self._t, self._price = moved.t, moved.state
        return self.schema.observe(moved.t, moved.state)[0], *_outcome(moved), {}


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
    The next state has the distribution `P[state, action]`.

    ## Reward
    One of `reward[state, action, next state]`, with probabilities `reward_probability` likewise.

    ## Start
    A state with the distribution `initial`, t = 0.

    ## Episode end
    1. Termination: the state is terminal, or N decisions have been taken.
    2. Truncation, where the horizon is infinite: `env.max_steps` steps.
    """

    def __init__(self, spec: Tabular) -> None:
        self.schema = spec
        self.action_space = spaces.Discrete(spec.n_actions)
        n = spec.n_decisions
        self.observation_space = (
            spaces.Discrete(spec.n_states)
            if n is None
            else spaces.MultiDiscrete([spec.n_states, n + 1])
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return the observation and no information."""
        super().reset(seed=seed)
        self._t, self._state = np.zeros(1, np.int64), self.schema.begin(1, self.np_random)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one decision."""
        _refuse_unknown(action, self.action_space)
        moved = advance(self.schema, self._t, self._state, np.array([action]), self.np_random)
        self._t, self._state = moved.t, moved.state
        return self._observation(), *_outcome(moved), {}

    def shown(self, one_hot: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return the observations of states that the batched form shows as one-hot, at times t.

        Args:
          one_hot: the states, [n, >= S]. t: int64 [n].
        """
        states = one_hot[:, : self.schema.n_states].argmax(axis=1)
        return states if self.schema.n_decisions is None else np.stack([states, t], axis=1)

    def _observation(self) -> Any:
        """Return the state, or the array (state, t) where the horizon is finite."""
        if self.schema.n_decisions is None:
            return int(self._state[0])
        return np.concatenate([self._state, self._t])


class MinAtarEnv(gymnasium.Env[np.ndarray, Any]):
    """A game of MinAtar, stepped by the emulator of the package `minatar`.

    ## Description
    One of five games on a screen of 10 × 10 cells.

    ## Observation space
    `Box`, bool [n, 10, 10]: whether a cell has an object of each of n kinds.

    ## Action space
    `Discrete(k)`: the k actions that the game reacts to, or all 6 (`env.full_actions`).

    ## Dynamics
    The emulator's; with probability `env.sticky` it repeats the last action instead.

    ## Reward
    The emulator's.

    ## Start
    The emulator's.

    ## Episode end
    1. Termination: the game is over.
    2. Truncation: `env.max_steps` steps.
    """

    def __init__(self, spec: MinAtar) -> None:
        self.schema = spec
        self._game = spec.new_game(np.random.default_rng(0))
        self._actions = spec.actions(self._game)
        self.observation_space = spaces.Box(0, 1, (self._game.n_channels, SIDE, SIDE), np.bool_)
        self.action_space = spaces.Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game; return the observation [n, 10, 10] and no information."""
        super().reset(seed=seed)
        if seed is not None:
            self._game = self.schema.new_game(self.np_random)
        self._game.reset()
        self._t = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play one frame."""
        _refuse_unknown(action, self.action_space)
        reward, terminated = self._game.act(self._actions[action])
        self._t += 1
        truncated = not terminated and self._t >= self.schema.max_steps
        return self._observation(), float(reward), bool(terminated), truncated, {}

    def _observation(self) -> np.ndarray:
        return np.moveaxis(self._game.env.state(), -1, 0)


def _refuse_unknown(action: Any, space: "spaces.Space[Any]") -> None:
    """Raise ValueError for an action that is not in the space."""
    if not space.contains(action):
        raise ValueError(f"action {action!r} is not in {space}")


def _outcome(moved: Moved) -> tuple[float, bool, bool]:
    """Return reward, terminated and truncated of a batch of one."""
    return float(moved.reward[0]), bool(moved.terminated[0]), bool(moved.truncated[0])
