"""Algorithm 1: infinite horizon, with a stationary risk-neutral tail from a decision T' on.

Backward induction decides for t < T', given that the stationary risk-neutral optimum under
γ_tail = d_{T'+1}/d_{T'} acts from T' on. This composite policy is evaluated under the true
discount, and a certificate bounds the gain of any better policy (theorem "Performance Bound for
Approximate Infinite-Horizon Policy", errata E17–E19).

Derivation. OCE is monotone and translation invariant, so |OCE(X) − OCE(Y)| <= sup|X − Y|, and
adding a constant to all rewards moves every policy's OCE alike: with w = R_max − R_min, rewards
count as ±w/2. Let d̃_t = d_t up to T' and d_{T'} γ_tail^{t−T'} beyond.
1. mismatch: replacing d by d̃ moves each policy by at most w/2 Σ|d_t − d̃_t|; two policies, so w Σ.
2. truncation: planning uses T' + K decisions, which costs w Σ_{t>=T'+K} d̃_t; the reported objective
   omits at most max|R| Σ d_t beyond the decisions over which it was computed.
3. tail, under d̃: f is concave and increasing, so from (s, S) at T' no policy has more than
   f(E x), x = S + d_{T'} G^RN(s), and the composite loses at most the Jensen gap f(E x) − E f(x).
   Mean: 0. Entropic: at most |β| d_{T'}² Δ_G²/8 in certainty equivalents (Hoeffding's lemma), with
   Δ_G = w/(1 − γ_tail) (E17, E18); certainty equivalents are translation invariant, so the bound
   holds at t = 0. Mean-CVaR: f(x) = min(κ₁x, κ₂x), whose gap is (κ₂ − κ₁) min(E x₊, E|x₋|) exactly
   (E19). This gap is for one c₀, and max_c J*(c) − max_c Ĵ(c) <= J*(c*) − Ĵ(c*) needs it at the
   unknown optimum's c*, not at the composite's, so the bound covers all c₀. As a function of S,
   E x₊ rises and E|x₋| falls; they are equal at E x = 0, where both are E|x − E x|/2. So the bound,
   for all c₀ and S, is (κ₂ − κ₁) d_{T'} max_s E|G^RN(s) − E G^RN(s)|/2 over states s reachable at
   T'.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rigor.envs.tabular_model import TabularModel, TabularParameters
from rigor.exact.backward_induction import (
    PolicyTables,
    StockAugmentedProblem,
    augments_with_stock,
)
from rigor.exact.discount_tail import TailBound, tail_factor
from rigor.exact.fixed_decisions import FixedDecisions
from rigor.exact.outer_search import grid_error, objective_of, optimum
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import PolicyOutcome, decision_rule, evaluate_policy
from rigor.exact.stationary import risk_neutral
from rigor.maths.discount import Discount
from rigor.maths.utility import Utility, facts_of, steepest_slope


@dataclass
class CompositePolicy:
    """The policy of Algorithm 1, its value and its certificate.

    Attributes:
      objective: the OCE of its discounted return under the true discount.
      c0: the initial stock for which it was planned.
      tables: its actions at t < T'. tail: its actions from T' on, int64 [n].
      gamma_tail: the discount factor of the tail.
      n_tail: K, the decisions of the tail used in planning.
      bound: a bound of the optimum minus the objective; None if no theorem covers the utility.
      parts: the bound's summands: tail, mismatch, truncation, search, stocks. The last is 0 if
        stocks are not gridded; otherwise it is an estimate, since the policy is planned on one
        grid and evaluated on another.
      reason: why there is no bound.
      stock_error: `grid_error` of the plan's grid of stocks plus that of the evaluation's.
      outcome: its return distribution under the true discount.
    """

    objective: float
    c0: float
    tables: PolicyTables
    tail: np.ndarray
    gamma_tail: float
    n_tail: int
    bound: float | None
    parts: dict[str, float]
    reason: str | None
    stock_error: float
    outcome: PolicyOutcome

    @property
    def all_tables(self) -> PolicyTables:
        """The tables at t < T', followed by the tail's, which applies from T' on."""
        return PolicyTables(
            [*self.tables.actions, self.tail[None].astype(np.int16)],
            [*self.tables.offsets, np.zeros(1)],
        )


