import numpy as np
import pytest
from synthetic import make_run

from rigor.report import comparison
from rigor.report.agents import agents_of
from rigor.report.runs import load


@pytest.fixture
def agents(tmp_path):
    """Pong and Freeway have published scores: random −20.7 and 0, human 14.6 and 29.6."""

    def agents(scores):
        return agents_of(
            [
                load(make_run(tmp_path, game, variant, seed, score))
                for (game, variant), by_seed in scores.items()
                for seed, score in enumerate(by_seed)
            ]
        )

    return agents


def test_improvement_by_hand(agents):
    ours, base = agents(
        {
            ("pong", "time_consistent"): [-5.0, -15.0],
            ("pong", "time_inconsistent"): [-20.0, -20.0],
            ("freeway", "time_consistent"): [30.0, 30.0],
            ("freeway", "time_inconsistent"): [20.0, 20.0],
            ("qbert", "time_consistent"): [1000.0],
            ("qbert", "time_inconsistent"): [2000.0],
            ("bowling", "time_consistent"): [30.0],  # the baseline never finished it
        }
    )
    found = comparison.improvement(ours, base)
    # (-10 + 20) / 20, (30 - 20) / 20, (1000 - 2000) / 2000
    assert [(row["game"], row["percent"]) for row in found.rows] == [
        ("pong", 50.0),
        ("freeway", 50.0),
        ("qbert", -50.0),
    ]
    pong, freeway, qbert = found.rows
    assert (pong["n"], pong["n_baseline"], pong["difference"]) == (2, 2, 10.0)
    # resampled means of ours are -15, -10, -5
    assert (pong["percent_low"], pong["percent_high"]) == (25.0, 75.0)
    assert (freeway["percent_low"], freeway["percent_high"]) == (50.0, 50.0)
    assert np.isnan(qbert["percent_low"])
    assert pong["note"] == "negative baseline: over its absolute value"
    assert (found.better, found.mean, found.median) == (2, pytest.approx(50 / 3), 50.0)


def test_a_baseline_near_zero_is_listed_without_a_percentage(agents):
    """Freeway: a hundredth of the way from 0 to 29.6 is .296."""
    ours, base = agents(
        {
            ("freeway", "time_consistent"): [20.0],
            ("freeway", "time_inconsistent"): [0.29],
            ("bowling", "time_consistent"): [20.0],
            ("bowling", "time_inconsistent"): [1.5],  # of 137.6: over a hundredth
            ("cartpole", "time_consistent"): [1.0],
            ("cartpole", "time_inconsistent"): [0.0],
        }
    )
    found = comparison.improvement(ours, base)
    assert [row["game"] for row in found.drawn] == ["bowling"]
    notes = {row["game"]: row["note"] for row in found.rows}
    assert notes["freeway"] == "baseline near zero (0.29): no percentage"
    assert notes["cartpole"] == "baseline near zero (0): no percentage"
    assert found.better == 3
    table = comparison.improvement_sheet(found, 1)
    assert table.cells[-1][4] == "–"
    assert "near zero" in table.cells[-1][-1]


def test_aggregates_take_the_games_that_all_have_finished(agents):
    three = agents(
        {
            ("pong", "time_consistent"): [14.6, 14.6],
            ("pong", "time_inconsistent"): [-20.7],
            ("freeway", "time_consistent"): [14.8],
            ("qbert", "time_aware"): [None],  # no run of it is done
        }
    )
    normalised, games = comparison.normalised_games(three)
    assert games == ["pong"]
    assert {label: [list(game) for game in own] for label, own in normalised.items()} == {
        "time_consistent": [[1.0, 1.0]],
        "time_inconsistent": [[0.0]],
    }
    sheet = comparison.aggregate_sheet(normalised, games)
    assert [(row["agent"], row["iqm"], row["median"], row["runs"]) for row in sheet.rows] == [
        ("time_consistent", 1.0, 1.0, 2),
        ("time_inconsistent", 0.0, 0.0, 1),
    ]
    assert "1 game that every agent has finished: pong." in sheet.caption
    (duel,) = comparison.duel_sheet(normalised, games).rows
    assert (duel["x"], duel["y"], duel["probability"]) == (
        "time_consistent",
        "time_inconsistent",
        1.0,
    )
    thresholds, found = comparison.profiles(normalised)
    assert thresholds[0] <= 0.0
    assert found["time_consistent"].value[0] == 1.0


def test_scores_stand_beside_published_ones(agents):
    found = agents(
        {
            ("pong", "time_consistent"): [10.0, 20.0],
            ("pong", "time_aware"): [3.0],
            ("cartpole", "time_aware"): [500.0],
        }
    )
    sheet = comparison.score_sheet(found)
    cartpole, pong = (dict(zip(sheet.headings, cells, strict=True)) for cells in sheet.cells)
    assert pong["time_consistent"] == "15 [10, 20]"
    assert pong["time_aware"] == "3"
    assert (pong["random"], pong["human"]) == ("-20.7", "14.6")
    assert (cartpole["time_aware"], cartpole["time_consistent"]) == ("500", "–")
    assert cartpole["human"] == "–"
