import pytest
from synthetic import config_of, make_run

from rigor.errors import UserError
from rigor.report.agents import agents_of, baseline_of, environment_labels, refuse_no_baseline
from rigor.report.runs import load


@pytest.fixture
def make(tmp_path):
    def make(game, variant, seed=0, choices=None, **settings):
        config = config_of(game, variant, seed, **settings)
        return load(make_run(tmp_path, game, variant, seed, 1.0, config=config, choices=choices))

    return make


def labels(runs):
    return {
        one.label: {env: len(group) for env, group in one.runs.items()} for one in agents_of(runs)
    }


def test_agents_are_told_by_what_differs_and_not_by_game_or_seed(make):
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
    assert [one.also for one in agents_of(runs)] == [[], []]


def test_one_agent_is_called_by_its_choices(make):
    assert list(labels([make("pong", "time_aware")])) == ["time_aware multihorizon hyperbolic mean"]


def test_a_setting_is_named_where_choices_do_not_tell(make):
    runs = [make("pong", "time_aware", horizons__quadrature=rule) for rule in ("lower", "upper")]
    runs.append(make("pong", "time_consistent"))
    assert list(labels(runs)) == [
        "time_consistent",
        "time_aware horizons.quadrature=lower",
        "time_aware horizons.quadrature=upper",
    ]


def test_more_steps_for_a_longer_problem_make_no_other_agent(make):
    long = {"train__schedule_steps": 10, "env__periods": 30}
    runs = [make("gbwm", "time_aware", env__periods=10, train__schedule_steps=5)]
    runs.append(make("gbwm", "time_aware", **long))
    assert list(labels(runs).values()) == [{"gbwm periods=10": 1, "gbwm periods=30": 1}]
    # but two runs of one problem that differ in it are two
    runs.append(make("gbwm", "time_aware", env__periods=10, train__schedule_steps=6))
    assert len(labels(runs)) == 3


def test_what_differs_beside_the_label_is_said(make):
    one, other = agents_of(
        [make("pong", "time_aware", train__huber=1.0), make("pong", "time_consistent")]
    )
    assert (one.label, one.also) == ("time_consistent", ["train.huber=0.1"])
    assert (other.label, other.also) == ("time_aware", ["train.huber=1"])


def test_defaults_of_another_kind_of_environment_make_no_other_agent(make):
    cartpole = make(
        "cartpole", "time_aware", train__huber=1.0, env___target_="rigor.envs.generic.Generic"
    )
    assert labels([make("pong", "time_aware"), cartpole]) == {
        "time_aware multihorizon hyperbolic mean": {"pong": 1, "cartpole": 1}
    }


def test_environments_are_told_by_their_settings(make):
    runs = [make("pong", "time_aware", env__protocol=one) for one in ("paper", "machado")]
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
    key = "horizons.quadrature"
    found = {
        one.label: other.label
        for one in agents
        if (other := baseline_of(one, agents, "variant", "time_inconsistent"))
    }
    assert found == {
        f"time_consistent {key}={rule}": f"time_inconsistent {key}={rule}"
        for rule in ("lower", "upper")
    }
    setting = baseline_of(agents[1], agents, "horizons.quadrature", "lower")
    assert setting is agents[0]


def test_a_baseline_that_is_not_there(make):
    agents = agents_of([make("pong", "time_aware"), make("pong", "time_consistent")])
    assert baseline_of(agents[0], agents, "variant", "time_inconsistent") is None
    refuse_no_baseline(agents, "variant", "time_aware")
    with pytest.raises(UserError, match="no agent has it; choose time_aware or time_consistent"):
        refuse_no_baseline(agents, "variant", "time_incosistent")
    with pytest.raises(UserError, match=r"no run has a setting agent\.lr"):
        refuse_no_baseline(agents, "agent.lr", "3")
