"""Backward induction on (point, time, stock): the best policy for any discount and any OCE.

Theorem "Optimality of Distributional Backward Induction": with the stock S_t = c₀ + Σ_{k<t} d_k
R_{k+1} in the state, the policy that maximises E f(S_T) at every decision maximises −c₀ + E f(S_T).
The induction needs only the expectation of f; `return_distribution.py` computes the whole
distribution of the return. Linear and exponential utilities (mean and entropic risk) need no stock.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rigor.envs.model import Model, largest_exponent, refuse_overflow
from rigor.exact.reachable_stocks import ReachableStocks, reachable_stocks
from rigor.maths.utility import Utility, facts_of

TIE_TOLERANCE = 1e-11  # relative difference of action values below which they tie: rounding
CHUNK_BYTES = 64 << 20  # memory of an array of action values


@dataclass
class PolicyTables:
    """A deterministic policy: an action for every decision, offset and point.

    Attributes:
      actions: of t = 0 ... T − 1, each int16 [L_t, n].
      offsets: of t = 0 ... T − 1, each float64 [L_t]; a single offset if the policy ignores the
        stock.
    """

    actions: list[np.ndarray]
    offsets: list[np.ndarray]


class StockAugmentedProblem:
    """A model with one discount and one utility, to be solved for any initial stock.

    Attributes:
      reachable: the reachable offsets; None if the utility is linear or exponential.
      lowest, highest: the range of the discounted return.
    """

    def __init__(
        self,
        model: Model,
        factors: np.ndarray,
        utility: Utility,
        max_stocks: int,
        progress: Callable[[int], None] = lambda solved: None,
    ) -> None:
        """Enumerate the reachable stocks.

        Args:
          model: the problem.
          factors: d_t of the T decisions, [T].
          utility: the risk measure's utility.
          max_stocks: number of stocks of a decision above which a grid replaces them.
          progress: called with the number of initial stocks solved since its last call.

        Raises:
          UserError: the utility overflows over the range of returns.
        """
        self.model, self.factors, self.utility, self.progress = model, factors, utility, progress
        self.lowest, self.highest = return_range(model, factors)
        refuse_overflow(utility, self.lowest, self.highest, largest_exponent(model))
        self.reachable: ReachableStocks | None = None
        if augments_with_stock(utility):
            self.reachable = reachable_stocks(model, factors[:, None], max_stocks)

    def objective(self, stocks: np.ndarray) -> np.ndarray:
        """Return J(c₀) = −c₀ + max_π E f(c₀ + G), [C], for initial stocks [C].

        For linear and exponential utilities, return the OCE, which is the same for every stock.
        """
        if self.reachable is None:
            return np.full(len(stocks), self._solve_without_stock()[0])
        model = self.model
        size = 8 * model.n_actions * self.reachable.max_count * model.n_points
        chunk = max(1, CHUNK_BYTES // size)
        values = []
        for i in range(0, len(stocks), chunk):
            values.append(self._solve_with_stock(stocks[i : i + chunk], None))
            self.progress(len(values[-1]))
        return np.concatenate(values)

    def policy(self, stock: float) -> tuple[float, PolicyTables]:
        """Return J(c₀) and the best policy for one initial stock.

        Ties, which are common where a utility is flat, go to the larger mean return, then to the
        lower action.
        """
        actions: list[np.ndarray] = []
        if self.reachable is None:
            value, actions = self._solve_without_stock()
            return value, PolicyTables(actions, [np.zeros(1) for _ in actions])
        (value,) = self._solve_with_stock(np.array([stock]), actions)
        offsets = [offset[:, 0] for offset in self.reachable.offsets[:-1]]
        return float(value), PolicyTables(actions[::-1], offsets)

    def _solve_with_stock(self, stocks: np.ndarray, actions: list[np.ndarray] | None) -> np.ndarray:
        """Return J [C], and append one stock's actions to `actions`, last decision first."""
        assert self.reachable is not None
        model, offsets, f = self.model, self.reachable.offsets, self.utility.f
        n, n_stocks = model.n_points, len(stocks)
        stock = stocks[:, None] + offsets[-1][:, 0]  # [C, L]
        value = np.broadcast_to(f(stock)[..., None], (*stock.shape, n))
        mean = np.broadcast_to(stock[..., None], value.shape)
        for t in reversed(range(model.n_decisions)):
            stock = stocks[:, None] + offsets[t][:, 0]
            payoff = model.terminal_payoff(t)
            total = None  # outcomes of the actions that end the episode, [A, C, L, n]
            if payoff is not None:
                total = stock[..., None] + self.factors[t] * payoff[:, None, None]
            q = self._action_values(t, value, None if total is None else f(total))
            if actions is None:
                value = q.max(axis=0)
                continue
            means = self._action_values(t, mean, total)
            tied = q >= q.max(axis=0) - _rounding(q)
            slack = _rounding(means)
            means = np.where(tied, means, -np.inf)
            best = (means >= means.max(axis=0) - slack).argmax(axis=0)[None]
            value, mean = (np.take_along_axis(x, best, 0)[0] for x in (q, means))
            actions.append(best[0, 0].astype(np.int16))
        return value.reshape(n_stocks, n) @ model.initial - stocks

    def _action_values(self, t: int, value: np.ndarray, terminal: np.ndarray | None) -> np.ndarray:
        """Return the action values [A, C, L_t, n].

        Args:
          t: the decision.
          value: after the decision, [C, L_{t+1}, n].
          terminal: of actions that end the episode, [A, C, L_t, n], NaN for the others; or None.
        """
        assert self.reachable is not None
        following = self.reachable.gather(t, value)  # [R, C, L, n]
        flat = following.reshape(len(following), -1, following.shape[-1])
        q = self.model.expect(t, flat).reshape(-1, *following.shape[1:])
        return q if terminal is None else np.where(np.isnan(terminal), q, terminal)

    def _solve_without_stock(self) -> tuple[float, list[np.ndarray]]:
        """Return the OCE and the actions, each [1, n], of a linear or exponential utility.

        Mean: V_t = max_a E[d_t R + V_{t+1}]. Entropic: V_t = max_a −E[e^{β d_t R} (−V_{t+1})].
        """
        model, beta = self.model, facts_of(self.utility).exponential_rate
        value = np.full((1, model.n_points), -1.0 if beta else 0.0)
        actions = []
        for t in reversed(range(model.n_decisions)):
            d = self.factors[t]
            gains = d * np.asarray(model.rewards(t))[:, None, None]  # [R, 1, 1]
            q = model.expect(
                t, value * np.exp(beta * gains) if beta else value + gains
            )  # [A, 1, n]
            payoff = model.terminal_payoff(t)
            if payoff is not None:
                total = d * payoff[:, None]
                q = np.where(np.isnan(total), q, -np.exp(beta * total) if beta else total)
            best = q.max(axis=0)
            # entropic values span many orders of magnitude, so each has a rounding of its own
            slack = TIE_TOLERANCE * (np.abs(best) if beta else np.abs(q).max())
            actions.append((q >= best - slack).argmax(axis=0).astype(np.int16))
            value = best
        expected = float(value[0] @ model.initial)
        return (float(np.log(-expected) / beta) if beta else expected), actions[::-1]


