"""Checks across the groups of a config: refusals, and warnings about surprising choices."""

import math

import numpy as np

from rigor.config.config import MIN_TAIL, Config, episodes_for
from rigor.config.custom_classes import check_discount, check_environment, check_risk
from rigor.config.schemas import BackwardInduction, InfiniteHorizon, Train, TrainParallel
from rigor.envs.atari import Atari
from rigor.envs.model import TRANSFORM_EXPONENT, refuse_overflow
from rigor.envs.problem import Problem
from rigor.errors import UserError
from rigor.maths import discount, horizons
from rigor.maths.utility import facts_of, is_mean, tail_of

MIN_ROWS = 16
"""Least number of replay rows: with fewer, a stack of frames and its successor hardly fit."""

MOST_EPISODES = 1_000_000
"""Most episodes of the final evaluation that a run plays without being told the number."""

SEEDS = 2**63
"""Seeds are below: a directory's name and a column of a table hold one."""


def validate(config: Config) -> None:
    """Refuse choices that cannot work together.

    Raises:
      UserError: one line that names both keys and the way out.
    """
    _check_own_classes(config)
    try:
        config.bundle  # noqa: B018  computed here, so that a bad fit is refused before the run starts
    except ValueError as error:
        chosen = f"discount={config.option('discount')} with "
        raise UserError(chosen + " ".join(str(error).split())) from error
    _check_clock(config)
    _check_root(config)
    if config.learns:
        _check_learner(config)
        if (precision := config.train.precision) != "fp32" and not config.train.fast:
            raise UserError(
                f"train.precision={precision} with train.fast=false: the plain form is in full "
                "precision; use train.precision=fp32, or train.fast=true"
            )
        if config.agent.learns == "expected_utility":
            _check_expected_utility(config)
    else:
        _check_exact(config)


def _check_own_classes(config: Config) -> None:
    """Check a class of the user's own; rigor's own are checked by its tests."""
    if not is_ours(config.env):
        check_environment(f"env={config.option('env')}", config.env, config.learns)
    if not is_ours(config.discount):
        check_discount(f"discount={config.option('discount')}", config.discount)
    if not is_ours(config.risk):
        check_risk(f"risk={config.option('risk')}", config.risk, config.learns)


def is_ours(choice: object) -> bool:
    """Tell whether the class of a choice is rigor's own."""
    return type(choice).__module__.startswith("rigor.")


def _check_clock(config: Config) -> None:
    """Refuse risks and discounts for which a variant or a bootstrap is not defined."""
    variant = config.variant
    if variant.clock_runs and not variant.sees_time:
        raise UserError(
            "variant.sees_time=false with variant.clock_runs=true: the choice of an action depends "
            "on t, which the network would not see; set both or neither"
        )
    if not is_mean(config.risk):
        risk = f"risk={config.option('risk')}"
        if not variant.clock_runs:
            raise UserError(
                f"{risk} with variant=time_aware or time_inconsistent: a frozen clock adds rewards "
                "of different times; use risk=mean or variant=time_consistent"
            )
        if config.agent.bootstrap == "per_head":
            raise UserError(
                f"{risk} with agent.bootstrap=per_head: defined for the mean only; use risk=mean "
                "or agent.bootstrap=shared"
            )
    single = isinstance(config.horizons, horizons.Single)
    exponential = isinstance(config.discount, discount.Exponential)
    if single and not variant.clock_runs and not exponential:
        raise UserError(
            f"discount={config.option('discount')} with horizons=single and a frozen clock: only "
            "discount=exponential works; use agent=multihorizon or variant=time_consistent"
        )


def _check_root(config: Config) -> None:
    """Refuse values of the keys that belong to no group."""
    if config.device not in ("auto", "cpu", "cuda"):
        raise UserError(f"device={config.device}: choose auto, cpu or cuda")
    if not config.out.strip():
        raise UserError("out=: needs a directory, such as out=runs")
    if not 0 <= config.seed < SEEDS:
        raise UserError(f"seed={config.seed}: must be 0 or more, and below 2^63")


