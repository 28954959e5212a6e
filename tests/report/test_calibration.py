import numpy as np
import pytest

from rigor.report.calibration import (
    MOST_ATOMS,
    Calibration,
    Laws,
    calibrate,
    calibration_picture,
    chance,
)

LEVELS = (2 * np.arange(1, 51) - 1) / 100


def normal(n_games, rng, spread=1.0):
    """Laws of games that start in states of different worth, and returns of that spread."""
    from scipy import stats

    worth = rng.normal(0.0, 3.0, n_games)
    quantiles = worth[:, None] + stats.norm.ppf(LEVELS)
    return Laws.of_quantiles(quantiles), worth + spread * rng.standard_normal(n_games)


def test_laws_by_hand():
    laws = Laws.of_quantiles(np.array([[3.0, 1.0], [0.0, 0.0]]))
    assert laws.values.tolist() == [[1.0, 3.0], [0.0, 0.0]]
    assert laws.means(2).tolist() == [2.0, 0.0]
    values, counts = np.unique(laws.pooled(), return_counts=True)
    assert values.tolist() == [0.0, 1.0, 3.0]
    assert (counts / MOST_ATOMS).tolist() == [0.5, 0.25, 0.25]
    shared = Laws(np.array([[0.0, 10.0]]), np.array([0.9, 0.1]))
    assert shared.means(3).tolist() == [1.0, 1.0, 1.0]
    assert shared.of_game(2).tolist() == [0.0, 10.0]


def test_wasserstein_by_hand():
    # every return 2 above a point
    found = calibrate(Laws(np.array([[5.0]]), np.ones(1)), np.full(4, 7.0), 0)
    assert (found.predicted_mean, found.realised_mean, found.wasserstein) == (5.0, 7.0, 2.0)
    assert found.wasserstein_95 == 0.0
    assert found.pit.tolist() == [1.0] * 4
    assert found.ks == 1.0
    # half of the mass at 0 and half at 10, a quarter of the games at 10: 2.5 a game
    laws = Laws(np.array([[0.0, 10.0]]), np.full(2, 0.5))
    found = calibrate(laws, np.array([0.0, 0.0, 0.0, 10.0]), 0)
    assert found.wasserstein == pytest.approx(2.5)


def test_place_of_a_return_in_its_own_law():
    # ten quantiles 0 ... 9, far coarser than the resolution of a hundredth of the range
    laws = Laws.of_quantiles(np.arange(10.0)[None])
    found = calibrate(laws, np.array([-1.0, 2.5, 9.5]), 0)
    np.testing.assert_allclose(found.pit, [0.0, 0.3, 1.0])
    # on an atom: anywhere within its mass
    places = calibrate(laws, np.full(200, 4.0), 0).pit
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
    laws, returns = normal(400, rng)
    biased = calibrate(laws, returns + 1.0, seed=1)
    assert biased.wasserstein == pytest.approx(1.0, abs=0.3)
    assert biased.wasserstein > biased.wasserstein_95
    assert biased.ks_p < 0.001


def test_atoms_a_network_says_about_right_do_not_alarm():
    """Returns are 0 or 1000, and the quantiles stand within 1 of them."""
    rng = np.random.default_rng(0)
    quantiles = np.repeat([0.0, 1000.0], 25) + rng.normal(0.0, 1.0, 50)
    returns = 1000.0 * (rng.random(200) < 0.5)
    found = calibrate(Laws.of_quantiles(quantiles[None]), returns, 2)
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
    laws, returns = normal(20, np.random.default_rng(0))
    one, same, other = (calibrate(laws, returns, seed) for seed in (5, 5, 6))
    assert one.numbers() == same.numbers()
    assert one.pit.tolist() == same.pit.tolist() != other.pit.tolist()


def test_picture_shows_both_laws_and_the_numbers():
    found: Calibration = calibrate(*normal(50, np.random.default_rng(0)), seed=1)
    figure = calibration_picture(found, "reward", "Calibration of x")
    laws, quantiles, places = figure.axes
    assert f"{found.wasserstein:.4g}" in laws.get_title()
    assert len(quantiles.lines[1].get_xdata()) == 50
    assert sum(bar.get_height() for bar in places.patches[-10:]) == pytest.approx(1.0)
    assert f"KS {found.ks:.2g}" in places.get_title()


@pytest.mark.parametrize(("p", "label"), [(0.25, "p = 0.25"), (1e-9, "p < 0.001")])
def test_chance(p, label):
    assert chance(p) == label
