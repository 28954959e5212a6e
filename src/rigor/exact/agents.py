"""The exact agents: from a config to a policy, its outcome and its distance from the optimum."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rigor.config import Config
from rigor.exact import optimum as best
from rigor.exact.heads import head_policy
from rigor.exact.infinite_horizon import composite
from rigor.exact.levels import reachable
from rigor.exact.measure import NEGLIGIBLE, both_clocks, certified, judge
from rigor.exact.model import Model
from rigor.exact.optimum import Optimum, objective_of, optimum
from rigor.exact.outcome import Outcome, follow, tabulated
from rigor.exact.policy import TablePolicy
from rigor.exact.solve import Problem, Tables
from rigor.exact.stationary import stationary_heads
from rigor.exact.tabular import TabularModel
from rigor.exact.tail import Far, tail_factor
from rigor.maths import stock


class Working(Protocol):
    """Who is told how the work goes."""

    def __call__(self, stocks: int) -> None:
        """Count initial stocks that have been solved for since the last call."""
        ...

    def note(self, text: str) -> None:
        """Say something to the user."""
        ...


@dataclass
class Solved:
    """What an exact agent found.

    Attributes:
      policy: it acts in the environment.
      outcome: what it leads to, under the true discount.
      numbers: for `result.json`.
    """

    policy: TablePolicy
    outcome: Outcome
    numbers: dict[str, Any]


def backward_induction(config: Config, working: Working) -> Solved:
    """Solve a finite problem: the optimum, or what an inconsistent agent makes of it.

    The agent plans with its bundle's discount; it is judged by the true one.
    """
    model: Model = config.env.model()
    times = np.arange(model.n_decisions)
    factors, mass = config.discount.factor(times), config.bundle.mass(times)
    most = config.exact.max_stocks
    target = optimum(model, factors, config.risk, most, working)
    own = target
    if config.bundle.gammas is not None and config.variant.clock_runs:
        own = optimum(model, mass, config.risk, most, working)
    tables, c0 = own.tables, own.c0
    if not config.variant.clock_runs or config.agent.bootstrap == "per_head":
        per_head = config.agent.bootstrap == "per_head"
        c0 = 0.0
        tables = head_policy(
            model, config.bundle, clock_runs=config.variant.clock_runs, per_head=per_head
        )
    policy = TablePolicy(model, tables, c0, mass)
    outcome, levels = own.outcome, own.levels
    if tables is not target.tables:
        levels = both_clocks(model, mass, factors, config.risk.needs_stock, most)
        outcome = follow(model, factors, levels, tabulated(tables, levels), clock=1)
    numbers = judge(config.risk, model, factors, tabulated(tables, levels), outcome, target)
    numbers |= {"initial_stock": c0, "search_gap": own.missed, "stock_error": own.stock_error}
    if own.stock_error:
        working.note(
            f"more than {most} stocks: interpolated on a grid, error about {own.stock_error:.2g}"
        )
    if config.exact.grid and config.risk.needs_stock and config.variant.clock_runs:
        numbers |= on_grid(config, Problem(model, mass, config.risk, most, working), own, working)
    return Solved(policy, outcome, numbers)


def on_grid(config: Config, problem: Problem, own: Optimum, working: Working) -> dict[str, Any]:
    """Return the best initial stock of the user's grid; say so when the grid misses the optimum."""
    low, high = -problem.highest, -problem.lowest
    spec = config.outer
    low = low if spec.low is None else spec.low
    high = high if spec.high is None else spec.high
    c0, value, on_edge = best.grid_stock(problem, stock.grid(low, high, spec.points))
    if on_edge and (low > -problem.highest or high < -problem.lowest):
        working.note(
            f"outer.low={low:.6g}, outer.high={high:.6g}: the best initial stock of the grid is "
            f"its end {c0:.6g}, the optimum lies at {own.c0:.6g}; widen the grid"
        )
    return {"initial_stock_grid": c0, "objective_grid": value}


def infinite_horizon(config: Config, working: Working) -> Solved:
    """Solve a problem without end: by Algorithm 1, or as the stationary inconsistent agent.

    The optimum lies between `optimum_low`, what Algorithm 1 reaches, and `optimum_high`, its
    certificate above that, where there is one.
    """
    most, horizon = config.exact.max_stocks, config.agent.horizon
    best = composite(config.env, config.discount, config.risk, horizon, most, tell=working)
    tables, c0, outcome, objective = best.whole, best.c0, best.outcome, best.objective
    numbers: dict[str, Any] = {}
    if not config.variant.clock_runs:
        per_head = config.agent.bootstrap == "per_head"
        cycle = stationary_heads(TabularModel(config.env, 1), config.bundle, per_head)
        numbers = {"cycle": [policy.tolist() for policy in cycle]}
        if len(cycle) > 1:
            working.note(
                f"no pure fixed point: the agent goes round {len(cycle)} policies; the first is "
                "saved and evaluated, all are in result.json"
            )
        tables, c0 = Tables([cycle[0][None].astype(np.int16)], [np.zeros(1)]), 0.0
        outcome = stationary_outcome(config, cycle[0])
        objective = objective_of(config.risk, outcome)
    numbers |= certified(best, objective)
    numbers |= {
        "certificate": best.parts,
        "no_certificate": best.reason,
        "initial_stock": c0,
        "gamma_tail": best.gamma_tail,
        "tail_decisions": best.n_tail,
        "stock_error": best.stock_error,
    }
    numbers["law_error"] = abs(objective_of(config.risk, outcome) - objective)
    if numbers["law_error"] > 1e-9 * max(1.0, abs(objective)):
        working.note(
            f"more than {most} stocks: the law in outcomes.npz stands on a grid and gives an "
            f"objective that is {numbers['law_error']:.2g} off"
        )
    if best.reason:
        working.note(f"no certificate: {best.reason}")
    else:
        working.note(
            f"the optimum lies between {numbers['optimum_low']:.6g} and "
            f"{numbers['optimum_high']:.6g}, this policy is worth {objective:.6g}"
        )
    mass = config.discount.factor(np.arange(horizon + 1))
    return Solved(TablePolicy(TabularModel(config.env, 1), tables, c0, mass), outcome, numbers)


def stationary_outcome(config: Config, actions: np.ndarray) -> Outcome:
    """Return what a stationary policy [n] leads to, over the decisions that matter."""
    far = Far(config.discount, 0, tail_factor(config.discount, 0))
    largest = config.env.reward_bound
    n_decisions, _ = far.n_true(NEGLIGIBLE / max(largest, 1e-300))
    model = TabularModel(config.env, n_decisions)
    factors = config.discount.factor(np.arange(n_decisions))
    levels = reachable(model, factors[:, None], config.exact.max_stocks)
    return follow(model, factors, levels, lambda t: actions[None])
