"""Candidate initial stocks, their predicted objectives, and relabelling."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rigor.envs.problem import ReturnToGo
from rigor.errors import UserError
from rigor.learning.networks import QuantileNetwork
from rigor.learning.replay import Batch
from rigor.learning.returns_seen import ReturnsSeen
from rigor.learning.value_targets import ValueTargets
from rigor.maths import stock
from rigor.maths.outer import Outer
from rigor.maths.utility import Utility

MARGIN = 0.1  # of the spread of the returns, by which the range exceeds them on either side
COARSE = 0.05  # of the returns' spread: a search whose candidates lie further apart is coarse
ROWS = 1024  # pairs of an initial state and a stock that the search handles at once
ON_EDGE = 3  # searches in a row that end at an end of the range before a run warns


class StockCandidates:
    """Initial stocks that may be the best, in learner's reward units.

    The best c₀ is minus a quantile of the return for CVaR and Mean-CVaR, and lies between minus the
    mean and minus the smallest return for mean-variance. So the range is minus the range of the
    returns: as the problem bounds them, where they are given, and otherwise as training has seen
    them, with a margin. Both ends can be set in the config.

    Args:
      spec: the outer search, as the config describes it.
      returns: of the training episodes.
      bounds: of the return-to-go, where the agent uses the problem's own bounds.
    """

    def __init__(self, spec: Outer, returns: ReturnsSeen, bounds: ReturnToGo | None) -> None:
        self._spec, self._returns, self._bounds = spec, returns, bounds
        self.searched = np.zeros(0)  # candidates of the newest search, ascending
        self.searches_on_edge = 0  # in a row
        self._warned_edge = self._warned_coarse = False

    def check(self) -> None:
        """Refuse an empty range before anything was seen.

        Raises:
          UserError: no stock lies between the two ends.
        """
        low, high = self.range()
        if low >= high:
            raise UserError(
                f"outer.low={low:g} with outer.high={high:g}: no initial stock lies between; set "
                "both (null takes the largest discounted sum of rewards known at the start)"
            )

    def range(self) -> tuple[float, float]:
        """Return the smallest and the largest candidate of the grid."""
        spec, returns = self._spec, self._returns
        if self._bounds is not None:
            low, high = -float(self._bounds.high[0]), 0.0 - float(self._bounds.low[0])
        else:
            margin = MARGIN * returns.spread
            low, high = -returns.high - margin, margin - returns.low
        low = low if spec.low is None else spec.low
        high = high if spec.high is None else spec.high
        if low >= high and self._bounds is None:  # one end is set beyond what was seen
            spread = returns.spread
            low, high = (low, low + spread) if spec.high is None else (high - spread, high)
        return low, high

    def grid(self) -> np.ndarray:
        """Return the first candidates of a search, ascending, float64 [G].

        They are evenly spaced stocks, and minus what the return can be, because the utility of CVaR
        bends there: each attainable return where these are few, or quantiles of the returns seen.
        """
        low, high = self.range()
        spaced = stock.grid(low, high, self._spec.points)
        returns = self._returns.newest
        if self._bounds is not None:
            attainable = self._bounds.attainable
            returns = np.zeros(0) if attainable is None else attainable[0]
        elif len(returns):
            returns = np.quantile(returns, np.linspace(0.0, 1.0, 51))
        return np.union1d(spaced, self.inside(-returns))

    def limits(self) -> tuple[float, float]:
        """Return the ends that the config and the problem set; infinite where they set none."""
        if self._bounds is not None:
            return self.range()
        spec = self._spec  # predicted returns may exceed those seen
        low = -math.inf if spec.low is None else spec.low
        return low, math.inf if spec.high is None else spec.high

    def inside(self, stocks: np.ndarray) -> np.ndarray:
        """Return the stocks [n] within the limits, [≤ n]."""
        low, high = self.limits()
        return stocks[(low <= stocks) & (stocks <= high)]

    def note_search(self, candidates: np.ndarray, c0: float) -> str | None:
        """Keep the candidates of a search, ascending [G]; return a warning if it is due, else None.

        Each kind of warning is due once.

        Args:
          candidates: of the search. c0: the best of them.
        """
        self.searched = candidates
        low, high = candidates[[0, -1]]
        self.searches_on_edge = self.searches_on_edge + 1 if c0 in (low, high) else 0
        if self.searches_on_edge == ON_EDGE and not self._warned_edge:
            self._warned_edge = True
            return (
                f"the initial stock {c0:.4g} is an end of its range [{low:.4g}, {high:.4g}] in "
                f"{ON_EDGE} searches in a row; widen outer.low or outer.high"
            )
        returns = self._returns.newest
        if self._bounds is not None or len(returns) < 2 or self._warned_coarse:
            return None
        at = int(np.searchsorted(candidates, c0))
        gap = float(np.diff(candidates[max(at - 1, 0) : at + 2]).min())
        spread = float(np.ptp(np.quantile(returns, (0.05, 0.95))))
        if 0.0 < COARSE * spread < gap:
            self._warned_coarse = True
            return (
                f"the candidates near the initial stock {c0:.4g} lie {gap:.3g} apart, more than "
                f"{COARSE:.0%} of the returns' spread, {spread:.3g}; raise outer.points, or set "
                "outer.low and outer.high around it"
            )
        return None

    def relabel(self, batch: Batch, rng: np.random.Generator) -> None:
        """Give a fraction of the transitions another initial stock, drawn from the candidates.

        This is valid because the stock is a deterministic function of the rewards.
        """
        start = self.spread(batch.stock_start, rng)
        batch.stock = stock.relabel(batch.stock, batch.stock_start, start)
        batch.stock_start = start

    def spread(self, initial: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return initial stocks [n], of which a fraction is replaced by candidates drawn at random.

        Half of the candidates are spaced evenly, and the others lie where returns are.
        """
        n = len(initial)
        chosen = rng.random(n) < self._spec.relabel
        if self._bounds is not None or not len(self.searched):
            drawn = rng.uniform(*self.range(), n)
        else:
            drawn = rng.choice(self.searched, n)
        return np.where(chosen, drawn, initial)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"searched": self.searched, "searches_on_edge": self.searches_on_edge}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        vars(self).update(state)


