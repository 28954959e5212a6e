import functools

import numpy as np
import pytest
from synthetic import scored_agents

from rigor.report.improvement import comparisons, improvement, improvement_sheet


@pytest.fixture
def agents(tmp_path):
    """Pong and Freeway have published scores: random −20.7 and 0, human 14.6 and 29.6."""
    return functools.partial(scored_agents, tmp_path)


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
    found = improvement(ours, base)
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
    found = improvement(ours, base)
    assert [row["game"] for row in found.drawn] == ["bowling"]
    notes = {row["game"]: row["note"] for row in found.rows}
    assert notes["freeway"] == "baseline near zero (0.29): no percentage"
    assert notes["cartpole"] == "baseline near zero (0): no percentage"
    assert found.better == 3
    table = improvement_sheet(found, 1)
    assert table.cells[-1][4] == "–"
    assert "near zero" in table.cells[-1][-1]


def test_every_pair_is_compared_one_way_round(agents):
    three = agents(
        {
            ("pong", variant): [score]
            for variant, score in (
                ("time_consistent", -5.0),
                ("time_aware", -10.0),
                ("time_inconsistent", -20.0),
            )
        }
    )
    both = [("variant", "time_inconsistent"), ("variant", "time_aware")]
    found = comparisons(three, both)
    assert [(one.agent, one.baseline) for one in found] == [
        ("time_consistent", "time_inconsistent"),
        ("time_aware", "time_inconsistent"),
        ("time_consistent", "time_aware"),
    ]
    # (-5 + 20) / 20
    assert found[0].headline == (
        "time_consistent over time_inconsistent: a higher mean score on 1 of 1 game; "
        "mean +75.0 %, median +75.0 % over 1 game."
    )