def _check_learner(config: Config) -> None:
    """Refuse another learner's settings, and a replay or a rollout that is too small."""
    if config.evaluate.final_episodes is None and MIN_TAIL / tail_of(config.risk) > MOST_EPISODES:
        raise UserError(
            f"risk.tau={tail_of(config.risk)} with evaluate.final_episodes=null: puts {MIN_TAIL} "
            f"episodes into the tail, which needs more than {MOST_EPISODES:,} in all; use a larger "
            "risk.tau, or set evaluate.final_episodes"
        )
    n_envs = config.env.num_envs
    parallel = isinstance(config.train, TrainParallel)
    learner = "parallel" if parallel else "replay"
    if config.choices.get("learner", learner) not in (learner, "default"):
        raise UserError(
            f"learner={config.choices['learner']} with train={config.option('train')}: these are "
            f"values of learner={learner}; name that one, or leave one of the two out"
        )
    if parallel:
        if n_envs * config.train.rollout_steps < config.train.batch_size:
            raise UserError(
                f"train.batch_size={config.train.batch_size}: larger than a rollout of "
                f"env.num_envs={n_envs} times train.rollout_steps={config.train.rollout_steps}"
            )
        return
    if config.train.replay_capacity < MIN_ROWS * n_envs:
        raise UserError(
            f"train.replay_capacity={config.train.replay_capacity}: env.num_envs={n_envs} write "
            f"rows of {n_envs} transitions; needs at least {MIN_ROWS * n_envs}"
        )


def _check_expected_utility(config: Config) -> None:
    """Refuse problems and settings with which the expected utility cannot be learned."""
    problem, agent = config.env.problem, config.agent
    learns = "agent.learns=expected_utility"
    bounded = problem is not None and problem.return_bounds is not None and problem.n_decisions
    if facts_of(config.risk).exponential_rate and not bounded:
        raise UserError(
            f"{learns} with risk={config.option('risk')} and env={config.option('env')}: an "
            "exponential utility needs an environment that knows bounds of its returns, or it may "
            "overflow; use env=gbwm or american_put, or agent.learns=return_quantiles"
        )
    if not isinstance(config.horizons, horizons.Single):
        raise UserError(
            f"{learns} with horizons=multi: the utility of a total outcome has no horizons; use "
            "horizons=single"
        )
    if agent.quantiles != 1:
        raise UserError(
            f"agent.quantiles={agent.quantiles} with {learns}: the network has one output for each "
            "action; use agent.quantiles=1"
        )
    if not config.variant.clock_runs:
        raise UserError(
            f"{learns} with a frozen clock: a total outcome follows the clock; use "
            "variant=time_consistent, or agent.learns=return_quantiles"
        )
    if config.risk.needs_stock and config.outer.relabel == 0:
        raise UserError(
            f"outer.relabel=0 with {learns}: from the first initial stock, 0, every outcome may "
            "already be determined, and nothing would be learned; use outer.relabel=0.5"
        )
    if problem is not None:
        _refuse_overflow(config, problem)


def _refuse_overflow(config: Config, problem: Problem) -> None:
    """Refuse an entropic risk that the solver or the network could not resolve."""
    if problem.return_bounds is None or problem.n_decisions is None:
        return
    factors = config.discount.factor(np.arange(problem.n_decisions))
    lowest, highest = problem.return_bounds(factors)
    refuse_overflow(config.risk, lowest, highest, TRANSFORM_EXPONENT)


