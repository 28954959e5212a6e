import numpy as np
import pytest

from rigor.report.evaluation.calibration import (
    MOST_ATOMS,
    Calibration,
    PredictedDistributions,
    calibrate,
    calibration_figure,
    p_label,
)

LEVELS = (2 * np.arange(1, 51) - 1) / 100


def normal(n, rng, spread=1.0):
    """Predictions of episodes that start in states of different value, and their returns."""
    from scipy import stats

    value = rng.normal(0.0, 3.0, n)
    quantiles = value[:, None] + stats.norm.ppf(LEVELS)
    return PredictedDistributions.of_quantiles(quantiles), value + spread * rng.standard_normal(n)


def test_predicted_distributions_by_hand():
    predicted = PredictedDistributions.of_quantiles(np.array([[3.0, 1.0], [0.0, 0.0]]))
    assert predicted.values.tolist() == [[1.0, 3.0], [0.0, 0.0]]
    assert predicted.means(2).tolist() == [2.0, 0.0]
    values, counts = np.unique(predicted.pooled(), return_counts=True)
    assert values.tolist() == [0.0, 1.0, 3.0]
    assert (counts / MOST_ATOMS).tolist() == [0.5, 0.25, 0.25]
    shared = PredictedDistributions(np.array([[0.0, 10.0]]), np.array([0.9, 0.1]))
    assert shared.means(3).tolist() == [1.0, 1.0, 1.0]
    assert shared.of_episode(2).tolist() == [0.0, 10.0]


def test_wasserstein_by_hand():
    # every return 2 above a point
    found = calibrate(PredictedDistributions(np.array([[5.0]]), np.ones(1)), np.full(4, 7.0), 0)
    assert (found.predicted_mean, found.realised_mean, found.wasserstein) == (5.0, 7.0, 2.0)
    assert found.wasserstein_95 == 0.0
    assert found.pit.tolist() == [1.0] * 4
    assert found.ks == 1.0
    # probabilities ½ at 0 and at 10, but a quarter of the episodes at 10: 2.5 an episode
    predicted = PredictedDistributions(np.array([[0.0, 10.0]]), np.full(2, 0.5))
    found = calibrate(predicted, np.array([0.0, 0.0, 0.0, 10.0]), 0)
    assert found.wasserstein == pytest.approx(2.5)


def test_the_transform_of_a_return_by_hand():
    # ten quantiles 0 ... 9, far coarser than the resolution of a hundredth of the range
    predicted = PredictedDistributions.of_quantiles(np.arange(10.0)[None])
    found = calibrate(predicted, np.array([-1.0, 2.5, 9.5]), 0)
    np.testing.assert_allclose(found.pit, [0.0, 0.3, 1.0])
    # on an atom: anywhere within its probability
    places = calibrate(predicted, np.full(200, 4.0), 0).pit
    assert places.min() > 0.4
    assert places.max() < 0.5
    assert np.ptp(places) > 0.08


def test_the_calibrated_agent_passes_and_others_do_not():
    rng = np.random.default_rng(0)
    found = calibrate(*normal(400, rng), seed=1)
    assert found.wasserstein < found.wasserstein_95
    assert found.ks_p > 0.01
    too_sure = calibrate(*normal(400, rng, spread=2.0), seed=1)
    assert too_sure.ks_p < 0.001
    assert np.mean((too_sure.pit < 0.1) | (too_sure.pit > 0.9)) > 0.3  # in the tails
    predicted, returns = normal(400, rng)
    biased = calibrate(predicted, returns + 1.0, seed=1)
    assert biased.wasserstein == pytest.approx(1.0, abs=0.3)
    assert biased.wasserstein > biased.wasserstein_95
    assert biased.ks_p < 0.001


def test_atoms_that_a_network_predicts_closely_do_not_alarm():
    """Returns are 0 or 1000, and the quantiles stand within 1 of them."""
    rng = np.random.default_rng(0)
    quantiles = np.repeat([0.0, 1000.0], 25) + rng.normal(0.0, 1.0, 50)
    returns = 1000.0 * (rng.random(200) < 0.5)
    found = calibrate(PredictedDistributions.of_quantiles(quantiles[None]), returns, 2)
    assert found.ks_p > 0.01
    assert found.wasserstein < found.wasserstein_95


def test_the_simulated_distance_is_that_of_calibrated_evaluations():
    rng = np.random.default_rng(3)
    exceed = [
        found.wasserstein > found.wasserstein_95
        for _ in range(60)
        for found in (calibrate(*normal(30, rng), seed=0),)
    ]
    assert 0 <= np.mean(exceed) < 0.15  # 0.05 of them, within three standard deviations


def test_same_seed_same_numbers():
    predicted, returns = normal(20, np.random.default_rng(0))
    one, same, other = (calibrate(predicted, returns, seed) for seed in (5, 5, 6))
    assert one.numbers() == same.numbers()
    assert one.pit.tolist() == same.pit.tolist() != other.pit.tolist()


def test_the_figure_shows_both_distributions_and_the_numbers():
    found: Calibration = calibrate(*normal(50, np.random.default_rng(0)), seed=1)
    figure = calibration_figure(found, "reward", "Calibration of x")
    distributions, quantiles, places = figure.axes
    assert f"{found.wasserstein:.4g}" in distributions.get_title()
    assert len(quantiles.lines[1].get_xdata()) == 50
    assert sum(bar.get_height() for bar in places.patches[-10:]) == pytest.approx(1.0)
    assert f"KS {found.ks:.2g}" in places.get_title()


@pytest.mark.parametrize(("p", "label"), [(0.25, "p = 0.25"), (1e-9, "p < 0.001")])
def test_p_label(p, label):
    assert p_label(p) == label