def composite_policy(
    spec: TabularParameters,
    discount: Discount,
    utility: Utility,
    horizon: int,
    max_stocks: int,
    tolerance: float = 1e-6,
    progress: Callable[[int], None] = lambda solved: None,
) -> CompositePolicy:
    """Plan T' decisions followed by the risk-neutral optimum, evaluate and certify the policy.

    Args:
      spec: the problem; its own horizon is ignored.
      discount: d_t, with a tail factor below 1.
      utility: the risk measure's utility.
      horizon: T' >= 0, in agent steps.
      max_stocks: number of stocks of a decision above which a grid replaces them.
      tolerance: value of the omitted rewards, in reward units.
      progress: called with the number of initial stocks solved since its last call.

    Raises:
      UserError: the discount has no exponential tail, T' is negative, or the utility overflows.
    """
    gamma = tail_factor(discount, horizon)
    model = TabularModel(spec, 1)
    largest, width = float(np.abs(model.atoms).max()), float(np.ptp(model.atoms))
    tail = risk_neutral(model, gamma)
    bounds = TailBound(discount, horizon, gamma)
    negligible = tolerance / max(_slope(utility, model, bounds) * largest, 1e-300)
    n_tail = bounds.n_tail(negligible)
    planned = FixedDecisions(model, horizon + n_tail, lambda t: tail if t >= horizon else None)
    best = optimum(planned, bounds.planned(n_tail), utility, max_stocks, progress)
    tables = PolicyTables(best.tables.actions[:horizon], best.tables.offsets[:horizon])
    n_true, beyond = bounds.n_true(negligible)
    free = replace(planned, n_decisions=n_true)
    factors = np.asarray(discount.factor(np.arange(n_true)))
    reachable = reachable_stocks(free, factors[:, None], max_stocks)
    early, late = decision_rule(tables, reachable), tail[None]
    outcome = evaluate_policy(free, factors, reachable, lambda t: early(t) if t < horizon else late)
    objective, error = objective_of(utility, outcome), best.stock_error
    if not augments_with_stock(utility):  # backward induction is exact for any number of rewards
        fixed = replace(free, fixed=lambda t: tables.actions[t][0] if t < horizon else tail)
        objective = StockAugmentedProblem(fixed, factors, utility, max_stocks).policy(0.0)[0]
    else:
        error += grid_error(utility, _slope(utility, model, bounds), reachable)
    loss, reason = _tail_loss(model, tail, utility, bounds, n_tail, max_stocks)
    parts = {
        "tail": loss,
        "mismatch": width * bounds.mismatch,
        "truncation": width * bounds.planned_beyond(n_tail) + largest * beyond,
        "search": best.search_gap,
        "stocks": error,
    }
    return CompositePolicy(
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


def _slope(utility: Utility, model: TabularModel, bounds: TailBound) -> float:
    """Return the steepest slope of f over the total outcomes, or 1 if no stock is needed.

    Without a stock the OCE is computed directly, and every OCE has the Lipschitz constant 1.
    """
    if not utility.needs_stock:
        return 1.0
    total_discount = float(bounds.planned(1)[:-1].sum()) + bounds.planned_beyond(0)
    return steepest_slope(utility, -float(np.ptp(model.atoms)) * total_discount)


def _tail_loss(
    model: TabularModel,
    tail: np.ndarray,
    utility: Utility,
    bounds: TailBound,
    n_tail: int,
    max_stocks: int,
) -> tuple[float, str | None]:
    """Return a bound of the loss by risk neutrality from T' on under d̃, or why there is none."""
    width, facts = float(np.ptp(model.atoms)), facts_of(utility)
    if facts.exponential_rate is not None:
        return_width = bounds.at_horizon * width / (1.0 - bounds.gamma)
        return abs(facts.exponential_rate) * return_width**2 / 8.0, None
    if facts.kink_slopes is None:
        return 0.0, "no theorem covers a utility that is neither exponential nor piecewise linear"
    slope_above, slope_below = facts.kink_slopes
    if slope_above == 0.0:
        return 0.0, (
            "the utility is flat above its kink, so the optimum becomes indifferent, not risk "
            "neutral, as the discount falls, and no theorem covers it"
        )
    deviation = _largest_deviation(model, tail, bounds, n_tail, max_stocks)
    rest = width * bounds.planned_beyond(n_tail)
    return (slope_below - slope_above) * (deviation + rest) / 2.0, None


def _largest_deviation(
    model: TabularModel, tail: np.ndarray, bounds: TailBound, n_tail: int, max_stocks: int
) -> float:
    """Return d_{T'} max_s E|G − E G| of n_tail decisions of the tail, s reachable at T'.

    A grid of stocks splits probability with the mean unchanged, which can only increase E|G − E G|.
    """
    leads_to = (model.kernel > 0.0).any(axis=(1, 2))  # [n, n]: by some action
    reached = np.asarray(model.initial > 0.0)
    for _ in range(bounds.horizon):
        reached = np.asarray((leads_to & reached[:, None]).any(axis=0))
    factors = bounds.planned(n_tail)[bounds.horizon :]
    fixed = FixedDecisions(model, n_tail, lambda t: tail)
    reachable = reachable_stocks(fixed, factors[:, None], max_stocks)
    largest = 0.0
    for s in np.flatnonzero(reached):
        fixed.initial = np.eye(model.n_points)[s]
        outcome = evaluate_policy(fixed, factors, reachable, lambda t: tail[None])
        mean = float(outcome.probabilities @ outcome.returns)
        deviation = float(outcome.probabilities @ np.abs(outcome.returns - mean))
        largest = max(largest, deviation)
    return largest
