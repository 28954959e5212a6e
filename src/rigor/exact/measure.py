"""Any policy against the optimum: exact objective, regret and the problem's own numbers."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.config import Config
from rigor.errors import UserError
from rigor.exact.decided import Decided
from rigor.exact.infinite_horizon import Composite, composite
from rigor.exact.levels import Levels, reachable
from rigor.exact.model import Model
from rigor.exact.optimum import Optimum, objective_of, optimum
from rigor.exact.outcome import Choose, Outcome, follow
from rigor.exact.solve import Problem
from rigor.exact.tabular import TabularModel
from rigor.exact.tail import Far, tail_factor
from rigor.maths.utility import Entropic, Utility

if TYPE_CHECKING:
    from rigor.learning.agent import Agent

PLANNED = 30  # decisions that the optimum of an infinite problem is planned for
NEGLIGIBLE = 1e-6  # rewards that are cut off from an infinite sum, reward units
ROWS = 8192  # observations that a network acts on at a time


def judge(
    risk: Utility,
    model: Model,
    factors: np.ndarray,
    choose: Choose,
    outcome: Outcome,
    target: Optimum,
) -> dict[str, Any]:
    """Return the exact numbers of a policy: its objective, its regret, the problem's own.

    Args:
      risk, model, factors: what is to be done; d_t of the T decisions, [T].
      choose, outcome: the policy, and what it leads to.
      target: the optimum.
    """
    objective = policy_objective(risk, model, factors, choose, outcome)
    return {
        "objective_exact": objective,
        "objective_optimal": target.value,
        "initial_stock_optimal": target.c0,
        "regret": target.value - objective,
        **model.numbers(outcome),
    }


def policy_objective(
    risk: Utility, model: Model, factors: np.ndarray, choose: Choose, outcome: Outcome
) -> float:
    """Return the OCE of a policy's discounted return.

    By an induction where the risk needs no stock, for then too many stocks spoil nothing.
    """
    if isinstance(risk, Entropic):
        decided = Decided(model, model.n_decisions, lambda t: choose(t)[0])
        return Problem(decided, factors, risk, 3).policy(0.0)[0]
    return objective_of(risk, outcome)


def both_clocks(
    model: Model, mass: np.ndarray, factors: np.ndarray, needs_stock: bool, most: int
) -> Levels:
    """Return the offsets under an agent's own discount (clock 0) and the true one (clock 1).

    An agent without a stock does not look at its own, so the true one stands for both.
    """
    own = mass if needs_stock else factors
    if np.array_equal(own, factors):
        levels = reachable(model, factors[:, None], most)
        levels.offsets = [np.repeat(offsets, 2, axis=1) for offsets in levels.offsets]
        return levels
    return reachable(model, np.stack([own, factors], axis=1), most)


def measure(config: Config, agent: "Agent") -> dict[str, Any]:
    """Return the exact numbers of a learned agent's greedy policy.

    Raises:
      UserError: two discounts at once need too many stocks, or an infinite horizon has no tail.
    """
    infinite = config.env.n_decisions is None
    model: Model = _cut(config) if infinite else config.env.model()
    times = np.arange(model.n_decisions)
    factors, mass = config.discount.factor(times), config.bundle.mass(times)
    most = config.exact.max_stocks
    levels = both_clocks(model, mass, factors, config.risk.needs_stock, most)
    choose = greedy_choices(agent, model, levels)
    outcome = follow(model, factors, levels, choose, clock=1)
    if not infinite:
        target = optimum(model, factors, config.risk, most)
        return judge(config.risk, model, factors, choose, outcome, target)
    best = composite(config.env, config.discount, config.risk, PLANNED, most)
    return certified(best, policy_objective(config.risk, model, factors, choose, outcome))


def certified(best: Composite, objective: float) -> dict[str, Any]:
    """Return the exact numbers of a policy without end, against Algorithm 1's.

    The optimum lies between what Algorithm 1 reaches and its certificate above that, if it has one.
    """
    high = None if best.bound is None else best.objective + best.bound
    return {
        "objective_exact": objective,
        "optimum_low": best.objective,
        "optimum_high": high,
        "regret_low": best.objective - objective,
        "regret_high": None if high is None else high - objective,
    }


def greedy_choices(agent: "Agent", model: Model, levels: Levels) -> Choose:
    """Return what a learned agent does at every offset (of clock 0) and point."""
    scale = float(agent.learned_reward(np.ones(1))[0])  # its stock is in learned reward units

    def choose(t: int) -> np.ndarray:
        seen = model.observations(t)  # [n, *shape]
        stocks = agent.initial_stock + scale * levels.offsets[t][:, 0]  # [L]
        rows = np.repeat(stocks, len(seen))
        everywhere = np.tile(seen, (len(stocks),) + (1,) * (seen.ndim - 1))
        actions = [
            agent.greedy(everywhere[i : i + ROWS], np.full(len(part), t), part)
            for i in range(0, len(rows), ROWS)
            for part in (rows[i : i + ROWS],)
        ]
        return np.concatenate(actions).reshape(len(stocks), len(seen))

    return choose


def _cut(config: Config) -> TabularModel:
    """Return an infinite problem cut where what is left is negligible."""
    far = Far(config.discount, 0, tail_factor(config.discount, 0))
    n_decisions, _ = far.n_true(NEGLIGIBLE / max(config.env.reward_bound, 1e-300))
    if n_decisions > config.env.max_time:
        raise UserError(
            f"env.max_steps={config.env.max_steps}: the discount reaches {n_decisions} steps far, "
            f"for which the agent has no clock; env.max_steps={n_decisions} would do"
        )
    return TabularModel(config.env, n_decisions)
