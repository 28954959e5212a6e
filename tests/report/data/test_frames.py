import math

import pytest
from synthetic import config_of, make_run, make_sweep

import rigor
from rigor.errors import UserError


@pytest.fixture
def sweep(tmp_path):
    paths = [
        make_run(tmp_path, "pong", variant, seed, 5.0 + seed, rows=4)
        for variant in ("time_consistent", "time_aware")
        for seed in (0, 1)
    ]
    config = config_of("pong", "time_aware", 2, agent__layers=[64, 64])
    paths.append(make_run(tmp_path, "pong", "time_aware", 2, state="queued", config=config))
    return make_sweep(tmp_path, paths)


def test_a_sweep_is_one_frame(sweep):
    frame = rigor.load_sweep(sweep)
    assert len(frame) == 5
    assert frame.groupby("variant").score.mean().to_dict() == {
        "time_aware": 5.5,
        "time_consistent": 5.5,
    }
    last = frame.iloc[-1]
    assert (last.seed, last.state, math.isnan(last.score)) == (2, "queued", True)
    assert last["agent.layers"] == [64, 64]
    assert frame["discount.k"].tolist() == [0.05] * 5
    assert list(frame.columns[:7]) == ["run", "env", "agent", "discount", "risk", "variant", "seed"]
    assert frame.columns.is_unique


def test_log_points_of_a_sweep(sweep):
    frame = rigor.load_sweep(sweep, metrics=True)
    assert len(frame) == 16  # the queued run has none
    assert "agent.layers" in frame
    assert "discount.k" not in frame  # it does not differ
    assert frame[frame.seed == 1].groupby("variant").steps.max().tolist() == [10_000_000] * 2
    assert frame.columns.is_unique


def test_no_sweep_is_refused(tmp_path):
    with pytest.raises(UserError, match="it holds no runs"):
        rigor.load_sweep(tmp_path)
    queued = make_run(tmp_path, "pong", "time_aware", 0, state="queued")
    assert len(rigor.load_sweep(queued)) == 1
    assert len(rigor.load_sweep(queued, metrics=True)) == 0
