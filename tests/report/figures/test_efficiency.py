import numpy as np
import pytest
from synthetic import make_run, scored_agents

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.figures.agent_curves import agent_styles
from rigor.report.figures.efficiency import efficiency_panel, game_curves


def test_a_line_ends_where_the_first_run_ends(tmp_path):
    """Freeway: random 0, human 29.6. One of two runs stops at 30 % of the frames."""
    paths = [make_run(tmp_path, "freeway", "time_aware", seed, 20.0) for seed in (0, 1)]
    text = "steps,frames,seconds,eval_score\n0,0,0,0\n25,100,3600,14.8\n"
    (paths[0] / "metrics.csv").write_text(text)
    (paths[1] / "metrics.csv").write_text(text.replace("25,100,3600,14.8", "75,300,7200,29.6"))
    agents = agents_of([load(path) for path in paths])
    styles = agent_styles(agents)
    curves, games = game_curves(agents, "frames")
    assert games == ["freeway"]
    (line,) = efficiency_panel(curves, "frames", styles).axes[0].lines
    x, y = line.get_data()
    assert (x[0], x[-1]) == (0, 100)
    # normalised: .5 of the first run, a third of the second; their mean is five twelfths
    assert (y[0], y[-1]) == pytest.approx((0.0, 5 / 12))
    curves, _ = game_curves(agents, "seconds")
    (line,) = efficiency_panel(curves, "seconds", styles).axes[0].lines
    assert line.get_xdata()[-1] == 1.0  # hours; the second run has half of its score there
    assert line.get_ydata()[-1] == pytest.approx((0.5 + 0.5) / 2)


def test_only_games_of_all_learning_agents(tmp_path):
    agents = scored_agents(
        tmp_path,
        {
            ("pong", "time_aware"): [1.0],
            ("pong", "time_consistent"): [1.0],
            ("qbert", "time_aware"): [1.0],
        },
    )
    curves, games = game_curves(agents, "frames")
    assert games == ["pong"]
    assert {label: len(own) for label, own in curves.items()} == dict.fromkeys(curves, 1)
    panel = efficiency_panel(curves, "frames", agent_styles(agents))
    assert np.isfinite([line.get_ydata() for line in panel.axes[0].lines]).all()
    assert game_curves([], "frames") == ({}, [])
