import pandas as pd
import pytest
from synthetic import config_of, make_run

from rigor.report.data import published
from rigor.report.data.runs import load
from rigor.report.data.training_returns import by_million, differences, is_comparable
from rigor.runs.identity import settings


def test_a_million_has_the_mean_of_the_episodes_that_ended_in_it():
    """Ten episodes of mean 1 and thirty of mean 3 in the first million; a part of the third."""
    training = pd.DataFrame(
        {
            "frames": [400_000, 1_000_000, 1_500_000, 2_000_000, 2_100_000],
            "episodes": [10, 40, 50, 50, 60],
            "train_score": [1.0, 3.0, 5.0, 9.0, 100.0],
        }
    )
    means = by_million(training)
    assert means.to_dict() == {1: pytest.approx((10 * 1 + 30 * 3) / 40), 2: 5.0}
    assert by_million(training.iloc[:1]).empty
    assert by_million(training.iloc[:0]).empty


def test_differences_from_dopamines_games_are_named():
    own = settings(config_of("pong", "time_consistent", 0))
    assert differences(own) == []  # an old config without the keys says nothing of them
    own |= {"env.sticky": 0.0, "env.life_loss": "terminal", "env.max_frames": 108_000}
    assert differences(own) == [
        "env.sticky=0.0 (theirs 0.25)",
        "env.life_loss=terminal (theirs ignore)",
    ]


def test_a_run_needs_a_million_frames(tmp_path):
    run = make_run(tmp_path, "pong", "time_consistent", 0, 1.0)
    assert is_comparable(load(run))
    (run / "metrics.csv").write_text("steps,frames,episodes,train_score\n100,400,1,3\n")
    assert not is_comparable(load(run))
    (run / "metrics.csv").write_text("steps,eval_score\n100,1\n")
    assert not is_comparable(load(run))


def test_the_published_curves_are_those_of_the_source():
    """Values of baselines/atari/data/breakout_CNN.json and of its Pong and Alien."""
    curves = published.dopamine_curves().set_index(["game", "agent", "million"])
    assert len(curves) == 55 * 5 * 23
    assert tuple(curves.loc["breakout", "DQN", 2]) == pytest.approx((7.110, 0.934))
    assert curves.loc[("breakout", "QR-DQN", 1), "mean"] == pytest.approx(4.475)
    assert tuple(curves.loc["alien", "C51", 200]) == pytest.approx((3111, 129))
    assert curves.loc[("pong", "DQN", 10), "mean"] == pytest.approx(1.1, abs=0.1)
