import subprocess
import sys

import numpy as np
import pytest

from rigor.maths.discount import Exponential, Hyperbolic, QuasiHyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean
from rigor.report.figures.discounts_and_utilities import discount_curves, utility_curves


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def line(axes, label):
    (found,) = [one for one in axes.lines if one.get_label() == label]
    return found


def test_discounts_and_their_factors():
    discounts = {"exponential": Exponential(0.9), "hyperbolic": Hyperbolic(0.5)}
    figure = discount_curves(discounts, 10)
    left, right = figure.axes
    t = np.arange(11)
    for axes, expected in ((left, 1 / (1 + 0.5 * t)), (right, (1 + 0.5 * t) / (1.5 + 0.5 * t))):
        drawn = line(axes, "hyperbolic")
        assert drawn.get_xdata() == pytest.approx(t)
        assert drawn.get_ydata() == pytest.approx(expected)
    # The legend is sorted by the last value: 0.9^10 = 0.35 is above 1/6.
    assert legend(figure) == ["exponential", "hyperbolic"]
    assert legend(discount_curves({"hyperbolic": Hyperbolic(0.5)} | discounts, 10)) == legend(
        figure
    )
    assert left.get_xlabel() == "t (agent steps)"


def test_a_low_first_factor_does_not_flatten_the_others():
    curves = {"quasi (a)": QuasiHyperbolic(0.7, 0.99), "hyperbolic": Hyperbolic(0.01)}
    right = discount_curves(curves, 100).axes[1]
    low, high = right.get_ylim()
    assert 0.98 < low < 0.99
    assert 1 < high < 1.01
    assert texts(right) == ["quasi starts at 0.693"]  # 0.7 · 0.99
    assert texts(discount_curves({"a": Exponential(0.5)}, 1).axes[1]) == [""]


def test_utilities():
    figure = utility_curves({"mean": Mean(), "cvar": CVaR(0.1), "entropic": Entropic(-1.0)})
    (axes,) = figure.axes
    x = line(axes, "mean").get_xdata()
    assert (x[0], x[-1], 0.0 in x) == (-2, 2, True)
    assert line(axes, "mean").get_ydata() == pytest.approx(x)
    assert line(axes, "cvar").get_ydata() == pytest.approx(np.minimum(x, 0) / 0.1)
    assert line(axes, "entropic").get_ydata() == pytest.approx(1 - np.exp(-x))
    # The values at −2 are −2, −20 and −6.39; the median sets the limit.
    assert axes.get_ylim() == pytest.approx((-1.15 * np.expm1(2), 2.3))
    assert legend(figure) == ["mean", "cvar", "entropic"]
    assert "slope 1" in texts(axes)[0]


def test_pyplot_is_not_imported():
    code = (
        "import sys; from rigor.maths.utility import Mean; "
        "from rigor.report.figures.discounts_and_utilities import utility_curves; "
        "utility_curves({'mean': Mean()}); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
