import numpy as np
import pytest

from rigor.learning.returns_seen import KEPT, ReturnsSeen


def seen(*steps):
    returns = ReturnsSeen()
    for sums, reward, end in steps:
        returns.observe(np.array(sums, float), np.array(reward, float), np.array(end, bool))
    return returns


def test_until_an_episode_ends_the_running_sums_count():
    running = ([3.0, -1.0], [3.0, -1.0], [False, False])
    assert (seen(running).low, seen(running).high) == (-1.0, 3.0)
    ended = seen(running, ([9.0, 2.0], [6.0, 3.0], [False, True]))
    assert (ended.low, ended.high, ended.newest.tolist()) == (2.0, 2.0, [2.0])
    later = seen(running, ([9.0, 2.0], [0, 0], [False, True]), ([20.0, 5.0], [0, 0], [True, False]))
    assert (later.low, later.high) == (2.0, 20.0)


@pytest.mark.parametrize(
    ("largest", "unit"), [(0.0, 1.0), (32.0, 1.0), (33.0, 2.0), (0.01, 2.0**-11), (1e5, 4096.0)]
)
def test_the_largest_return_counts_as_16_to_32(largest, unit):
    returns = seen(([-largest], [0.0], [True]))
    assert returns.reward_unit == unit
    assert largest == 0.0 or 16.0 < largest / unit <= 32.0


def test_a_large_reward_of_the_far_future_counts_undiscounted():
    assert seen(([1e-6], [64.0], [True])).reward_unit == 2.0


def test_the_spread_of_nearly_equal_returns_is_a_fraction_of_their_size():
    assert seen(([1000.0], [0.0], [True])).spread == 10.0
    assert seen(([-1000.0, 1000.0], [0.0] * 2, [True] * 2)).spread == 2000.0
    assert seen().spread == 1.0


def test_the_newest_returns_are_kept():
    returns = seen(*(([float(k)], [0.0], [True]) for k in range(KEPT + 5)))
    assert returns.newest.tolist() == list(range(5, KEPT + 5))
    other = ReturnsSeen()
    other.restore(returns.state())
    assert vars(other).keys() == vars(returns).keys()
    assert other.low == 0.0
