import numpy as np
import pytest

from rigor.learning.return_to_go_seen import ReturnToGoSeen

HALF = np.full(20, 0.5)  # d̃_{t+1} / d̃_t


def seen(*steps, factors=HALF):
    """Return what is seen of steps (t, reward, counts, ends) of one environment."""
    to_go = ReturnToGoSeen(factors)
    for t, reward, counts, ends in steps:
        to_go.observe(*(np.array([value]) for value in (t, float(reward), counts, ends)))
    return to_go


def bounds(*steps, **more):
    to_go = seen(*steps, **more)
    return to_go.low, to_go.high


def episode(*rewards):
    n = len(rewards)
    steps = [(t, reward, True, t == n - 1) for t, reward in enumerate(rewards)]
    return [*steps, (n, 0.0, False, False)]  # the autoreset


def test_sums_are_seen_from_every_step_to_the_end_in_units_of_the_step():
    # 4; −3 + 4/2 = −1; 2 − 1/2 = 1.5
    first = [*episode(0), *episode(2, -3, 4)]
    assert bounds(*first) == (-1.0, 4.0)
    # −6; 1 − 6/2 = −2; rewards of the episode before count no more
    assert bounds(*first, *episode(1, -6)) == (-6.0, 4.0)
    assert bounds(*first, (0, 100, True, False)) == (-1.0, 4.0)


def test_the_factors_are_those_of_the_steps_own_times():
    factors = np.array([0.1, 0.5, 0.25, 1.0])
    # a lost life at t = 1 ends the sums before it: 1; then 8, and 4 + 8/4 at t = 2
    life = [(0, 0, True, False), (1, 1, True, True), (2, 4, True, False), (3, 8, True, True)]
    assert bounds(*life, factors=factors) == (0.0, 8.0)
    assert bounds((2, 4, True, False), (3, 12, True, True), factors=factors) == (0.0, 12.0)
    assert bounds((1, 4, True, False), (2, 12, True, True), factors=factors)[1] == 12.0


def test_until_an_end_is_seen_running_episodes_count_and_bounds_never_narrow():
    running = [(0, 2, True, False), (1, -3, True, False)]
    assert bounds(*running) == (-3.0, 2.0)
    # of three steps it is not looked at, of four it is: 8, 3, −1.5, 1.25
    assert bounds(*running, (2, -1, True, False)) == (-3.0, 2.0)
    assert bounds(*running, (2, -1, True, False), (3, 8, True, False)) == (-3.0, 8.0)
    assert bounds(*running, (2, 1, True, True)) == (-3.0, 2.0)


def test_an_episode_that_is_cut_by_a_restart_is_forgotten():
    to_go = seen(*episode(1), (0, -9, True, False))
    to_go.restart()
    to_go.observe(*(np.array([value]) for value in (0, 2.0, True, True)))
    assert (to_go.low, to_go.high) == (0.0, 2.0)


@pytest.mark.parametrize("steps", [[], episode(1), [*episode(1), (0, -9, True, False)]])
def test_it_goes_on_from_its_state(steps):
    to_go, other = seen(*steps), ReturnToGoSeen(HALF)
    other.restore(to_go.state())
    for one in (to_go, other):
        one.observe(*(np.array([value]) for value in (1, -3.0, True, True)))
    assert vars(other) == vars(to_go)
    other = seen(*steps)
    other.restart()
    again = ReturnToGoSeen(HALF)
    again.restore(other.state())
    assert vars(again) == vars(other)
