"""Checks across the groups of a config: what cannot work is refused, what may surprise is said."""

import math

import numpy as np

from rigor.config import Config
from rigor.contracts import check_discount, check_risk
from rigor.errors import UserError
from rigor.exact.model import TRANSFORM_EXPONENT
from rigor.exact.solve import refuse_overflow
from rigor.maths import discount, horizons, utility
from rigor.schemas import BackwardInduction, InfiniteHorizon

MIN_ROWS = 16
"""Rows of a replay below which a stack of frames and its successor leave too little to sample."""


def validate(config: Config) -> None:
    """Refuse choices that cannot work together, naming both keys and the way out."""
    if not _is_ours(config.discount):
        check_discount(config.discount)
    if not _is_ours(config.risk):
        check_risk(config.risk, config.learns)
    try:
        config.bundle  # noqa: B018  computed here, where a refusal can still be told
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
    risk, variant = config.risk, config.variant
    if variant.clock_runs and not variant.sees_time:
        raise UserError(
            "variant.sees_time=false with variant.clock_runs=true: the choice of an action depends "
            "on t, which the network would not see; set both or neither"
        )
    if not isinstance(risk, utility.Mean):
        if not config.variant.clock_runs:
            raise UserError(
                f"risk={name_of(risk)} with variant=time_aware or time_inconsistent: a frozen "
                "clock adds rewards of different times; use risk=mean or variant=time_consistent"
            )
        if config.agent.bootstrap == "per_head":
            raise UserError(
                f"risk={name_of(risk)} with agent.bootstrap=per_head: defined for the mean only; "
                "use risk=mean or agent.bootstrap=shared"
            )
    single = isinstance(config.horizons, horizons.Single)
    if (
        single
        and not config.variant.clock_runs
        and not isinstance(config.discount, discount.Exponential)
    ):
        raise UserError(
            f"discount={name_of(config.discount)} with horizons=single and a frozen clock: defined "
            "for discount=exponential only; use agent=multihorizon or variant=time_consistent"
        )
    if config.device not in ("auto", "cpu", "cuda"):
        raise UserError(f"device={config.device}: choose auto, cpu or cuda")
    if not config.out.strip():
        raise UserError("out=: needs a directory, such as out=runs")
    if config.seed < 0:
        raise UserError(f"seed={config.seed}: must be 0 or more")
    if config.learns:
        _check_replay(config)
        if config.agent.learns == "utility":
            _check_share(config)
    else:
        _check_exact(config)


def _check_replay(config: Config) -> None:
    n_envs = config.env.num_envs
    if config.train.replay_capacity < MIN_ROWS * n_envs:
        raise UserError(
            f"train.replay_capacity={config.train.replay_capacity}: env.num_envs={n_envs} write "
            f"rows of {n_envs} transitions; needs at least {MIN_ROWS * n_envs}"
        )


def _check_share(config: Config) -> None:
    """Refuse what an agent that learns the utility cannot learn, or needs no more than one of."""
    env, agent = config.env, config.agent
    if not hasattr(env, "returns") or getattr(env, "n_decisions", None) is None:
        raise UserError(
            f"agent.learns=utility with env={name_of(env)}: needs an environment that declares "
            "between which returns its own lie; use env=gbwm or american_put, or "
            "agent.learns=returns"
        )
    if not isinstance(config.horizons, horizons.Single):
        raise UserError(
            "agent.learns=utility with horizons=multi: the utility of a total has no horizons; use "
            "horizons=single"
        )
    if agent.quantiles != 1:
        raise UserError(
            f"agent.quantiles={agent.quantiles} with agent.learns=utility: one number is learned; "
            "use agent.quantiles=1"
        )
    if not config.variant.clock_runs:
        raise UserError(
            "agent.learns=utility with a frozen clock: what is still possible follows the clock; "
            "use variant=time_consistent, or agent.learns=returns"
        )
    if config.risk.needs_stock and config.outer.relabel == 0:
        raise UserError(
            "outer.relabel=0 with agent.learns=utility: from the first initial stock, 0, nothing "
            "may be open, and nothing would be learned; use outer.relabel=0.5"
        )
    _refuse_span(config)


