import copy
import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from cli import choices, composed
from omegaconf import OmegaConf

from rigor import checks, config, schemas
from rigor.envs.atari import GAMES
from rigor.errors import UserError
from rigor.launch.job import job
from rigor.maths import horizons

CONF = Path(__file__).parents[1] / "conf"
DISCOUNTS = (
    "capped",
    "cir",
    "exponential",
    "generalized_hyperbolic",
    "hyperbolic",
    "quasi_hyperbolic",
    "tail_integral",
)
RISKS = ("cvar", "entropic", "mean", "mean_cvar", "mean_variance")
VARIANTS = ("time_aware", "time_consistent", "time_inconsistent")
QUADRATURES = ("lower", "upper", "right", "midpoint", "gauss_legendre", "fitted")
KNOWN_MIXTURES = ("hyperbolic", "generalized_hyperbolic", "tail_integral")


def all_options(group: str) -> list[str]:
    """Every option of a group, from the files; those of Atari apart, for they are 57."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def changed(one, **values):
    """A copy with other values or nodes; composing takes long, so most tests share two configs."""
    one = copy.deepcopy(one)
    for key, value in values.items():
        OmegaConf.update(one, key.replace("__", "."), value, merge=False)
    return one


@pytest.fixture(scope="module")
def cartpole():
    return composed("env=cartpole", "tracker=none")


@pytest.fixture(scope="module")
def pong():
    return composed("env=atari/pong", "agent=multihorizon", "tracker=none")


def test_the_options_are_those_of_the_design():
    assert tuple(all_options("discount")) == DISCOUNTS
    assert tuple(all_options("risk")) == RISKS
    assert tuple(all_options("variant")) == VARIANTS
    assert all_options("horizons") == ["multi", "single"]
    assert all_options("agent") == [*EXACT["agent"], "multihorizon", "singlehorizon", "utility"]
    assert tuple(sorted(["gauss_legendre", *QUADRATURES[:4]])) == tuple(
        sorted(horizons.QUADRATURES)
    )


EXACT = {"agent": ("backward_induction", "infinite_horizon"), "train": ("none",)}


def test_every_option_composes_and_builds():
    groups = ("experiment", "agent", "env", "evaluate", "network", "outer", "tracker", "train")

    def options(group):
        elsewhere = (*EXACT.get(group, ()), "utility")  # do not go with every environment
        return [name for name in all_options(group) if name not in elsewhere]

    # the first options of all groups together, then the second ones, and so on
    for together in itertools.zip_longest(*map(options, groups)):
        chosen = {group: option for group, option in zip(groups, together, strict=True) if option}
        chosen.setdefault("agent", "singlehorizon")  # or an experiment's own would meet any env
        more = ["env.id=Acrobot-v1"] if chosen.get("env") == "gymnasium" else []
        one = composed(*(f"{group}={option}" for group, option in chosen.items()), *more)
        assert choices(one).items() >= chosen.items()
        assert isinstance(job(one, choices(one)).config, config.Config)


def test_the_57_games_are_one_file_each_that_says_its_name():
    text = (CONF / "env/atari/pong.yaml").read_text()
    files = {path.stem: path.read_text() for path in (CONF / "env/atari").glob("[!_]*.yaml")}
    assert sorted(files) == sorted(GAMES)
    assert len(files) == 57
    for game, found in files.items():
        assert found == text.replace("game: pong", f"game: {game}")


@pytest.mark.slow
def test_games_compose_and_build():
    for game in (GAMES[0], "ms_pacman", GAMES[-1]):
        one = composed(f"env=atari/{game}", "agent=multihorizon")
        assert job(one, choices(one)).config.env.game == game


# --- combinations ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes():
    """The node of every option that can be combined, and the multi horizons of every discount."""
    found = {}
    for together in itertools.zip_longest(DISCOUNTS, RISKS, VARIANTS):
        chosen = dict(zip(("discount", "risk", "variant"), together, strict=True))
        given = [f"{group}={option}" for group, option in chosen.items() if option]
        one = composed("agent=multihorizon", *given)
        found |= {(group, option): one[group] for group, option in chosen.items()}
        found["horizons", chosen["discount"]] = one.horizons
    return found


def must_refuse(discount, horizon, risk, variant, bootstrap) -> set[str] | None:
    """The rule, by hand: the keys that the refusal must name, or None."""
    if horizon not in ("single", "fitted") and discount not in KNOWN_MIXTURES:
        return {"discount=", "horizons.quadrature="}
    if risk != "mean" and variant != "time_consistent":
        return {"risk=", "variant="}
    if risk != "mean" and bootstrap == "per_head":
        return {"risk=", "agent.bootstrap="}
    if horizon == "single" and variant != "time_consistent" and discount != "exponential":
        return {"discount=", "horizons=single", "variant="}
    return None


def test_every_combination_is_built_or_refused_by_the_rule(cartpole, nodes, monkeypatch):
    fits = {}
    real = horizons.fitted

    def fitted(discount, m):  # a fit takes a while, and 420 combinations share each
        key = (id(discount), m)
        return fits[key] if key in fits else fits.setdefault(key, real(discount, m))

    monkeypatch.setattr(horizons, "fitted", fitted)
    parts = {key: config._working(key[0], node) for key, node in nodes.items()}
    bundles = {"single": horizons.Single()}
    for quadrature in QUADRATURES:
        known = parts["horizons", "hyperbolic"]
        bundles[quadrature] = dataclasses.replace(known, quadrature=quadrature)
    rest, n_refused = config.build(cartpole), 0
    for discount, horizon, risk, variant, bootstrap, double in itertools.product(
        DISCOUNTS, bundles, RISKS, VARIANTS, ("shared", "per_head"), ("online", "target")
    ):
        one = dataclasses.replace(
            rest,
            discount=parts["discount", discount],
            horizons=bundles[horizon],
            risk=parts["risk", risk],
            variant=parts["variant", variant],
            agent=schemas.Learner(
                learns="returns", bootstrap=bootstrap, double=double, quantiles=5
            ),
        )
        keys = must_refuse(discount, horizon, risk, variant, bootstrap)
        try:
            checks.validate(one)
        except UserError as error:
            message = str(error)
            assert keys is not None, (discount, horizon, risk, variant, bootstrap, message)
            assert "\n" not in message
            assert all(key in message for key in keys), (message, keys)
            assert "use " in message  # the way out
            n_refused += 1
        else:
            assert keys is None, (discount, horizon, risk, variant, bootstrap)
    assert 0 < n_refused < 7 * 7 * 5 * 3 * 2 * 2


# --- defaults -------------------------------------------------------------------------------------


ATARI = {
    "discount.k": 0.05,
    "horizons.m": 10,
    "horizons.gamma_max": 0.999,
    "horizons.quadrature": "lower",
    "variant.sees_time": True,
    "variant.clock_runs": True,
    "agent.bootstrap": "shared",
    "agent.double": "online",
    "agent.quantiles": 50,
    "env.protocol": "paper",
    "env.life_loss": "terminal",
    "env.num_envs": 8,
    "env.frame_skip": 4,
    "env.sticky": 0.0,
    "env.noop_max": 30,
    "env.max_frames": 108_000,
    "network.hidden": 512,
    "train.steps": 10_000_000,
    "train.schedule_steps": 10_000_000,
    "train.batch_size": 32,
    "train.learning_rate": 2.5e-4,
    "train.adam_eps": 0.01 / 32,
    "train.huber": 0.1,
    "train.update_every": 4,
    "train.learning_starts": 0.008,
    "train.target_every": 10_000,
    "train.target_smoothing": 1.0,
    "train.replay_capacity": 100_000,
    "train.epsilon_start": 1.0,
    "train.epsilon_end": 0.01,
    "train.epsilon_fraction": 0.1,
    "evaluate.every": 0.05,
    "evaluate.episodes": 10,
    "evaluate.final_episodes": 30,
    "evaluate.epsilon": 0.01,
}
CARTPOLE = {
    "discount.gamma": 0.99,
    "agent.quantiles": 50,
    "network.hidden": [120, 84],
    "train.steps": 100_000,
    "train.batch_size": 64,
    "train.learning_rate": 1e-3,
    "train.learning_rate_end": 1e-5,
    "train.huber": 1.0,
    "train.update_every": 2,
    "train.target_smoothing": 0.01,
    "train.replay_capacity": 50_000,
    "train.epsilon_end": 0.05,
    "train.epsilon_fraction": 0.2,
    "evaluate.epsilon": 0.0,
    "evaluate.final_episodes": 100,
}


def test_defaults_on_atari_are_the_papers(pong):
    assert {key: OmegaConf.select(pong, key) for key in ATARI} == ATARI
    found = choices(pong)
    assert (found["discount"], found["risk"]) == ("hyperbolic", "mean")
    assert (found["horizons"], found["variant"]) == ("multi", "time_consistent")
    assert found["network"] == "nature_cnn"


def test_defaults_on_cartpole_are_the_designs(cartpole):
    assert {key: OmegaConf.select(cartpole, key) for key in CARTPOLE} == CARTPOLE
    found = choices(cartpole)
    assert (found["discount"], found["horizons"], found["risk"]) == (
        "exponential",
        "single",
        "mean",
    )
    assert (cartpole.seed, cartpole.device, cartpole.out) == (0, "auto", "runs")


def test_schedules_hang_on_schedule_steps_which_follows_steps(cartpole):
    assert changed(cartpole, train__steps=4000).train.schedule_steps == 4000
    longer = changed(cartpole, train__steps=8000, train__schedule_steps=4000)
    assert (longer.train.steps, longer.train.schedule_steps) == (8000, 4000)


# --- what brings what, and who wins ---------------------------------------------------------------


def test_the_command_line_wins_over_what_an_environment_brings():
    found = choices(composed("env=atari/pong", "discount=cir", "network=mlp", "train=control"))
    assert (found["discount"], found["network"]) == ("cir", "mlp")
    assert (found["train"], found["evaluate"]) == ("control", "atari")
    found = choices(composed("discount=cir", "env=atari/pong"))  # in either order
    assert found["discount"] == "cir"


def test_the_command_line_wins_over_what_an_agent_brings():
    one = composed("agent=multihorizon", "horizons=single")
    assert choices(one)["horizons"] == "single"
    assert "m" not in one.horizons
    one = composed("agent=singlehorizon", "horizons=multi", "discount=hyperbolic")
    assert (choices(one)["horizons"], one.horizons.m) == ("multi", 10)


def test_the_default_quadrature_is_the_released_rule_where_there_is_a_mixture(nodes):
    for discount in DISCOUNTS:
        expected = "lower" if discount in KNOWN_MIXTURES else "fitted"
        assert nodes["horizons", discount].quadrature == expected, discount


def test_a_capped_discount_takes_its_base_by_choice():
    one = composed("discount=capped", "discount@discount.base=cir", "discount.base.a=0.1")
    built = config._working("discount", one.discount)
    assert (type(built.base).__name__, built.base.a, built.gamma_tail) == ("CIR", 0.1, 0.98)


def test_life_loss_follows_the_risk_then_the_protocol(pong, nodes):
    for protocol, usual in (("paper", "terminal"), ("machado", "ignore"), ("release", "reset")):
        for risk in RISKS:
            one = changed(pong, env__protocol=protocol, risk=nodes["risk", risk])
            # c0 is chosen for whole games wherever a risk measure needs a stock
            expected = usual if risk in ("mean", "entropic") else "ignore"
            assert one.env.life_loss == expected, (protocol, risk)


def test_life_loss_and_protocol_values_stay_open_to_a_value():
    one = composed(
        "env=atari/pong",
        "env.protocol=machado",
        "risk=cvar",
        "env.life_loss=terminal",
        "env.sticky=0",
    )
    assert (one.env.life_loss, one.env.sticky, one.env.full_actions) == ("terminal", 0.0, True)


# --- values ---------------------------------------------------------------------------------------


OUT_OF_RANGE = [
    ("agent.learns", "values"),
    ("agent.bootstrap", "both"),
    ("agent.double", "none"),
    ("agent.quantiles", 0),
    ("env.num_envs", 0),
    ("env.max_steps", 0),
    ("evaluate.every", 0.0),
    ("evaluate.every", 1.5),
    ("evaluate.episodes", 0),
    ("evaluate.final_episodes", 0),
    ("evaluate.epsilon", -0.1),
    ("network.hidden", [-1]),
    ("network.hidden", [64, 0]),
    ("outer.points", 1),
    ("outer.every", 0),
    ("outer.games", -1),
    ("outer.batch", 0),
    ("outer.relabel", 2.0),
    ("tracker.name", "tensorboard"),
    ("tracker.mode", "sometimes"),
    ("train.steps", 0),
    ("train.schedule_steps", 0),
    ("train.batch_size", 0),
    ("train.batch_size", 60_000),  # does not fit into the replay
    ("train.learning_rate", 0.0),
    ("train.learning_rate", float("inf")),
    ("train.learning_rate", float("nan")),
    ("train.learning_rate_end", -1.0),
    ("train.adam_eps", -1e-8),
    ("train.average", 1.0),
    ("train.average", -0.1),
    ("train.reward_scale", 0.0),
    ("train.branches", 0),
    ("train.huber", -1.0),
    ("train.huber", float("nan")),
    ("train.reduction", "max"),
    ("train.precision", "fp16"),
    ("train.update_every", 0),
    ("train.learning_starts", 1.1),
    ("train.target_every", 0),
    ("train.target_smoothing", 0.0),
    ("train.target_smoothing", 1.5),
    ("train.replay_capacity", 0),
    ("train.epsilon_start", 1.1),
    ("train.epsilon_end", -0.1),
    ("train.epsilon_fraction", 2.0),
    ("train.log_every", 0.0),
    ("train.checkpoint_every", 0),
    ("discount.gamma", 1.5),
    ("seed", -1),
    ("device", "gpu"),
]


@pytest.mark.parametrize(("key", "value"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused_by_key_and_value(cartpole, key, value):
    refuses(cartpole, key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env.game", "pongg"),
        ("env.protocol", "nature"),
        ("env.life_loss", "sometimes"),
        ("env.sticky", 1.0),
        ("env.frame_skip", 0),
        ("env.noop_max", -1),
        ("env.max_frames", 0),
        ("env.threads", 0),
        ("horizons.m", 0),
        ("horizons.gamma_max", 1.0),
        ("horizons.quadrature", "trapezoid"),
        ("network.hidden", 0),
        ("network.embedding", 0),
        ("discount.k", 0.0),
        ("train.replay_capacity", 100),  # fewer rows of 8 than a stack of frames needs
    ],
)
def test_a_value_out_of_range_on_atari_is_refused_by_key_and_value(pong, key, value):
    refuses(pong, key, value)


@pytest.mark.parametrize(
    ("risk", "key", "value"),
    [
        ("cvar", "risk.tau", 0.0),
        ("cvar", "risk.tau", 1.5),
        ("mean_cvar", "risk.kappa", -0.5),
        ("entropic", "risk.beta", 0.5),
        ("mean_variance", "risk.kappa", 0.0),
    ],
)
def test_a_risk_out_of_range_is_refused_by_key_and_value(cartpole, nodes, risk, key, value):
    refuses(changed(cartpole, risk=nodes["risk", risk]), key, value)


def refuses(one, key, value):
    with pytest.raises(UserError) as caught:
        job(changed(one, **{key: value}), {})
    message = str(caught.value)
    assert key in message, message
    assert str(value) in message, message
    assert "\n" not in message


def test_a_nested_value_is_refused_under_its_own_key(cartpole, nodes):
    one = changed(cartpole, discount=nodes["discount", "capped"])
    with pytest.raises(UserError, match=r"^discount\.base\.k=-1\.0: "):
        config.build(changed(one, discount__base__k=-1.0))


def test_every_field_of_the_runs_own_schemas_has_a_limit_that_a_test_crosses():
    tested = {key for key, _ in OUT_OF_RANGE}
    for group, schema in (("train", schemas.Train), ("evaluate", schemas.Evaluate)):
        fields = [one for one in dataclasses.fields(schema) if one.type is not bool]
        assert {f"{group}.{field.name}" for field in fields} <= tested


def test_runs_need_a_directory(cartpole):
    with pytest.raises(UserError, match=r"^out=: needs a directory"):
        checks.validate(config.build(changed(cartpole, out="")))


def test_a_running_clock_that_the_network_does_not_see_is_refused(cartpole):
    one = changed(cartpole, variant__sees_time=False)
    with pytest.raises(UserError, match=r"variant\.sees_time=false with variant\.clock_runs=true"):
        checks.validate(config.build(one))


def test_a_choice_of_the_users_own_must_be_whole(cartpole):
    built = config.build(cartpole)
    for group, member in (("discount", "step_factor"), ("risk", "needs_stock")):
        with pytest.raises(UserError, match=f"^{group}=object: has no .*{member}"):
            checks.validate(dataclasses.replace(built, **{group: object()}))


# --- exact agents ---------------------------------------------------------------------------------

MODELS = {"american_put": 21, "gbwm": 11, "tabular": 10}  # decisions by default


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
            "risk=CVaR with variant=time_aware",
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
        (["env=cartpole"], "env=Generic: needs an environment that declares .*use env=gbwm"),
        (["env=atari/pong"], "agent.learns=utility with env=Atari: .*agent.learns=returns"),
        (["env=tabular", "env.horizon=inf"], "agent.learns=utility with env=Tabular"),
        (["env=gbwm", "horizons=multi"], "agent.learns=utility with horizons=multi"),
        (["env=gbwm", "agent.quantiles=50"], "agent.quantiles=50 .*use agent.quantiles=1"),
        (["env=gbwm", "agent.learns=values"], "agent.learns=values: choose one of returns, util"),
        (["env=gbwm", "variant=time_aware"], "agent.learns=utility with a frozen clock"),
        (["env=gbwm", "risk=cvar", "outer.relabel=0"], "outer.relabel=0 with agent.learns=util"),
        (["env=gbwm", "risk=entropic"], "risk.beta=-1.0: exp.beta x. spans too much .* works"),
    ],
)
def test_a_utility_that_cannot_be_learned_is_refused(given, said):
    one = composed("agent=utility", *given)
    with pytest.raises(UserError, match=said):
        job(one, choices(one))


def test_the_utility_of_every_risk_can_be_learned_where_returns_are_bounded():
    for env, risk in itertools.product(("gbwm", "american_put"), RISKS):
        beta = ["risk.beta=-0.005"] if risk == "entropic" else []
        one = composed(f"env={env}", "agent=utility", f"risk={risk}", "discount=hyperbolic", *beta)
        assert job(one, choices(one)).config.agent.learns == "utility"


def test_another_file_under_the_same_name_is_another_run(tmp_path):
    path = tmp_path / "model.npz"
    digests = []
    for reward in (1.0, 2.0):
        np.savez(path, P=np.ones((1, 1, 1)), reward=np.full((1, 1, 1, 1), reward))
        one = composed("env=tabular", f"env.path={path}", "agent=backward_induction")
        digests.append(job(one, choices(one)).digest)
    assert digests[0] != digests[1]
    assert one.env.content
    with pytest.raises(UserError, match=r"env\.path=.*has changed"):
        config.build(changed(one, env__content="another"))


# --- warnings -------------------------------------------------------------------------------------


def warned(one, **values) -> list[str]:
    return checks.warnings(config.build(changed(one, **values)))


def test_a_plain_choice_warns_of_nothing(cartpole, pong):
    assert warned(cartpole) == []
    assert warned(pong) == []


def test_risk_with_many_horizons_and_few_games_in_the_tail_warns(cartpole, pong, nodes):
    cvar = nodes["risk", "cvar"]
    comonotone, tail = warned(pong, risk=cvar)
    assert "risk=CVaR with 10 horizons" in comonotone
    assert "agent=singlehorizon" in comonotone
    # 30 games of which a tenth is the tail; 100 would do
    assert "evaluate.final_episodes=30 with risk.tau=0.1" in tail
    assert "evaluate.final_episodes=100 would do" in tail
    assert warned(cartpole, risk=cvar, evaluate__final_episodes=100) == []


def test_one_quantile_that_is_no_mean_warns(cartpole):
    (line,) = warned(cartpole, agent__quantiles=1)
    assert "agent.quantiles=1 with train.huber=1" in line
    assert "train.huber=inf" in line
    assert warned(cartpole, agent__quantiles=1, train__huber=float("inf")) == []


def test_a_stock_cut_at_a_lost_life_warns(cartpole, pong, nodes):
    whole = changed(pong, risk=nodes["risk", "cvar"], horizons=cartpole.horizons)
    whole.evaluate.final_episodes = 100
    assert warned(whole) == []  # life_loss is ignore then
    for life_loss in ("terminal", "reset"):
        (line,) = warned(whole, env__life_loss=life_loss)
        assert f"risk=CVaR with env.life_loss={life_loss}" in line


def test_a_fit_says_how_good_it_is(cartpole, nodes):
    own = {"discount": nodes["discount", "cir"], "horizons": nodes["horizons", "cir"]}
    asked, line = warned(cartpole, **own)
    assert asked == "horizons.m=10: discount=CIR needs only 4 of them"
    assert line.startswith("discount=CIR stands on ")
    assert "relative error" in line
