import numpy as np
import pytest

from rigor.report.figures.exercise_boundary import boundary_figure, exercise_boundary


def line(axes, label):
    (found,) = [drawn for drawn in axes.lines if drawn.get_label() == label]
    return found


PRICES = np.array([80.0, 90.0, 95.0, 105.0])
EXERCISES = [np.array([row]) for row in ([0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0])]


def test_the_boundary_is_the_highest_price_at_which_it_exercises():
    assert exercise_boundary(PRICES, EXERCISES) == pytest.approx(
        [np.nan, 90, 95, np.nan], nan_ok=True
    )


def test_the_boundary_over_time():
    figure = boundary_figure(PRICES, EXERCISES, 100.0, 98.0, 0.25)
    (axes,) = figure.axes
    drawn = line(axes, "highest price at which it exercises")
    assert drawn.get_xdata().tolist() == [0, 1, 2, 3]
    # At maturity the boundary is the strike, whatever the actions.
    assert drawn.get_ydata() == pytest.approx([np.nan, 90, 95, 100], nan_ok=True)
    assert line(axes, "strike 100").get_ydata() == [100, 100]
    assert line(axes, "start 98").get_ydata() == [98]
    # The limits are 90 and 100 with a quarter more at each end, without 80 and 105.
    assert axes.get_ylim() == pytest.approx((87.5, 102.5))
    region = axes.collections[0].get_array()
    assert (~region.mask).tolist() == [[False, True, False, True], [False, False, True, True]]
    assert axes.get_xlabel() == "t (steps of 0.25 years)"
    assert figure.legends[0].get_texts()[0].get_text() == "exercises"


def test_a_policy_that_never_exercises():
    (axes,) = boundary_figure(PRICES, [np.zeros((1, 4), int)] * 3, 100.0, 98.0, 0.5).axes
    assert [text.get_text() for text in axes.texts] == ["never exercises before maturity"]
