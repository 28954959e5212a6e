import numpy as np
import pytest

from rigor.report.data import scores

# Two agents, three runs (rows) on five games (columns). The expected values were computed with
# rliable 1.2.0, the code published with Agarwal et al. (2021).
X = np.array(
    [[1, 1.35, 0.76, 0.41, 0.63], [0.37, 1.06, 3.82, 0.61, 0.54], [1.63, 1.43, 1.11, 0.39, 0.97]]
)
Y = np.array(
    [[0.37, 0.26, 0.63, 0.15, 0.28], [0.16, 0.79, 0.28, 1.31, 1.17], [0.83, 0.08, 0.58, 0.95, 1.12]]
)


def games(matrix):
    return list(np.asarray(matrix, dtype=float).T)


@pytest.mark.parametrize(
    ("statistic", "x", "y"),
    [
        (scores.interquartile_mean, 0.8922222222222221, 0.5522222222222222),
        (scores.median, 1.0, 0.49666666666666665),
        (scores.mean, 1.0719999999999998, 0.5973333333333334),
    ],
)
def test_aggregates_equal_rliables(statistic, x, y):
    assert statistic(games(X)) == pytest.approx(x, abs=1e-12)
    assert statistic(games(Y)) == pytest.approx(y, abs=1e-12)


def test_probability_and_profile_equal_rliables():
    assert scores.probability_of_improvement(games(X), games(Y)) == pytest.approx(0.7, abs=1e-12)
    found = scores.profile(games(X), np.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, [0.8, 0.4, 1 / 15], atol=1e-12)


def test_intervals_are_close_to_rliables():
    """rliable drew 20,000 and 5,000 random resamples, so the ends agree to about 0.02."""
    found = scores.estimate(scores.interquartile_mean, games(X))
    assert (found.low, found.high) == pytest.approx((0.712, 1.1), abs=0.02)
    found = scores.estimate(scores.median, games(X))
    assert (found.low, found.high) == pytest.approx((0.6, 1.3767), abs=0.03)
    both = [*games(X), *games(Y)]
    found = scores.estimate(
        lambda s: scores.probability_of_improvement(s[:5], s[5:]), both, resamples=5000
    )
    assert (found.low, found.high) == pytest.approx((0.5444, 0.8667), abs=0.025)


def test_the_optimality_gap_by_hand():
    # 1 − .25, 0 (not negative), 1 − .75 and 1 + .5
    two = [np.array([0.25, 3.0]), np.array([0.75, -0.5])]
    assert scores.optimality_gap(two) == (0.75 + 0.0 + 0.25 + 1.5) / 4


def test_by_hand():
    # pooled 0 1 2 3 4 5 6 7: two runs are cut at each end, (2 + 3 + 4 + 5) / 4
    assert scores.interquartile_mean([np.arange(3.0), np.arange(3.0, 8.0)]) == 3.5
    # game means 1, 5, 6
    three = [np.array([0.0, 2.0]), np.array([5.0]), np.array([5.0, 6.0, 7.0])]
    assert (scores.median(three), scores.mean(three)) == (5.0, 4.0)
    # first game: x wins one of 2 x 1 pairs and ties in the other, .75; second game: x loses, 0
    x, y = [np.array([1.0, 2.0]), np.array([0.0])], [np.array([1.0]), np.array([3.0])]
    assert scores.probability_of_improvement(x, y) == 0.375
    assert scores.probability_of_improvement(y, x) == 0.625
    assert scores.normalised(np.array([10.0, 20.0]), 10.0, 30.0).tolist() == [0.0, 0.5]


def test_games_with_one_run_are_not_resampled():
    # the mean of {0, 2} resampled is 0, 1 or 2; with the single 4, the mean over games is 2, 2.5, 3
    found = scores.estimate(scores.mean, [np.array([0.0, 2.0]), np.array([4.0])])
    assert (found.value, found.low, found.high) == (2.5, 2.0, 3.0)
    alone = scores.estimate(scores.mean, [np.array([1.0]), np.array([4.0])])
    assert alone.value == 2.5
    assert np.isnan([alone.low, alone.high]).all()


def test_intervals_of_a_profile_are_the_same_at_every_call():
    thresholds = np.array([0.0, 1.0, 9.0])
    first = scores.estimate(lambda s: scores.profile(s, thresholds), games(X))
    again = scores.estimate(lambda s: scores.profile(s, thresholds), games(X))
    np.testing.assert_array_equal(first.low, again.low)
    assert first.value.tolist() == [1.0, 0.4, 0.0]
    assert (first.low <= first.value).all()
    assert (first.high >= first.value).all()
    assert first.high[1] > first.low[1]
