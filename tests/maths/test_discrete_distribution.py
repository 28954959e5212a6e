import numpy as np
import pytest

from rigor.maths.discrete_distribution import distribution, quantile_maximiser, worst_mean


def test_outcomes_of_probability_0_are_left_out() -> None:
    x, p = distribution(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, 0.5]))
    assert (x.tolist(), p.tolist()) == ([1.0, 3.0], [0.5, 0.5])
    assert distribution(np.array([4.0, 5.0]), None)[1].tolist() == [0.5, 0.5]


def test_the_worst_mean_counts_the_last_atom_in_part() -> None:
    # worst .4 of 0 (.2), 1 (.3), 4 (.5): .2 of 0 and .2 of 1
    x, p = np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.2, 0.3])
    assert worst_mean(x, p, 0.4) == pytest.approx(0.5)
    assert worst_mean(x, p, 1.0) == pytest.approx(2.3)


def test_the_quantile_maximiser_is_the_one_nearest_0() -> None:
    # every .5-quantile lies in [1, 4], so −c is 1; of −x, in [−4, −1], so −c is −1
    x, p = np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.2, 0.3])
    assert quantile_maximiser(x, p, 0.5) == -1.0
    assert quantile_maximiser(-x, p, 0.5) == 1.0
    assert quantile_maximiser(x, p, 1.0) == -4.0
