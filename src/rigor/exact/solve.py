"""Backward induction on (point, time, stock): the best policy for any discount and any OCE.

Theorem "Optimality of Distributional Backward Induction": with the total S_t = c₀ + Σ d_k R_{k+1}
in the state, the policy that maximises E f(S_T) decision by decision is optimal for −c₀ + E f. The
expectation of f is all that the induction needs of the return's distribution; `outcome.py` gives
the whole of it. The mean and the entropic risk need no stock.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rigor.errors import UserError
from rigor.exact.levels import Levels, reachable
from rigor.exact.model import Model
from rigor.maths.utility import Entropic, Mean, Utility

# Values that differ by less than this share of the largest are tied: transforms and sums round.
TIE = 1e-11
LARGEST_EXPONENT = 600.0  # of exp in float64, with room for sums
CHUNK_BYTES = 64 << 20  # of one array of action values


@dataclass
class Tables:
    """A policy as tables: an action for every decision, offset and point.

    Attributes:
      actions: of t = 0 ... T − 1, each int16 [L_t, n].
      offsets: of t = 0 ... T − 1, each float64 [L_t]; one offset where the stock does not matter.
    """

    actions: list[np.ndarray]
    offsets: list[np.ndarray]


class Problem:
    """A model under one discount and one utility, ready to be solved for any initial stock.

    Attributes:
      levels: the reachable offsets; one at every decision where the utility needs no stock.
      lowest, highest: the range of the discounted return.

    Raises:
      UserError: the utility overflows over the range of returns.
    """

    def __init__(
        self,
        model: Model,
        factors: np.ndarray,
        utility: Utility,
        max_stocks: int,
        tell: Callable[[int], None] = lambda solved: None,
    ) -> None:
        """Enumerate what can be earned.

        Args:
          model: the problem.
          factors: d_t of the T decisions, [T].
          utility: the risk.
          max_stocks: stocks of one decision above which they become a grid.
          tell: called with how many initial stocks have been solved for since the last call.
        """
        self.model, self.factors, self.utility, self.tell = model, factors, utility, tell
        self.needs_stock = not isinstance(utility, Mean | Entropic)
        self.lowest, self.highest = return_range(model, factors)
        largest = getattr(model, "largest_exponent", LARGEST_EXPONENT)
        refuse_overflow(utility, self.lowest, self.highest, largest)
        self.levels: Levels | None = None
        if self.needs_stock:
            self.levels = reachable(model, factors[:, None], max_stocks)

    def objective(self, stocks: np.ndarray) -> np.ndarray:
        """Return J(c₀) = −c₀ + max_π E f(c₀ + G), [C], for initial stocks [C].

        The same for every stock where the utility needs none: the OCE itself.
        """
        if self.levels is None:
            return np.full(len(stocks), self._stockless()[0])
        model = self.model
        size = 8 * model.n_actions * self.levels.most * model.n_points
        chunk = max(1, CHUNK_BYTES // size)
        values = []
        for i in range(0, len(stocks), chunk):
            values.append(self._with_stock(stocks[i : i + chunk], None))
            self.tell(len(values[-1]))
        return np.concatenate(values)

    def policy(self, stock: float) -> tuple[float, Tables]:
        """Return J(c₀) and the best policy from one initial stock.

        Ties, which are common where a utility is flat, go to the larger mean return, then to the
        lower action.
        """
        actions: list[np.ndarray] = []
        if self.levels is None:
            value, actions = self._stockless()
            offsets = [np.zeros(1) for _ in actions]
            return value, Tables(actions, offsets)
        (value,) = self._with_stock(np.array([stock]), actions)
        return float(value), Tables(actions[::-1], [o[:, 0] for o in self.levels.offsets[:-1]])

    def _with_stock(self, stocks: np.ndarray, actions: list[np.ndarray] | None) -> np.ndarray:
        """Return J [C]; with a list for one stock's actions, append them from the last decision."""
        assert self.levels is not None
        model, levels, f = self.model, self.levels, self.utility.f
        n, n_stocks = model.n_points, len(stocks)
        totals = stocks[:, None] + levels.offsets[-1][:, 0]  # [C, L]
        value = np.broadcast_to(f(totals)[..., None], (*totals.shape, n))
        mean = np.broadcast_to(totals[..., None], value.shape)
        for t in reversed(range(model.n_decisions)):
            totals = stocks[:, None] + levels.offsets[t][:, 0]
            stops = model.stops(t)
            gains = None if stops is None else self.factors[t] * stops[:, None, None]  # [A,1,1,n]
            ends = None if gains is None else totals[..., None] + gains  # [A, C, L, n]
            q = self._expect(t, value, None if ends is None else f(ends))
            if actions is None:
                value = q.max(axis=0)
                continue
            means = self._expect(t, mean, ends)
            tied = q >= q.max(axis=0) - _rounding(q)
            slack = _rounding(means)
            means = np.where(tied, means, -np.inf)
            chosen = (means >= means.max(axis=0) - slack).argmax(axis=0)[None]
            value, mean = (np.take_along_axis(x, chosen, 0)[0] for x in (q, means))
            actions.append(chosen[0, 0].astype(np.int16))
        return value.reshape(n_stocks, n) @ model.initial - stocks

    def _expect(self, t: int, value: np.ndarray, ends: np.ndarray | None) -> np.ndarray:
        """Return the action values [A, C, L_t, n] of `value` [C, L_{t+1}, n]."""
        assert self.levels is not None
        reached = self.levels.gather(t, value)  # [R, C, L, n]
        flat = reached.reshape(len(reached), -1, reached.shape[-1])
        q = self.model.expect(t, flat).reshape(-1, *reached.shape[1:])
        return q if ends is None else np.where(np.isnan(ends), q, ends)

    def _stockless(self) -> tuple[float, list[np.ndarray]]:
        """Return the OCE and the actions, each [1, n], of the mean or the entropic risk.

        Mean: V_t = max_a E[d_t R + V_{t+1}]. Entropic: V_t = max_a −E[e^{β d_t R} (−V_{t+1})].
        """
        model, beta = self.model, getattr(self.utility, "beta", None)
        value = np.full((1, model.n_points), 0.0 if beta is None else -1.0)
        actions = []
        for t in reversed(range(model.n_decisions)):
            d = self.factors[t]
            gains = d * np.asarray(model.rewards(t))[:, None, None]  # [R, 1, 1]
            reached = value + gains if beta is None else value * np.exp(beta * gains)
            q = model.expect(t, reached)  # [A, 1, n]
            stops = model.stops(t)
            if stops is not None:
                ends = d * stops[:, None]
                q = np.where(np.isnan(ends), q, ends if beta is None else -np.exp(beta * ends))
            best = q.max(axis=0)
            # the lower action of those tied: of two that differ by rounding alone as well
            # (the entropic values span many orders of magnitude, so that each has its own rounding)
            slack = TIE * (np.abs(q).max() if beta is None else np.abs(best))
            actions.append((q >= best - slack).argmax(axis=0).astype(np.int16))
            value = best
        total = float(value[0] @ model.initial)
        return (total if beta is None else float(np.log(-total) / beta)), actions[::-1]


