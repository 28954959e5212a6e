import numpy as np
import pytest

from rigor.learning.explore import epsilon_greedy


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_random_actions_come_at_their_rate_and_draw_the_same(epsilon):
    rng = np.random.default_rng(0)
    asked = []

    def greedy():
        asked.append(1)
        return np.full(10_000, 7)

    actions = epsilon_greedy(greedy, 10_000, 3, epsilon, rng)
    assert np.mean(actions < 3) == pytest.approx(epsilon, abs=0.02)
    assert bool(asked) == (epsilon < 1)
    other = np.random.default_rng(0)
    epsilon_greedy(lambda: np.zeros(10_000, int), 10_000, 3, 0.9, other)
    assert rng.random() == other.random()