def _refuse_span(config: Config) -> None:
    """Refuse an entropic risk that its solver, or the network, could not resolve."""
    factors = config.discount.factor(np.arange(config.env.n_decisions))
    lowest, highest = config.env.returns(factors)
    refuse_overflow(config.risk, lowest, highest, TRANSFORM_EXPONENT)


def _check_exact(config: Config) -> None:
    """Refuse problems without a model, and horizons and discounts that the solver is not for."""
    env, agent = config.env, config.agent
    if not hasattr(env, "model"):
        raise UserError(
            f"agent={name_of(agent)} with env={name_of(env)}: an exact solver needs a model, which "
            "that environment has not; use env=gbwm, american_put or tabular, or a learning agent"
        )
    infinite = env.n_decisions is None
    if hasattr(env, "returns") and not infinite:
        _refuse_span(config)
    if isinstance(agent, BackwardInduction) and infinite:
        raise UserError(
            "env.horizon=inf with agent=backward_induction: it starts from the last decision; use "
            "agent=infinite_horizon, or a whole number for env.horizon"
        )
    if not isinstance(agent, InfiniteHorizon):
        return
    if not infinite:
        raise UserError(
            f"env={name_of(env)} of {env.n_decisions} decisions with agent=infinite_horizon: use "
            "agent=backward_induction, or env=tabular env.horizon=inf"
        )
    if not config.variant.clock_runs:
        return
    if isinstance(config.horizons, horizons.Multi):
        raise UserError(
            "horizons=multi with agent=infinite_horizon and variant=time_consistent: Algorithm 1 "
            "plans with the discount itself; use horizons=single"
        )
    if config.discount.tail_factor >= 1.0:
        raise UserError(
            f"discount={name_of(config.discount)} with agent=infinite_horizon: its one-step factor "
            "tends to 1, so the tail has no value; cap it, as in discount=capped "
            "discount.gamma_tail=0.98"
        )


def warnings(config: Config) -> list[str]:
    """Return one line for every choice that works but may not mean what it seems to."""
    lines = []
    risk, bundle = config.risk, config.bundle
    m = bundle.n_horizons
    asked = getattr(config.horizons, "m", m)
    if m != asked:
        lines.append(
            f"horizons.m={asked}: discount={name_of(config.discount)} needs only {m} of them"
        )
    if bundle.fit_error:
        lines.append(
            f"discount={name_of(config.discount)} stands on {m} fitted exponentials, relative "
            f"error {bundle.fit_error:.2g}"
        )
    if not isinstance(risk, utility.Mean) and m > 1 and config.learns:
        lines.append(
            f"risk={name_of(risk)} with {m} horizons: the horizons are added quantile by quantile, "
            "a comonotone coupling that is exact for risk=mean or agent=singlehorizon only"
        )
    of_one = config.learns and config.agent.learns == "returns" and config.agent.quantiles == 1
    if of_one and config.train.huber < math.inf:
        lines.append(
            f"agent.quantiles=1 with train.huber={config.train.huber}: one quantile is the median, "
            "or nearly so; the mean needs train.huber=inf"
        )
    life_loss = getattr(config.env, "life_loss", "ignore")
    if risk.needs_stock and life_loss != "ignore":
        lines.append(
            f"risk={name_of(risk)} with env.life_loss={life_loss}: c0 is chosen for whole games "
            "but the return ends at a lost life; env.life_loss=ignore fits"
        )
    tau = getattr(risk, "tau", None)
    if tau is not None and config.learns and config.evaluate.final_episodes * tau < 10:
        lines.append(
            f"evaluate.final_episodes={config.evaluate.final_episodes} with risk.tau={tau}: fewer "
            f"than 10 games in the tail; evaluate.final_episodes={math.ceil(10 / tau)} would do"
        )
    return lines


def _is_ours(choice: object) -> bool:
    """Whether tests have shown already that a discount or a risk measure keeps its promises."""
    return type(choice).__module__.startswith("rigor.maths.")


def name_of(choice: object) -> str:
    """Return how a message calls a group's working object."""
    return type(choice).__name__