def _rounding(q: np.ndarray) -> np.ndarray:
    """Return what rounding can do to action values [A, C, L, n], in proportion: [C, L, 1].

    A transform's rounding is that of the function's largest value, everywhere.
    """
    return TIE * np.abs(q).max(axis=(0, -1))[..., None]


def return_range(model: Model, factors: np.ndarray) -> tuple[float, float]:
    """Return bounds of the discounted return: sums of the extreme rewards, and the stops."""
    lows, highs = [], []
    low = high = 0.0
    for t, d in enumerate(factors):
        stops, rewards = model.stops(t), d * np.asarray(model.rewards(t))
        if stops is not None and not np.isnan(stops).all():
            lows.append(low + d * np.nanmin(stops))
            highs.append(high + d * np.nanmax(stops))
            if not np.isnan(stops).any():
                break  # nothing goes on from here
        low, high = low + rewards.min(), high + rewards.max()
    else:
        lows.append(low)
        highs.append(high)
    return float(min(lows)), float(max(highs))


def refuse_overflow(
    utility: Utility, lowest: float, highest: float, largest: float = LARGEST_EXPONENT
) -> None:
    """Raise UserError where exp(βx) of the entropic utility spans too much over the returns.

    Args:
      utility: the risk. lowest, highest: range of the discounted return.
      largest: exponent that can be computed with.
    """
    beta = utility.beta if isinstance(utility, Entropic) else None  # not a user's own beta
    reach = max(abs(lowest), abs(highest), highest - lowest)
    if beta is not None and abs(beta) * reach > largest:
        raise UserError(
            f"risk.beta={beta}: exp(beta x) spans too much for discounted returns from "
            f"{lowest:.4g} to {highest:.4g}; risk.beta={-0.99 * largest / reach:.3g} works"
        )
