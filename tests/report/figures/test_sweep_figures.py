import pytest
from synthetic import scored_agents

from rigor.errors import UserError
from rigor.report.figures.sweep_figures import atari_curves, improvement_bars


@pytest.fixture
def sweep(tmp_path):
    scores = {
        ("pong", "time_consistent"): [14.0, 16.0],
        ("pong", "time_inconsistent"): [10.0, 10.0],
        ("pong", "time_aware"): [30.0, 30.0],
        ("freeway", "time_consistent"): [20.0],
        ("freeway", "time_inconsistent"): [0.1],  # too near zero
        ("freeway", "time_aware"): [40.0],
    }
    scored_agents(tmp_path, scores)
    return tmp_path


def test_the_bars_compare_agents_with_a_baseline(sweep):
    axes, _ = improvement_bars(sweep, ("variant", "time_inconsistent")).axes
    assert [bar.get_width() for bar in axes.patches] == [50.0]  # (15 - 10) / 10
    title = axes.get_title().replace("\n", " ")
    assert "No difference can be told between time_consistent and time_inconsistent" in title
    assert "over 2 environments, 1 to 2 seeds" in title
    assert title.endswith("Not drawn because the baseline's mean is near zero: freeway.")


def test_another_baseline(sweep):
    axes, _ = improvement_bars(sweep, ("variant", "time_aware")).axes
    assert [bar.get_width() for bar in axes.patches] == [-50.0, -50.0]
    both = improvement_bars(sweep, ("variant", "time_consistent")).axes
    assert len(both) == 2
    assert len(improvement_bars(sweep).axes) == 3  # without a baseline, every two agents


def test_missing_baselines_are_named(sweep, tmp_path_factory):
    with pytest.raises(UserError, match=r"baseline variant=x: no agent has it; choose time_aware"):
        improvement_bars(sweep, ("variant", "x"))
    alone = tmp_path_factory.mktemp("alone")
    scored_agents(alone, {("pong", "time_aware"): [1.0], ("qbert", "time_consistent"): [1.0]})
    with pytest.raises(UserError, match="is finished by an agent and by its baseline variant=tim"):
        improvement_bars(alone, ("variant", "time_aware"))


def test_curves_of_every_game(sweep):
    titles = [axes.get_title() for axes in atari_curves(sweep).axes]
    assert titles == ["freeway", "pong"]
