import itertools

import numpy as np
import pytest
from command_line import DISCOUNTS, KNOWN_MIXTURES, RISKS, changed, choices, composed
from omegaconf import OmegaConf

from rigor.config import config, groups, schemas
from rigor.envs.atari import GAMES
from rigor.errors import UserError
from rigor.runs.job import job

EXACT = {"agent": ("backward_induction", "infinite_horizon"), "train": ("none",)}


def test_every_option_composes_and_builds():
    combined = ("experiment", "agent", "env", "evaluate", "network", "outer", "tracker", "train")
    names = groups.options()

    def options(group):
        elsewhere = (
            *EXACT.get(group, ()),
            "expected_utility",
        )  # not possible with every number of horizons
        return [
            name
            for name in names[group]
            if "/" not in name
            and name not in elsewhere
            and not name.endswith(("_parallel", "_default"))
        ]

    # The first options of all groups are composed together, then the second ones, and so on.
    for together in itertools.zip_longest(*map(options, combined)):
        chosen = {group: option for group, option in zip(combined, together, strict=True) if option}
        chosen.setdefault(
            "agent", "singlehorizon"
        )  # the agents of experiments need not work with every environment
        more = ["env.id=Acrobot-v1"] if chosen.get("env") == "gymnasium" else []
        one = composed(*(f"{group}={option}" for group, option in chosen.items()), *more)
        assert choices(one).items() >= chosen.items()
        assert isinstance(job(one, choices(one)).config, config.Config)


@pytest.mark.parametrize(
    ("env", "copies", "steps"),
    [
        ("cartpole", 32, 32),
        ("gymnasium", 32, 32),
        ("tabular", 32, 32),
        ("windy_lunar_lander", 32, 32),
        ("atari/pong", 128, 32),
        ("minatar/asterix", 128, 32),
        ("gbwm", 1000, 10),
        ("american_put", 1000, 10),
    ],
)
def test_every_environment_has_values_for_the_parallel_learner(env, copies, steps):
    more = ["env.id=Acrobot-v1"] if env == "gymnasium" else []
    one = composed(f"env={env}", "learner=parallel", *more)
    built = job(one, choices(one)).config
    assert isinstance(built.train, schemas.TrainParallel)
    assert (built.env.num_envs, built.train.rollout_steps) == (copies, steps)
    assert built.network.norm == "layer"


def test_the_settings_of_the_paper_and_of_dopamine_are_a_word_away():
    paper, dopamine = (
        composed("env=atari/pong", f"train={name}").train
        for name in ("atari_paper", "atari_dopamine")
    )
    of = ("adam_eps", "learning_starts", "epsilon_fraction", "target_every", "huber")
    assert [paper[key] for key in of] == [0.01 / 32, 0.008, 0.1, 10_000, 0.1]
    assert [dopamine[key] for key in of] == [1.5e-4, 0.002, 0.025, 8_000, 1.0]


def test_absolute_steps_are_at_most_a_fraction_of_a_short_run():
    short = composed("env=atari/pong", "learner=replay", "train.steps=4000")
    assert (short.train.learning_starts, short.train.epsilon_fraction) == (0.008, 0.1)
    assert short.evaluate.every == 0.05


@pytest.mark.slow
def test_games_compose_and_build():
    for game in (GAMES[0], "ms_pacman", GAMES[-1]):
        one = composed(f"env=atari/{game}", "agent=multihorizon")
        assert job(one, choices(one)).config.env.game == game


ATARI = {
    "discount.k": 0.05,
    "horizons.m": 10,
    "horizons.gamma_max": 0.999,
    "horizons.quadrature": "lower",
    "variant.sees_time": True,
    "variant.clock_runs": True,
    "agent.bootstrap": "shared",
    "train.double": "online",
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
    "train.adam_eps": 1e-7,
    "train.huber": 0.1,
    "train.update_every": 4,
    "train.learning_starts": 0.002,  # 20,000 steps
    "train.target_every": 10_000,
    "train.target_smoothing": 1.0,
    "train.replay_capacity": 100_000,
    "train.epsilon_start": 1.0,
    "train.epsilon_end": 0.01,
    "train.epsilon_fraction": 0.025,  # 250,000 steps
    "evaluate.every": 0.01,  # 100,000 steps
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
    "evaluate.final_episodes": None,
}


def test_the_replay_learner_on_atari_has_nearly_the_papers_values(pong):
    assert {key: OmegaConf.select(pong, key) for key in ATARI} == ATARI
    found = choices(pong)
    assert (found["discount"], found["risk"]) == ("hyperbolic", "mean")
    assert (found["horizons"], found["variant"]) == ("multi", "time_consistent")
    assert found["network"] == "nature_cnn"