@torch.no_grad()
def predicted_objectives(
    network: QuantileNetwork,
    values: ValueTargets,
    candidates: StockCandidates,
    observations: Tensor,
    utility: Utility,
    shift: float = 0.0,
) -> tuple[np.ndarray, Tensor]:
    """Return candidate stocks, ascending, and the agent's predicted J at each, float64 [G].

    The candidates are a grid, and, for the returns that are predicted at each of its stocks, the
    best c of a utility: the agent's own, or that of another risk level.

    Args:
      network: whose predictions are asked for. values: what they mean.
      candidates: of the agent.
      observations: of K initial states, [K, *shape], on the network's device.
      utility: of the level. shift: of the level's stocks, see `rigor.maths.utility.RiskLevel`.
    """
    grid = candidates.grid()
    start_values = _start_values(network, values, observations, grid)
    at = torch.as_tensor(grid - shift, device=observations.device)
    more = shift + values.refined(utility, at, start_values)
    more = np.setdiff1d(candidates.inside(more), grid)
    if len(more):
        found = _start_values(network, values, observations, more)
        start_values = torch.cat([start_values, found])
    stocks, order = np.unique(np.append(grid, more), return_index=True)  # ascending
    at = torch.as_tensor(stocks, device=observations.device)
    return stocks, values.objective(at, start_values[order]).cpu()


def _start_values(
    network: QuantileNetwork, values: ValueTargets, observations: Tensor, stocks: np.ndarray
) -> Tensor:
    """Return `ValueTargets.start_values` at initial stocks [G], [G, K, A, N]."""
    k, features = len(observations), network.encode(observations)  # [K, F]
    parts = []
    for part in torch.as_tensor(stocks, device=features.device).split(max(1, ROWS // k)):
        stock = part.repeat_interleave(k)
        t = torch.zeros_like(stock, dtype=torch.int64)
        hidden = network.join(features.repeat(len(part), 1), t, stock)
        parts.append(values.start_values(network.head(hidden)).unflatten(0, (-1, k)))
    return torch.cat(parts)
