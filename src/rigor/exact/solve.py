"""From a config to an exact solution: its policy, return distribution and regret."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigor.config.config import Config
from rigor.envs.model import Model
from rigor.envs.tabular_model import TabularModel
from rigor.envs.vector import LARGEST_REWARD
from rigor.errors import UserError
from rigor.exact.backward_induction import (
    PolicyTables,
    StockAugmentedProblem,
    augments_with_stock,
)
from rigor.exact.discount_tail import TailBound, tail_factor
from rigor.exact.infinite_horizon import composite_policy
from rigor.exact.multi_horizon import multi_horizon_policy
from rigor.exact.outer_search import Optimum, best_grid_stock, objective_of, optimum
from rigor.exact.policy_evaluation import (
    NEGLIGIBLE,
    certified_metrics,
    grid_note,
    policy_metrics,
    reachable_under_both_discounts,
)
from rigor.exact.reachable_stocks import reachable_stocks
from rigor.exact.return_distribution import PolicyOutcome, decision_rule, evaluate_policy
from rigor.exact.solver_progress import NoProgress, SolverLine
from rigor.exact.stationary import stationary_cycle
from rigor.exact.table_policy import TablePolicy
from rigor.maths.stock import grid
from rigor.maths.utility import RiskLevel


@dataclass
class ExactSolution:
    """The result of an exact agent.

    Attributes:
      policy: the policy, which can act in the environment.
      outcome: its return distribution under the true discount.
      metrics: for `result.json`.
    """

    policy: TablePolicy
    outcome: PolicyOutcome
    metrics: dict[str, Any]


def solve_finite(config: Config, progress: SolverLine) -> ExactSolution:
    """Solve a finite problem: its optimum, or the policy of an inconsistent agent.

    The agent plans with its bundle's discount and is evaluated under the true one.

    Raises:
      UserError: the model has a reward that is not finite.
    """
    model: Model = config.env.problem.model()
    check_rewards(config.env_name, model)
    times = np.arange(model.n_decisions)
    factors, discount = config.discount.factor(times), config.bundle.discount(times)
    max_stocks, clock_runs = config.exact.max_stocks, config.variant.clock_runs
    target = optimum(model, factors, config.risk, max_stocks, progress)
    own = target
    if config.bundle.gammas is not None and clock_runs:
        own = optimum(model, discount, config.risk, max_stocks, progress)
    tables, c0 = own.tables, own.c0
    per_head = config.agent.bootstrap == "per_head"
    if not clock_runs or per_head:
        c0 = 0.0
        tables = multi_horizon_policy(
            model, config.bundle, clock_runs=clock_runs, per_head=per_head
        )
    outcome, reachable = own.outcome, own.reachable
    with_stock = augments_with_stock(config.risk)
    if tables is not target.tables:
        reachable = reachable_under_both_discounts(model, discount, factors, with_stock, max_stocks)
        rule = decision_rule(tables, reachable)
        outcome = evaluate_policy(model, factors, reachable, rule, discount_index=1)
    rule = decision_rule(tables, reachable)
    metrics = policy_metrics(config.risk, model, factors, rule, outcome, target)
    metrics |= {"initial_stock": c0, "search_gap": own.search_gap}
    if target.stock_error:
        progress.note(grid_note(max_stocks, target.stock_error))
    if config.exact.grid and with_stock and clock_runs:
        problem = StockAugmentedProblem(model, discount, config.risk, max_stocks, progress)
        metrics |= search_grid(config, problem, own, progress)
    return ExactSolution(TablePolicy(model, tables, c0, discount), outcome, metrics)


def check_rewards(name: str, model: Model) -> None:
    """Refuse a model with rewards that no solver can add up.

    Args:
      name: the environment as the user typed it, such as `env=mine`.

    Raises:
      UserError: naming the environment, the decision and the value.
    """
    for t in range(model.n_decisions):
        payoff = model.terminal_payoff(t)  # NaN where the episode continues
        ends = np.zeros(0) if payoff is None else payoff[~np.isnan(payoff)]
        for member, values in (("rewards", model.rewards(t)), ("terminal_payoff", ends)):
            if (wrong := ~(np.abs(values) <= LARGEST_REWARD)).any():
                raise UserError(
                    f"{name}: {member}({t}) of its model gives {values[wrong][0]:g}; rewards must "
                    f"be finite, of size {LARGEST_REWARD:g} at most: correct the environment"
                )


def solve_at_level(config: Config, level: RiskLevel) -> ExactSolution:
    """Solve a finite problem as `solve_finite` does, at another level of the risk measure.

    Raises:
      UserError: the problem has no last decision.
    """
    if config.env.problem.n_decisions is None:
        raise UserError("another risk level: needs a problem with a fixed number of decisions")
    return solve_finite(dataclasses.replace(config, risk=level.utility), NoProgress())


def search_grid(
    config: Config, problem: StockAugmentedProblem, own: Optimum, progress: SolverLine
) -> dict[str, Any]:
    """Return the best initial stock of the user's grid; note when the grid misses the optimum.

    Raises:
      UserError: the grid's ends are the wrong way round.
    """
    low, high = 0.0 - problem.highest, 0.0 - problem.lowest  # never −0, which a user would read
    outer = config.outer
    low = low if outer.low is None else outer.low
    high = high if outer.high is None else outer.high
    if low > high:
        raise UserError(
            f"outer.low={low:g} with outer.high={high:g}: no initial stock lies between; set both"
        )
    c0, value, on_edge = best_grid_stock(problem, grid(low, high, outer.points))
    if on_edge and (low > -problem.highest or high < -problem.lowest):
        progress.note(
            f"outer.low={low:.6g}, outer.high={high:.6g}: the best initial stock of the grid is "
            f"its end {c0:.6g}, the optimum lies at {own.c0:.6g}; widen the grid"
        )
    return {"initial_stock_grid": c0, "objective_grid": value}


def solve_infinite(config: Config, progress: SolverLine) -> ExactSolution:
    """Solve an infinite horizon: by Algorithm 1, or as a stationary inconsistent agent.

    The optimum lies between `optimum_low`, the value of Algorithm 1, and `optimum_high`, which adds
    its certificate if there is one.
    """
    max_stocks, horizon = config.exact.max_stocks, config.agent.horizon
    best = composite_policy(
        config.env, config.discount, config.risk, horizon, max_stocks, progress=progress
    )
    tables, c0, outcome, objective = best.all_tables, best.c0, best.outcome, best.objective
    metrics: dict[str, Any] = {}
    if not config.variant.clock_runs:
        per_head = config.agent.bootstrap == "per_head"
        cycle = stationary_cycle(TabularModel(config.env, 1), config.bundle, per_head)
        metrics = {"cycle": [policy.tolist() for policy in cycle]}
        if len(cycle) > 1:
            progress.note(
                f"no pure fixed point: the agent cycles through {len(cycle)} policies; the first "
                "is saved and evaluated, all are in result.json"
            )
        tables, c0 = PolicyTables([cycle[0][None].astype(np.int16)], [np.zeros(1)]), 0.0
        outcome = stationary_outcome(config, cycle[0])
        objective = objective_of(config.risk, outcome)
    metrics |= certified_metrics(best, objective)
    metrics |= {
        "certificate": best.parts,
        "no_certificate": best.reason,
        "initial_stock": c0,
        "gamma_tail": best.gamma_tail,
        "tail_decisions": best.n_tail,
        "stock_error": best.stock_error,
        "distribution_error": abs(objective_of(config.risk, outcome) - objective),
    }
    _note_accuracy(metrics, objective, max_stocks, progress)
    discount = config.discount.factor(np.arange(horizon + 1))
    policy = TablePolicy(TabularModel(config.env, 1), tables, c0, discount)
    return ExactSolution(policy, outcome, metrics)


def _note_accuracy(
    metrics: dict[str, Any], objective: float, max_stocks: int, progress: SolverLine
) -> None:
    """Tell the user how accurate the return distribution and the optimum are."""
    error = metrics["distribution_error"]
    if error > 1e-9 * max(1.0, abs(objective)):
        progress.note(
            f"exact.max_stocks={max_stocks}: more stocks are reachable, so the distribution in "
            f"outcomes.npz is on a grid; its objective is off by {error:.2g}"
        )
    if metrics["no_certificate"]:
        progress.note(f"no certificate: {metrics['no_certificate']}")
    else:
        progress.note(
            f"the optimum lies between {metrics['optimum_low']:.6g} and "
            f"{metrics['optimum_high']:.6g}; this policy has the value {objective:.6g}"
        )


def stationary_outcome(config: Config, actions: np.ndarray) -> PolicyOutcome:
    """Return the outcome of a stationary policy [n], without decisions of negligible discount."""
    bounds = TailBound(config.discount, 0, tail_factor(config.discount, 0))
    n_decisions, _ = bounds.n_true(NEGLIGIBLE / max(config.env.reward_bound, 1e-300))
    model = TabularModel(config.env, n_decisions)
    factors = config.discount.factor(np.arange(n_decisions))
    reachable = reachable_stocks(model, factors[:, None], config.exact.max_stocks)
    return evaluate_policy(model, factors, reachable, lambda t: actions[None])
