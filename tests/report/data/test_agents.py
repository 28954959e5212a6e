import pytest
from synthetic import config_of, make_run

from rigor.errors import UserError
from rigor.report.data.agents import agents_of, baseline_of, environment_labels, refuse_no_baseline
from rigor.report.data.runs import load


@pytest.fixture
def make(tmp_path):
    def make(game, variant, seed=0, choices=None, **settings):
        config = config_of(game, variant, seed, **settings)
        return load(make_run(tmp_path, game, variant, seed, 1.0, config=config, choices=choices))

    return make


def labels(runs):
    return {
        agent.label: {env: len(group) for env, group in agent.runs.items()}
        for agent in agents_of(runs)
    }


def test_agents_differ_in_more_than_game_and_seed(make):
    runs = [
        make(game, variant, seed)
        for game in ("pong", "qbert")
        for variant in ("time_consistent", "time_aware")
        for seed in (1, 0)
    ]
    assert labels(runs) == {
        "time_aware": {"pong": 2, "qbert": 2},
        "time_consistent": {"pong": 2, "qbert": 2},
    }
    assert [run.seed for run in agents_of(runs)[0].runs["pong"]] == [0, 1]
    assert [agent.other_differences for agent in agents_of(runs)] == [[], []]


def test_the_label_of_a_single_agent_has_all_its_choices(make):
    assert list(labels([make("pong", "time_aware")])) == ["time_aware multihorizon hyperbolic mean"]


def test_labels_name_a_setting_if_choices_are_equal(make):
    runs = [make("pong", "time_aware", horizons__quadrature=rule) for rule in ("lower", "upper")]
    runs.append(make("pong", "time_consistent"))
    assert list(labels(runs)) == [
        "time_consistent",
        "time_aware quadrature=lower",
        "time_aware quadrature=upper",
    ]


def test_more_steps_for_a_longer_problem_make_no_other_agent(make):
    long = {"train__schedule_steps": 10, "env__periods": 30}
    runs = [make("gbwm", "time_aware", env__periods=10, train__schedule_steps=5)]
    runs.append(make("gbwm", "time_aware", **long))
    assert list(labels(runs).values()) == [{"gbwm periods=10": 1, "gbwm periods=30": 1}]
    # two runs of the same problem that differ in it belong to two agents
    runs.append(make("gbwm", "time_aware", env__periods=10, train__schedule_steps=6))
    assert len(labels(runs)) == 3


def test_differences_outside_the_label(make):
    consistent, aware = agents_of(
        [make("pong", "time_aware", train__huber=1.0), make("pong", "time_consistent")]
    )
    assert (consistent.label, consistent.other_differences) == (
        "time_consistent",
        ["train.huber=0.1"],
    )
    assert (aware.label, aware.other_differences) == ("time_aware", ["train.huber=1"])


def test_defaults_of_another_kind_of_environment_make_no_other_agent(make):
    cartpole = make(
        "cartpole",
        "time_aware",
        train__huber=1.0,
        env___target_="rigor.envs.gymnasium.Gymnasium",
    )
    assert labels([make("pong", "time_aware"), cartpole]) == {
        "time_aware multihorizon hyperbolic mean": {"pong": 1, "cartpole": 1}
    }


def test_labels_of_environments_have_their_settings(make):
    runs = [make("pong", "time_aware", env__protocol=name) for name in ("paper", "machado")]
    assert environment_labels([*runs, make("qbert", "time_aware")]) == [
        "pong protocol=paper",
        "pong protocol=machado",
        "qbert",
    ]
    assert len(agents_of(runs)) == 1


def test_the_baseline_shares_most_with_the_agent(make):
    agents = agents_of(
        [
            make("pong", variant, horizons__quadrature=rule)
            for variant in ("time_consistent", "time_inconsistent")
            for rule in ("lower", "upper")
        ]
    )
    found = {
        agent.label: baseline.label
        for agent in agents
        if (baseline := baseline_of(agent, agents, "variant", "time_inconsistent"))
    }
    assert found == {
        f"time_consistent quadrature={rule}": f"time_inconsistent quadrature={rule}"
        for rule in ("lower", "upper")
    }
    setting = baseline_of(agents[1], agents, "horizons.quadrature", "lower")
    assert setting is agents[0]


def test_a_missing_baseline_is_refused(make):
    agents = agents_of([make("pong", "time_aware"), make("pong", "time_consistent")])
    assert baseline_of(agents[0], agents, "variant", "time_inconsistent") is None
    refuse_no_baseline(agents, "variant", "time_aware")
    with pytest.raises(UserError, match="no agent has it; choose time_aware or time_consistent"):
        refuse_no_baseline(agents, "variant", "time_incosistent")
    with pytest.raises(UserError, match=r"no run has a setting agent\.lr"):
        refuse_no_baseline(agents, "agent.lr", "3")


def test_labels_are_short_and_different_agents_have_different_labels(tmp_path):
    def run(target, rate):
        config = config_of("pong", "time_aware", 0, train__learning_rate=rate)
        config["network"] = {"_target_": target}
        return load(make_run(tmp_path, "pong", "time_aware", 0, 1.0, config=config))

    agents = agents_of([run("rigor.config.schemas.MLP", rate) for rate in (0.0013, 0.00130001)])
    assert [agent.label for agent in agents] == ["learning_rate=1.3e-3", "learning_rate=1.30001e-3"]
    assert agents[0].matches("learning_rate", "0.0013")
    assert agents[0].matches("train.learning_rate", "1.3e-3")
    kinds = agents_of([run("rigor.MLP", 1.0), run("rigor.CNN", 1.0)])
    assert [agent.label for agent in kinds] == ["network=cnn", "network=mlp"]
    assert kinds[0].matches("network", "cnn")
    close = agents_of([run("rigor.MLP", rate) for rate in (0.123456701, 0.123456702)])
    assert [agent.label for agent in close] == [
        "train.learning_rate=0.123456701",
        "train.learning_rate=0.123456702",
    ]
    twins = agents_of([run("mine.Net", 2.0), run("yours.Net", 2.0)])
    labels = [agent.label for agent in twins]
    assert labels == ["network._target_=mine.Net", "network._target_=yours.Net"]
