"""Algorithm 1: the infinite horizon, risk-neutral and stationary from a decision T' on.

Backward induction decides for t < T' and knows that from T' on the stationary risk-neutral optimum
under γ_tail = d_{T'+1}/d_{T'} plays. That composite policy is evaluated under the true discount,
and a certificate bounds what a better policy could add (theorem "Performance Bound for Approximate
Infinite-Horizon Policy", errata E17–E19).

Derivation. OCE is monotone and translation invariant, so |OCE(X) − OCE(Y)| <= sup|X − Y|, and
adding a constant to all rewards moves every policy's OCE alike: with w = R_max − R_min, rewards
count as ±w/2. Let d̃_t = d_t up to T' and d_{T'} γ_tail^{t−T'} beyond.
1. mismatch: replacing d by d̃ moves each policy by at most w/2 Σ|d_t − d̃_t|; two policies, so w Σ.
2. truncation: planning looks at T' + K decisions, which costs w Σ_{t>=T'+K} d̃_t; the objective
   reported leaves out at most max|R| Σ d_t beyond the decisions that it was computed over.
3. tail, under d̃: f is concave and increasing, so from (s, S) at T' no policy has more than
   f(E x), x = S + d_{T'} G^RN(s), which the composite misses by the Jensen gap f(E x) − E f(x).
   Mean: 0. Entropic: at most |β| d_{T'}² Δ_G²/8 in certainty equivalents (Hoeffding's lemma), with
   Δ_G = w/(1 − γ_tail) (E17, E18); they are translation invariant, so that carries back to t = 0.
   Mean-CVaR: f(x) = min(κ₁x, κ₂x), whose gap is (κ₂ − κ₁) min(E x₊, E|x₋|) exactly (E19). It holds
   for one c₀. max_c J*(c) − max_c Ĵ(c) <= J*(c*) − Ĵ(c*) asks for it at the unknown optimum's c*,
   not at the composite's: so take all c₀. As a function of S the first of the two rises and the
   second falls; they meet at E x = 0, where both are E|x − E x|/2. So the bound, free of c₀ and S,
   is (κ₂ − κ₁) d_{T'} max_s E|G^RN(s) − E G^RN(s)|/2 over the states s reachable at T'.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rigor.exact.decided import Decided
from rigor.exact.levels import reachable
from rigor.exact.optimum import objective_of, optimum
from rigor.exact.outcome import Outcome, follow, tabulated
from rigor.exact.search import steepest_slope
from rigor.exact.solve import Problem, Tables
from rigor.exact.stationary import risk_neutral
from rigor.exact.tabular import TabularModel
from rigor.exact.tail import Far, tail_factor
from rigor.maths.discount import Discount
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance, Utility

if TYPE_CHECKING:
    from rigor.envs.tabular import Tabular


@dataclass
class Composite:
    """The policy of Algorithm 1 and what it is worth.

    Attributes:
      objective: the OCE of its discounted return under the true discount.
      c0: the initial stock that it was planned for.
      tables: its actions at t < T'. tail: its actions from T' on, int64 [n].
      gamma_tail: the factor that the tail was planned with.
      n_tail: K, the decisions of the tail that planning looked at.
      bound: what the optimum may be larger by; None where no theorem covers the utility.
      parts: the bound's summands: tail, mismatch, truncation, search, stocks. The last is the
        stock error, an estimate and no bound; it is 0 where no stocks are gridded.
      reason: why there is no bound.
      stock_error: how much a value moved when the grid of stocks got twice as fine.
      outcome: the law of its return under the true discount.
    """

    objective: float
    c0: float
    tables: Tables
    tail: np.ndarray
    gamma_tail: float
    n_tail: int
    bound: float | None
    parts: dict[str, float]
    reason: str | None
    stock_error: float
    outcome: Outcome

    @property
    def whole(self) -> Tables:
        """All tables, with the tail's as the last, which holds from T' on."""
        return Tables(
            [*self.tables.actions, self.tail[None].astype(np.int16)],
            [*self.tables.offsets, np.zeros(1)],
        )


def composite(
    spec: "Tabular",
    discount: Discount,
    utility: Utility,
    horizon: int,
    max_stocks: int,
    tolerance: float = 1e-6,
    tell: Callable[[int], None] = lambda solved: None,
) -> Composite:
    """Plan T' decisions, end with the risk-neutral optimum, evaluate and certify.

    Args:
      spec: the problem; its own horizon plays no part.
      discount: d_t, with a tail factor below 1.
      utility: the risk.
      horizon: T' >= 0, in agent steps.
      max_stocks: stocks of one decision above which they become a grid.
      tolerance: the value of the rewards that may be cut off, in reward units.
      tell: called with how many initial stocks have been solved for since the last call.

    Raises:
      UserError: the discount has no exponential tail, T' is negative, or the utility overflows.
    """
    gamma = tail_factor(discount, horizon)
    model = TabularModel(spec, 1)
    largest, width = float(np.abs(model.atoms).max()), float(np.ptp(model.atoms))
    tail = risk_neutral(model, gamma)
    far = Far(discount, horizon, gamma)
    slope = _slope(utility, model, far)
    n_tail = far.n_tail(tolerance / max(slope * largest, 1e-300))
    planned = Decided(model, horizon + n_tail, lambda t: tail if t >= horizon else None)
    best = optimum(planned, far.planned(n_tail), utility, max_stocks, tell)
    tables = Tables(best.tables.actions[:horizon], best.tables.offsets[:horizon])
    n_true, beyond = far.n_true(tolerance / max(slope * largest, 1e-300))
    played = replace(planned, n_decisions=n_true)
    factors = np.asarray(discount.factor(np.arange(n_true)))
    outcome = _outcome(played, factors, tables, tail, max_stocks)
    objective, error = objective_of(utility, outcome), best.stock_error
    if not utility.needs_stock:  # exact however many rewards there are
        fixed = replace(played, fixed=lambda t: tables.actions[t][0] if t < horizon else tail)
        objective = Problem(fixed, factors, utility, max_stocks).policy(0.0)[0]
    elif best.levels.gridded:
        coarse = _outcome(played, factors, tables, tail, max_stocks // 2 + 1)
        error = max(error, abs(objective - objective_of(utility, coarse)))
    loss, reason = _tail_loss(model, tail, utility, horizon, far, n_tail, max_stocks)
    parts = {
        "tail": loss,
        "mismatch": width * far.mismatch,
        "truncation": width * far.planned_beyond(n_tail) + largest * beyond,
        "search": best.missed,
        "stocks": error,
    }
    return Composite(
        objective,
        best.c0,
        tables,
        tail,
        gamma,
        n_tail,
        None if reason else sum(parts.values()),
        {} if reason else parts,
        reason,
        error,
        outcome,
    )


def _slope(utility: Utility, model: TabularModel, far: Far) -> float:
    """Return L over the totals; 1 where the OCE is found without f, since it is 1-Lipschitz."""
    if not utility.needs_stock:
        return 1.0
    whole = float(far.planned(1)[:-1].sum()) + far.planned_beyond(0)
    return steepest_slope(utility, -float(np.ptp(model.atoms)) * whole)


def _outcome(
    played: Decided, factors: np.ndarray, tables: Tables, tail: np.ndarray, max_stocks: int
) -> Outcome:
    """Return what the composite policy leads to."""
    levels = reachable(played, factors[:, None], max_stocks)
    early, late = tabulated(tables, levels), tail[None]
    return follow(played, factors, levels, lambda t: early(t) if t < len(tables.actions) else late)


def _tail_loss(
    model: TabularModel,
    tail: np.ndarray,
    utility: Utility,
    horizon: int,
    far: Far,
    n_tail: int,
    max_stocks: int,
) -> tuple[float, str | None]:
    """Return what risk neutrality from T' on can cost under d̃, or why that is not known."""
    width = float(np.ptp(model.atoms))
    if isinstance(utility, Mean):
        return 0.0, None
    if isinstance(utility, Entropic):
        spread = far.at_horizon * width / (1.0 - far.gamma)
        return abs(utility.beta) * spread**2 / 8.0, None
    if isinstance(utility, MeanCVaR) and utility.kappa > 0.0:
        bend = utility.lipschitz - utility.kappa
        deviation = _deviation(model, tail, horizon, far, n_tail, max_stocks)
        return bend * (deviation + width * far.planned_beyond(n_tail)) / 2.0, None
    if isinstance(utility, CVaR | MeanCVaR):
        return 0.0, "CVaR becomes indifferent as d_t falls, not risk neutral: no theorem covers it"
    if isinstance(utility, MeanVariance):
        return 0.0, "Mean-Variance has no global curvature and is flat above its bend: no theorem"
    return 0.0, f"no theorem covers risk={type(utility).__name__}"


def _deviation(
    model: TabularModel, tail: np.ndarray, horizon: int, far: Far, n_tail: int, max_stocks: int
) -> float:
    """Return d_{T'} max_s E|G − E G| of n_tail decisions of the tail, s reachable at T'.

    A grid of totals splits mass with its mean kept, which only adds to the deviation.
    """
    lead = (model.kernel > 0.0).any(axis=(1, 2))  # [n, n]: whether some action leads there
    reached = np.asarray(model.initial > 0.0)
    for _ in range(horizon):
        reached = np.asarray((lead & reached[:, None]).any(axis=0))
    factors = far.planned(n_tail)[horizon:]
    only = Decided(model, n_tail, lambda t: tail)
    levels = reachable(only, factors[:, None], max_stocks)
    largest = 0.0
    for s in np.flatnonzero(reached):
        only.initial = np.eye(model.n_points)[s]
        law = follow(only, factors, levels, lambda t: tail[None])
        middle = float(law.probabilities @ law.returns)
        largest = max(largest, float(law.probabilities @ np.abs(law.returns - middle)))
    return largest
