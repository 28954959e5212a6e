import functools

import pytest
from synthetic import config_of, make_run, scored_agents

from rigor.report.data import score_scale
from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.tables import comparison


@pytest.fixture
def agents(tmp_path):
    """Published scores of Pong and Freeway: random −20.7 and 0, human 14.6 and 29.6."""
    return functools.partial(scored_agents, tmp_path)


def test_aggregates_use_the_games_that_all_agents_have_finished(agents):
    three = agents(
        {
            ("pong", "time_consistent"): [14.6, 14.6],
            ("pong", "time_inconsistent"): [-20.7],
            ("freeway", "time_consistent"): [14.8],
            ("qbert", "time_aware"): [None],  # this agent has no finished run
        }
    )
    normalised, games = comparison.normalised_games(three)
    assert games == ["pong"]
    assert {label: [list(game) for game in own] for label, own in normalised.items()} == {
        "time_consistent": [[1.0, 1.0]],
        "time_inconsistent": [[0.0]],
    }
    sheet = comparison.aggregate_sheet(normalised, games, "0 is random play and 1 human play")
    assert [(row["agent"], row["iqm"], row["median"], row["runs"]) for row in sheet.rows] == [
        ("time_consistent", 1.0, 1.0, 2),
        ("time_inconsistent", 0.0, 0.0, 1),
    ]
    assert "1 game that every agent has finished: pong." in sheet.caption
    (pair,) = comparison.probability_sheet(normalised, games).rows
    assert (pair["x"], pair["y"], pair["probability"]) == (
        "time_consistent",
        "time_inconsistent",
        1.0,
    )
    assert pair["iqm_difference"] == 1.0
    thresholds, found = comparison.profiles(normalised)
    assert thresholds[0] <= 0.0
    assert found["time_consistent"].value[0] == 1.0


def test_scores_of_minatar_are_normalised_by_random_play_and_dqn(tmp_path):
    def run(game, variant, score):
        config = config_of(game, variant, 0)
        config["env"] = {"game": game, "_target_": "rigor.envs.minatar.MinAtar"}
        return load(make_run(tmp_path, game, variant, 0, score, config=config))

    found = agents_of(
        [
            run("asterix", "time_consistent", 17.0),
            run("freeway", "time_consistent", 50.0),
            run("asterix", "time_aware", 0.51),
            run("freeway", "time_aware", 25.175),
        ]
    )
    normalised, games = comparison.normalised_games(found)
    assert games == ["asterix", "freeway"]
    values = {label: [float(game[0]) for game in own] for label, own in normalised.items()}
    assert values["time_consistent"] == pytest.approx([1.0, 1.0])
    assert values["time_aware"] == pytest.approx([0.0, 0.5])
    scales = comparison.scales_of(found, games)
    dqn = "DQN after 5 million frames (Young and Tian 2019)"
    assert score_scale.meaning(scales) == f"0 is random play and 1 {dqn}"
    assert score_scale.short(scales) == "DQN"
    atari = score_scale.ScoreScale(0.0, 1.0, "human play")
    assert score_scale.meaning([atari]) == "0 is random play and 1 human play"
    assert score_scale.meaning([*scales, atari]) == (
        f"0 is random play and 1 human play on Atari, {dqn} on MinAtar"
    )


def test_scores_are_shown_with_published_scores(agents):
    found = agents(
        {
            ("pong", "time_consistent"): [10.0, 20.0],
            ("pong", "time_aware"): [3.0],
            ("cartpole", "time_aware"): [500.0],
        }
    )
    sheet = comparison.score_sheet(found)
    cartpole, pong = (dict(zip(sheet.headings, cells, strict=True)) for cells in sheet.cells)
    assert pong["time_consistent"] == "15 [-48.5, 78.5]"
    assert pong["time_aware"] == "3"
    assert (pong["random"], pong["human"]) == ("-20.7", "14.6")
    assert (cartpole["time_aware"], cartpole["time_consistent"]) == ("500", "–")
    assert cartpole["human"] == "–"


def test_objectives_are_shown_if_all_agents_have_the_same(tmp_path):
    other = config_of("pong", "time_aware", 0, discount__k=0.2)
    runs = [
        make_run(tmp_path, "freeway", "time_consistent", 0, 18.0),
        make_run(tmp_path, "freeway", "time_consistent", 1, 27.0),
        make_run(tmp_path, "freeway", "time_inconsistent", 0, 9.0),
        make_run(tmp_path, "pong", "time_consistent", 0, 18.0),
        make_run(tmp_path, "pong", "time_aware", 0, 18.0, config=other),
    ]
    agents = agents_of([load(path) for path in runs])
    assert not comparison.have_one_objective(agents, "pong")
    sheet = comparison.objective_sheet(agents)
    (cells,) = sheet.cells
    assert dict(zip(sheet.headings, cells, strict=True)) == {
        "environment": "freeway",
        "time_consistent": "2.5 [-3.85, 8.85]",
        "time_inconsistent": "1",
    }


def test_a_setting_may_be_a_list_and_an_exact_objective_comes_first(tmp_path):
    config = config_of("forever", "time_consistent", 0, discount__rates=[0.9, 0.99])
    result = {"objective_exact": 3.4, "optimum_low": 3.5}
    run = make_run(tmp_path, "forever", "time_consistent", 0, 27.0, config=config, result=result)
    (row,) = comparison.objective_sheet(agents_of([load(run)])).rows
    assert 3.4 in row.values()
