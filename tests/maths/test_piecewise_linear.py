import numpy as np

from rigor.maths.piecewise_linear import piecewise_linear, piecewise_linear_value, ratio


def test_the_slopes_apply_above_and_below_0() -> None:
    x = np.array([-2.0, 0.0, 3.0])
    np.testing.assert_array_equal(piecewise_linear(x, gain=0.5, loss=4.0), [-8.0, 0.0, 1.5])


def test_ratio_by_hand() -> None:
    stock, discount = np.array([0.0, 1.0, -1.0, 3.0]), np.array([0.0, 0.0, 0.0, 2.0])
    np.testing.assert_array_equal(ratio(stock, discount), [0.0, np.inf, -np.inf, 1.5])


def test_the_value_is_the_mean_difference_of_f() -> None:
    # C = S/D = −2: f(−2 + z) − f(−2) with f = x above and 3x below: z = 1 gives 3, z = 4 gives 8
    z = np.array([[[1.0, 4.0]]])
    value = piecewise_linear_value(np.array([-1.0]), np.array([0.5]), z, gain=1.0, loss=3.0)
    assert value.tolist() == [[5.5]]
    # C = 2: z = 1 gives 1, z = −4 gives −2 − 6 = −8
    z = np.array([[[1.0, -4.0]]])
    value = piecewise_linear_value(np.array([1.0]), np.array([0.5]), z, gain=1.0, loss=3.0)
    assert value.tolist() == [[-3.5]]


def test_the_value_is_exact_far_from_the_kink() -> None:
    # 1e20 + .1 = 1e20 in float64, but the difference of f is .1 times the slope
    z = np.full((2, 1, 1), 0.1)
    stock = np.array([1e20, -1e20])
    value = piecewise_linear_value(stock, np.ones(2), z, gain=1.0, loss=3.0)
    np.testing.assert_allclose(value[:, 0], [0.1, 0.3])
