import dataclasses
import itertools

import pytest
from command_line import (
    DISCOUNTS,
    KNOWN_MIXTURES,
    RISKS,
    VARIANTS,
    changed,
    choices,
    composed,
)

from rigor.config import config, schemas, validate
from rigor.errors import UserError
from rigor.maths import horizons
from rigor.runs.job import job

QUADRATURES = ("lower", "upper", "right", "midpoint", "gauss_legendre", "fitted")


def must_refuse(discount, horizon, risk, variant, bootstrap) -> set[str] | None:
    """Return the keys that the refusal must name, or None if the combination works."""
    if horizon not in ("single", "fitted") and discount not in KNOWN_MIXTURES:
        return {"discount=", "horizons.quadrature="}
    if risk != "mean" and variant != "time_consistent":
        return {"risk=", "variant="}
    if risk != "mean" and bootstrap == "per_head":
        return {"risk=", "agent.bootstrap="}
    if horizon == "single" and variant != "time_consistent" and discount != "exponential":
        return {"discount=", "horizons=single", "variant="}
    return None


def test_every_combination_is_built_or_refused_as_must_refuse_states(cartpole, nodes, monkeypatch):
    fits = {}
    real = horizons.fitted

    def fitted(discount, m):  # a fit takes a second, and 420 combinations use the same
        key = (id(discount), m)
        return fits[key] if key in fits else fits.setdefault(key, real(discount, m))

    monkeypatch.setattr(horizons, "fitted", fitted)
    parts = {key: config._working(key[0], node) for key, node in nodes.items()}
    bundles = {"single": horizons.Single()}
    for quadrature in QUADRATURES:
        known = parts["horizons", "hyperbolic"]
        bundles[quadrature] = dataclasses.replace(known, quadrature=quadrature)
    rest, n_refused = config.build(cartpole), 0
    for discount, horizon, risk, variant, bootstrap in itertools.product(
        DISCOUNTS, bundles, RISKS, VARIANTS, ("shared", "per_head")
    ):
        one = dataclasses.replace(
            rest,
            discount=parts["discount", discount],
            horizons=bundles[horizon],
            risk=parts["risk", risk],
            variant=parts["variant", variant],
            agent=schemas.Learner(learns="return_quantiles", bootstrap=bootstrap, quantiles=5),
        )
        keys = must_refuse(discount, horizon, risk, variant, bootstrap)
        try:
            validate.validate(one)
        except UserError as error:
            message = str(error)
            assert keys is not None, (discount, horizon, risk, variant, bootstrap, message)
            assert "\n" not in message
            assert all(key in message for key in keys), (message, keys)
            assert "use " in message  # the way out
            n_refused += 1
        else:
            assert keys is None, (discount, horizon, risk, variant, bootstrap)
    assert 0 < n_refused < 7 * 7 * 5 * 3 * 2


def test_an_empty_out_is_refused(cartpole):
    with pytest.raises(UserError, match=r"^out=: needs a directory"):
        validate.validate(config.build(changed(cartpole, out="")))


@pytest.mark.parametrize("seed", [-1, 2**63, 10**300])
def test_a_seed_that_no_directory_can_be_named_by_is_refused(cartpole, seed):
    with pytest.raises(UserError, match=rf"^seed={seed}: must be 0 or more, and below 2\^63$"):
        validate.validate(config.build(changed(cartpole, seed=seed)))


@pytest.mark.parametrize("tau", [1e-6, 1e-300])
def test_a_tail_that_needs_millions_of_episodes_is_refused(cartpole, nodes, tau):
    risky = changed(cartpole, risk=nodes["risk", "cvar"], risk__tau=tau)
    with pytest.raises(UserError, match=rf"^risk\.tau={tau} with evaluate\.final_episodes=null: "):
        validate.validate(config.build(risky))
    validate.validate(config.build(changed(risky, evaluate__final_episodes=100)))


def test_a_running_clock_that_the_network_does_not_see_is_refused(cartpole):
    one = changed(cartpole, variant__sees_time=False)
    with pytest.raises(UserError, match=r"variant\.sees_time=false with variant\.clock_runs=true"):
        validate.validate(config.build(one))


def test_a_users_own_class_without_a_member_is_refused(cartpole):
    built = config.build(cartpole)
    for group, member in (("discount", "step_factor"), ("risk", "needs_stock")):
        with pytest.raises(UserError, match=f"^{group}=builtins.object: has no .*{member}"):
            validate.validate(dataclasses.replace(built, **{group: object()}))


MODELS = {"american_put": 21, "gbwm": 11, "tabular": 10}  # default number of decisions


