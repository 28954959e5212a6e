import numpy as np
import pytest

from rigor.envs.problem import ReturnToGo
from rigor.learning.initial_stock import StockCandidates
from rigor.learning.replay import Batch
from rigor.learning.returns_seen import ReturnsSeen
from rigor.maths.outer import Outer


def candidates_after(returns, points=5, low=None, high=None, relabel=1.0, bounds=None):
    seen = ReturnsSeen()
    if len(returns):
        returns = np.array(returns, float)
        seen.observe(returns, np.zeros(len(returns)), np.ones(len(returns), bool))
    return StockCandidates(Outer(points, 1, low, high, 1, relabel, 0), seen, bounds)


def batch_of(n):
    zeros = np.zeros(n)
    return Batch(None, None, zeros, zeros + 3.0, zeros + 1.0, zeros, zeros, zeros, zeros)


def test_the_grid_holds_minus_the_returns_and_a_margin():
    candidates = candidates_after([10.0, 12.0, 20.0])
    assert candidates.range() == (-21.0, -9.0)
    grid = candidates.grid()
    assert {-10.0, -12.0, -20.0} <= set(grid)
    assert (grid[0], grid[-1]) == (-21.0, -9.0)


@pytest.mark.parametrize("scale", [0.01, 1.0, 10_000.0])
def test_candidates_have_the_scale_of_the_returns(scale):
    returns = scale * np.array([-3.0, 1.0, 5.0])
    at_one, scaled = candidates_after([-3.0, 1.0, 5.0]), candidates_after(returns)
    np.testing.assert_allclose(scaled.range(), scale * np.array(at_one.range()))
    assert len(scaled.grid()) == pytest.approx(len(at_one.grid()), abs=3)  # up to rounded ties


def test_before_any_return_the_range_is_a_reward_wide():
    assert candidates_after([]).range() == (-0.1, 0.1)


def test_given_ends_overrule_and_hold_for_refined_candidates():
    candidates = candidates_after([0.0, 10.0], low=-8.0, high=-2.0)
    assert candidates.range() == (-8.0, -2.0)
    assert candidates.inside(np.array([-9.0, -8.0, -5.0, 0.0])).tolist() == [-8.0, -5.0]
    free = candidates_after([0.0, 10.0])
    assert free.inside(np.array([-99.0, 5.0])).tolist() == [-99.0, 5.0]


def test_a_search_that_stays_at_an_end_is_noted_once():
    candidates, tried = candidates_after([0.0, 10.0]), np.linspace(-11.0, 1.0, 121)
    notes = [candidates.note_search(tried, c) for c in (-11.0, -5.0, 1.0, 1.0, 1.0, 1.0)]
    assert [note is not None for note in notes] == [False] * 4 + [True, False]
    assert "is an end of its range [-11, 1] in 3 searches" in notes[4]


def test_a_coarse_search_is_noted():
    candidates = candidates_after(np.linspace(0.0, 10.0, 101))
    assert candidates.note_search(np.array([-9.0, -5.0, -4.6, 0.0]), -5.0) is None
    note = candidates.note_search(np.array([-9.0, -5.0, -4.0, 0.0]), -5.0)
    assert "lie 1 apart, more than 5% of the returns' spread, 9" in note
    bounds = ReturnToGo(np.zeros(2), np.array([10.0, 0.0]), None)
    known = candidates_after(np.linspace(0.0, 10.0, 101), bounds=bounds)
    assert known.note_search(np.array([-9.0, -5.0, -4.0, 0.0]), -5.0) is None


def test_each_kind_of_warning_about_searches_is_due_once():
    candidates = candidates_after(np.linspace(0.0, 10.0, 101))
    tried = np.array([-9.0, -5.0, -4.0, 0.0])
    notes = [candidates.note_search(tried, c) for c in (-5.0, -5.0, 0.0, 0.0, 0.0, -5.0)]
    kinds = [note and note.split()[1] for note in notes]
    assert kinds == ["candidates", None, None, None, "initial", None]
    assert not any(candidates.note_search(tried, 0.0) for _ in range(4))


def test_relabelling_draws_from_the_newest_search():
    candidates = candidates_after([0.0, 10.0])
    batch = batch_of(400)
    candidates.relabel(batch, np.random.default_rng(0))
    assert -11.0 <= batch.stock_start.min() < -9.0
    assert batch.stock_start.max() <= 1.0
    candidates.note_search(np.array([-7.0, -3.0]), -3.0)
    batch = batch_of(400)
    candidates.relabel(batch, np.random.default_rng(0))
    assert set(batch.stock_start) == {-7.0, -3.0}
    np.testing.assert_allclose(batch.stock - batch.stock_start, 2.0)
    again = candidates_after([0.0, 10.0])
    again.restore(candidates.state())
    assert again.searched.tolist() == [-7.0, -3.0]
