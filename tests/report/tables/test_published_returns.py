from pathlib import Path

import numpy as np
import pytest
from synthetic import make_run

from rigor.report.data.agents import agents_of
from rigor.report.data.runs import load
from rigor.report.figures.agent_curves import agent_styles
from rigor.report.figures.published_returns import published_returns_figure
from rigor.report.tables.published_returns import comparable, published_returns_sheet


def training(run: Path, scores: list[float]) -> Path:
    """Write one episode for each million of frames."""
    lines = [f"{250_000 * k},{1_000_000 * k},{k},{score}" for k, score in enumerate(scores, 1)]
    (run / "metrics.csv").write_text("\n".join(["steps,frames,episodes,train_score", *lines, ""]))
    return run


@pytest.fixture
def agents(tmp_path):
    runs = [
        training(make_run(tmp_path, "breakout", "time_consistent", seed, 30.0), scores)
        for seed, scores in enumerate(([2.0, 8.0, 20.0], [4.0, 10.0]))
    ]
    runs.append(training(make_run(tmp_path, "pong", "time_aware", 0, -20.0), [-21.0]))
    runs.append(training(make_run(tmp_path, "surround", "time_aware", 0, 1.0), [-1.0]))
    return agents_of([load(run) for run in runs])


def test_own_returns_stand_beside_published_ones_at_equal_frames(agents):
    sheet = published_returns_sheet(agents)
    shown = [
        (row["environment"], row["million"], row["seeds"], row["score"], row["DQN"])
        for row in sheet.rows
    ]
    assert shown == [
        ("breakout", 1, 2, 3.0, pytest.approx(1.809)),
        ("breakout", 2, 2, 9.0, pytest.approx(7.11)),  # the third million has one seed only
        ("pong", 1, 1, -21.0, pytest.approx(-20.0, abs=0.5)),
    ]  # Surround has no published curve
    assert sheet.rows[0]["score_low"] < 3.0 < sheet.rows[0]["score_high"]
    assert np.isnan(sheet.rows[2]["score_low"])
    assert sheet.rows[1]["Rainbow"] == pytest.approx(4.523)
    assert "QR-DQN" in sheet.headings
    assert "Apache-2.0" in sheet.caption


def test_the_figure_draws_every_seed_and_the_published_agents(agents):
    games = comparable(agents)
    figure = published_returns_figure(games, agent_styles(agents))
    assert [axes.get_title() for axes in figure.axes] == ["breakout", "pong"]
    lines = [line.get_ydata().tolist() for line in figure.axes[0].lines]
    assert lines[:2] == [[2.0, 8.0, 20.0], [4.0, 10.0]]
    assert [len(line) for line in lines[2:]] == [4, 4, 4]  # one million beyond the longest run
    assert [len(line.get_ydata()) for line in figure.axes[1].lines[1:]] == [2, 2, 2]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["time_consistent", "time_aware", *_published()]


def _published() -> list[str]:
    return [f"{agent} (Dopamine)" for agent in ("DQN", "QR-DQN", "IQN")]


def test_runs_without_a_million_frames_have_no_table(tmp_path):
    run = make_run(tmp_path, "breakout", "time_consistent", 0, 30.0)
    (run / "metrics.csv").write_text("steps,frames,episodes,train_score\n100,400,1,3\n")
    agents = agents_of([load(run)])
    assert comparable(agents) == {}
    assert not published_returns_sheet(agents)