def augments_with_stock(utility: Utility) -> bool:
    """Whether the solvers add the stock to the state, unless f is linear or exponential.

    A utility of the user without `facts` gets the stock even if its `needs_stock` is false: without
    the stock, the induction would have to know the utility's exponential rate.
    """
    return facts_of(utility).exponential_rate is None


def _rounding(q: np.ndarray) -> np.ndarray:
    """Return the rounding error of action values [A, C, L, n] for each stock, [C, L, 1].

    A Fourier transform rounds every point in proportion to the largest value.
    """
    return TIE_TOLERANCE * np.abs(q).max(axis=(0, -1))[..., None]


def return_range(model: Model, factors: np.ndarray) -> tuple[float, float]:
    """Return bounds of the discounted return, from extreme rewards and terminal payoffs."""
    lows, highs = [], []
    low = high = 0.0
    for t, d in enumerate(factors):
        payoff, rewards = model.terminal_payoff(t), d * np.asarray(model.rewards(t))
        if payoff is not None and not np.isnan(payoff).all():
            lows.append(low + d * np.nanmin(payoff))
            highs.append(high + d * np.nanmax(payoff))
            if not np.isnan(payoff).any():
                break  # every action ends the episode
        low, high = low + rewards.min(), high + rewards.max()
    else:
        lows.append(low)
        highs.append(high)
    return float(min(lows)), float(max(highs))