def test_the_learner_of_an_environment_is_its_own_unless_it_or_its_values_are_named():
    def learner(*given):
        one = composed(*given)
        return type(job(one, choices(one)).config.train)

    small = ("cartpole", "tabular", "gbwm", "american_put", "windy_lunar_lander")
    for env in (*small, "minatar/asterix", "gymnasium env.id=Acrobot-v1"):
        assert learner(*f"env={env}".split()) is schemas.TrainReplay
    assert learner("env=atari/pong") is schemas.TrainParallel
    assert learner("env=atari/pong", "learner=replay") is schemas.TrainReplay
    assert learner("env=atari/pong", "train=atari_paper") is schemas.TrainReplay
    with pytest.raises(
        UserError, match=r"learner=parallel with train=atari_paper: .*learner=replay"
    ):
        learner("env=atari/pong", "learner=parallel", "train=atari_paper")


def test_defaults_on_minatar_are_the_published_ones():
    found = composed("env=minatar/seaquest")
    assert choices(found)["network"] == "small_cnn"
    published = {
        "env.sticky": 0.1,
        "env.max_steps": 10_000,
        "network.filters": 16,
        "network.hidden": 128,
        "train.steps": 5_000_000,
        "train.batch_size": 32,
        "train.learning_rate": 2.5e-4,
        "train.learning_rate_end": 2.5e-4,
        "train.update_every": 1,
        "train.target_every": 1000,
        "train.target_smoothing": 1.0,
        "train.replay_capacity": 100_000,
        "train.epsilon_end": 0.1,
        "evaluate.epsilon": 0.0,
    }
    assert {key: OmegaConf.select(found, key) for key in published} == published


def test_defaults_on_cartpole_are_the_designs(cartpole):
    assert {key: OmegaConf.select(cartpole, key) for key in CARTPOLE} == CARTPOLE
    found = choices(cartpole)
    assert (found["discount"], found["horizons"], found["risk"]) == (
        "exponential",
        "single",
        "mean",
    )
    assert (cartpole.seed, cartpole.device, cartpole.out) == (0, "auto", "runs")


def test_schedule_steps_follow_steps_unless_given(cartpole):
    assert changed(cartpole, train__steps=4000).train.schedule_steps == 4000
    longer = changed(cartpole, train__steps=8000, train__schedule_steps=4000)
    assert (longer.train.steps, longer.train.schedule_steps) == (8000, 4000)


def test_the_command_line_overrides_the_choices_of_an_environment():
    found = choices(
        composed("env=atari/pong", "discount=cir", "network=mlp", "train=control_replay")
    )
    assert (found["discount"], found["network"]) == ("cir", "mlp")
    assert (found["train"], found["evaluate"]) == ("control_replay", "atari")
    found = choices(composed("discount=cir", "env=atari/pong"))  # in either order
    assert found["discount"] == "cir"


def test_the_command_line_overrides_the_choices_of_an_agent():
    one = composed("agent=multihorizon", "horizons=single")
    assert choices(one)["horizons"] == "single"
    assert "m" not in one.horizons
    one = composed("agent=singlehorizon", "horizons=multi", "discount=hyperbolic")
    assert (choices(one)["horizons"], one.horizons.m) == ("multi", 10)


def test_the_default_quadrature_is_the_released_rule_for_known_mixtures(nodes):
    for discount in DISCOUNTS:
        expected = "lower" if discount in KNOWN_MIXTURES else "fitted"
        assert nodes["horizons", discount].quadrature == expected, discount


def test_the_base_of_a_capped_discount_is_a_choice():
    one = composed("discount=capped", "discount@discount.base=cir", "discount.base.a=0.1")
    built = config._working("discount", one.discount)
    assert (type(built.base).__name__, built.base.a, built.gamma_tail) == ("CIR", 0.1, 0.98)


def test_life_loss_follows_the_risk_then_the_protocol(pong, nodes):
    for protocol, usual in (("paper", "terminal"), ("dopamine", "ignore"), ("release", "reset")):
        for risk in RISKS:
            one = changed(pong, env__protocol=protocol, risk=nodes["risk", risk])
            # c0 is chosen for whole episodes if a risk measure needs a stock
            expected = usual if risk in ("mean", "entropic") else "ignore"
            assert one.env.life_loss == expected, (protocol, risk)


def test_life_loss_and_protocol_values_can_be_overridden():
    one = composed(
        "env=atari/pong",
        "env.protocol=machado",
        "risk=cvar",
        "env.life_loss=terminal",
        "env.sticky=0",
    )
    assert (one.env.life_loss, one.env.sticky, one.env.full_actions) == ("terminal", 0.0, True)


def test_a_nested_value_is_refused_under_its_own_key(cartpole, nodes):
    one = changed(cartpole, discount=nodes["discount", "capped"])
    with pytest.raises(UserError, match=r"^discount\.base\.k=-1\.0: "):
        config.build(changed(one, discount__base__k=-1.0))


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