def test_exact_agents_compose_for_every_problem_with_a_model():
    for env, n_decisions in MODELS.items():
        one = composed(f"env={env}", "agent=backward_induction", "discount=hyperbolic")
        built = job(one, choices(one))
        assert built.config.env.n_decisions == n_decisions
        assert built.steps == 0
    one = composed("env=tabular", "env.horizon=inf", "agent=infinite_horizon")
    assert job(one, choices(one)).config.agent.horizon == 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["env=cartpole", "agent=backward_induction"], "needs a model, .*use env=gbwm"),
        (["env=atari/pong", "agent=infinite_horizon"], "needs a model, .*use env=gbwm"),
        (
            ["env=tabular", "env.horizon=inf", "agent=backward_induction"],
            "env.horizon=inf with agent=backward_induction",
        ),
        (["env=gbwm", "agent=infinite_horizon"], "of 11 decisions with agent=infinite_horizon"),
        (
            ["env=tabular", "env.horizon=inf", "agent=infinite_horizon", "discount=hyperbolic"],
            "discount=capped discount.gamma_tail=0.98",
        ),
        (
            ["env=tabular", "env.horizon=inf", "agent=infinite_horizon", "horizons=multi"],
            "horizons=multi with agent=infinite_horizon",
        ),
        (
            ["env=tabular", "agent=backward_induction", "variant=time_aware", "risk=cvar"],
            "risk=cvar with variant=time_aware",
        ),
        (["env=tabular", "agent=backward_induction", "exact.max_stocks=2"], "exact.max_stocks=2"),
    ],
)
def test_what_an_exact_agent_cannot_solve_is_refused(given, said):
    one = composed(*given)
    with pytest.raises(UserError, match=said):
        job(one, choices(one))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["env=cartpole", "risk=entropic"],
            "risk=entropic and env=cartpole: .*bounds of its returns.*use env=gbwm",
        ),
        (["env=gbwm", "horizons=multi"], "agent.learns=expected_utility with horizons=multi"),
        (["env=gbwm", "agent.quantiles=50"], "agent.quantiles=50 .*use agent.quantiles=1"),
        (
            ["env=gbwm", "agent.learns=values"],
            "agent.learns=values: choose one of return_quantiles, exp",
        ),
        (["env=gbwm", "variant=time_aware"], "agent.learns=expected_utility with a frozen clock"),
        (["env=gbwm", "risk=cvar", "outer.relabel=0"], "outer.relabel=0 with agent.learns=exp"),
        (["env=gbwm", "risk=entropic"], "risk.beta=-1.0: exp.beta x. spans too much .* works"),
    ],
)
def test_an_expected_utility_that_cannot_be_learned_is_refused(given, said):
    one = composed("agent=expected_utility", *given)
    with pytest.raises(UserError, match=said):
        job(one, choices(one))


def test_the_expected_utility_of_every_risk_can_be_learned_with_bounded_returns():
    for env, risk in itertools.product(("gbwm", "american_put"), RISKS):
        beta = ["risk.beta=-0.005"] if risk == "entropic" else []
        one = composed(
            f"env={env}", "agent=expected_utility", f"risk={risk}", "discount=hyperbolic", *beta
        )
        assert job(one, choices(one)).config.agent.learns == "expected_utility"


def warned(one, **values) -> list[str]:
    return validate.warnings(config.build(changed(one, **values)))


def test_a_plain_choice_gives_no_warning(cartpole, pong):
    assert warned(cartpole) == []
    assert warned(pong) == []


def test_risk_with_many_horizons_and_few_episodes_in_the_tail_warns(cartpole, pong, nodes):
    cvar = nodes["risk", "cvar"]
    comonotone, tail = warned(pong, risk=cvar)
    assert "risk=cvar with 10 horizons" in comonotone
    assert "agent=singlehorizon" in comonotone
    # a tenth of 30 episodes is the tail
    assert "evaluate.final_episodes=30 with risk.tau=0.1" in tail
    assert "use evaluate.final_episodes=300" in tail
    assert warned(cartpole, risk=cvar, evaluate__final_episodes=300) == []


def test_one_quantile_that_is_not_the_mean_warns(cartpole):
    (line,) = warned(cartpole, agent__quantiles=1)
    assert "agent.quantiles=1 with train.huber=1" in line
    assert "train.huber=inf" in line
    assert warned(cartpole, agent__quantiles=1, train__huber=float("inf")) == []


def test_a_stock_with_returns_that_end_at_a_lost_life_warns(cartpole, pong, nodes):
    whole = changed(pong, risk=nodes["risk", "cvar"], horizons=cartpole.horizons)
    whole.evaluate.final_episodes = 300
    assert warned(whole) == []  # life_loss is ignore then
    for life_loss in ("terminal", "reset"):
        (line,) = warned(whole, env__life_loss=life_loss)
        assert f"risk=cvar with env.life_loss={life_loss}" in line


def test_a_fit_warns_of_its_error(cartpole, nodes):
    own = {"discount": nodes["discount", "cir"], "horizons": nodes["horizons", "cir"]}
    asked, line = warned(cartpole, **own)
    assert asked == "horizons.m=10: discount=cir needs only 4 of them"
    assert line.startswith("discount=cir is approximated by 4 ")
    assert "relative error" in line


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_less_than_full_precision_is_refused_for_the_plain_form(cartpole, precision):
    one = config.build(changed(cartpole))
    one.train.fast, one.train.precision = False, precision
    with pytest.raises(UserError, match=rf"train\.precision={precision} with train\.fast=false"):
        validate.validate(one)
