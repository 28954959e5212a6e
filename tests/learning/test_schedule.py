import itertools

import pytest

from rigor.learning.schedule import Linear, crossings, every


@pytest.mark.parametrize(
    ("step", "value"), [(0, 1.0), (1, 0.991), (50, 0.55), (99, 0.109), (100, 0.1), (10**9, 0.1)]
)
def test_linear_moves_and_then_stays(step, value):
    assert Linear(1.0, 0.1, 100)(step) == pytest.approx(value, abs=1e-12)


def test_linear_can_rise_and_can_stand_still():
    assert Linear(0.0, 1.0, 4)(3) == 0.75
    assert [Linear(0.3, 0.3, 5)(step) for step in (0, 3, 5, 6)] == [0.3] * 4


@pytest.mark.parametrize(
    ("before", "after", "n", "count"),
    [
        (0, 1, 1, 1),
        (3, 3, 1, 0),  # autoresets alone
        (3, 4, 4, 1),
        (4, 5, 4, 0),  # the multiple itself was counted by the step that reached it
        (7, 15, 4, 2),  # eight copies, an update every four steps: 8 and 12
        (8, 16, 4, 2),
        (0, 100, 7, 14),
    ],
)
def test_crossings_counts_multiples_passed(before, after, n, count):
    assert crossings(before, after, n) == count


def test_crossings_add_up_however_a_way_is_cut():
    stops = [0, 1, 1, 5, 13, 14, 30, 31, 64]
    parts = itertools.pairwise(stops)
    assert sum(crossings(a, b, 6) for a, b in parts) == crossings(0, 64, 6) == 10


def test_every_is_a_whole_number_of_steps_and_never_none():
    assert every(0.05, 400) == 20
    assert every(0.008, 10_000_000) == 80_000
    assert every(1e-9, 1000) == 1
    assert every(0.0, 1000) == 1