def _check_exact(config: Config) -> None:
    """Refuse problems without a model, and horizons and discounts unfit for the solver."""
    problem, agent = config.env.problem, config.agent
    chosen = f"agent={config.option('agent')}"
    if problem is None or problem.model is None:
        raise UserError(
            f"{chosen} with env={config.option('env')}: an exact solver needs a model, which this "
            "environment does not have; use env=gbwm, american_put or tabular, or a learning agent"
        )
    _refuse_overflow(config, problem)
    if isinstance(agent, BackwardInduction) and problem.n_decisions is None:
        endless = "env.horizon=inf" if is_ours(config.env) else "a problem without n_decisions"
        raise UserError(
            f"{endless} with {chosen}: it starts from the last decision; use "
            "agent=infinite_horizon, or state how many decisions an episode has"
        )
    if not isinstance(agent, InfiniteHorizon):
        return
    if problem.n_decisions is not None:
        raise UserError(
            f"env={config.option('env')} of {problem.n_decisions} decisions with {chosen}: use "
            "agent=backward_induction, or env=tabular env.horizon=inf"
        )
    if config.discount.tail_factor >= 1.0:
        raise UserError(
            f"discount={config.option('discount')} with {chosen}: its one-step factor tends to 1, "
            "so the tail has no finite value; cap it, as in discount=capped "
            "discount.gamma_tail=0.98"
        )
    if not config.variant.clock_runs:
        return
    if isinstance(config.horizons, horizons.Multi):
        raise UserError(
            f"horizons=multi with {chosen} and variant=time_consistent: Algorithm 1 plans with "
            "the discount itself; use horizons=single"
        )


def warnings(config: Config) -> list[str]:
    """Return one line for every choice that works but may surprise."""
    lines = [*_horizon_warnings(config)]
    learner, risk = config.agent, f"risk={config.option('risk')}"
    one_quantile = config.learns and learner.learns == "return_quantiles" and learner.quantiles == 1
    if one_quantile and config.train.huber < math.inf:
        lines.append(
            f"agent.quantiles=1 with train.huber={config.train.huber}: the one quantile is close "
            "to the median; the mean needs train.huber=inf"
        )
    if config.learns:
        lines += _schedule_warnings(config.train)
    life_loss = config.env.life_loss if isinstance(config.env, Atari) else "ignore"
    if config.risk.needs_stock and life_loss != "ignore":
        lines.append(
            f"{risk} with env.life_loss={life_loss}: c0 is chosen for whole episodes, but the "
            "return ends at a lost life; env.life_loss=ignore fits"
        )
    tau = getattr(config.risk, "tau", None)  # a key of cvar and mean_cvar only
    episodes = config.final_episodes
    if tau is not None and config.learns and episodes * tau < MIN_TAIL:
        lines.append(
            f"evaluate.final_episodes={episodes} with risk.tau={tau}: fewer than {MIN_TAIL} "
            "episodes in the tail, so the interval of the objective is too narrow; use "
            f"evaluate.final_episodes={episodes_for(config.risk)}, or rigor-eval after the run"
        )
    return lines


def _schedule_warnings(train: Train) -> list[str]:
    """Return the warning about a run that is longer than its schedule."""
    if train.steps <= train.schedule_steps or train.restart_schedule:
        return []
    if train.learning_rate_end == train.learning_rate:
        return []
    return [
        f"train.steps={train.steps} with train.schedule_steps={train.schedule_steps}: after the "
        f"schedule the learning rate stays at {train.learning_rate_end:g}; "
        "train.restart_schedule=true runs it from the start again, as often as it fits"
    ]


def _horizon_warnings(config: Config) -> list[str]:
    """Return the warnings about the number of horizons and the fit of their weights."""
    lines, bundle = [], config.bundle
    chosen, m = f"discount={config.option('discount')}", bundle.n_horizons
    asked = config.horizons.m if isinstance(config.horizons, horizons.Multi) else m
    if m != asked:
        lines.append(f"horizons.m={asked}: {chosen} needs only {m} of them")
    if bundle.fit_error:
        lines.append(
            f"{chosen} is approximated by {m} fitted exponentials, relative error "
            f"{bundle.fit_error:.2g}"
        )
    if not is_mean(config.risk) and m > 1 and config.learns:
        lines.append(
            f"risk={config.option('risk')} with {m} horizons: the horizons are added quantile by "
            "quantile, a comonotone coupling that is exact for risk=mean or agent=singlehorizon "
            "only"
        )
    return lines
