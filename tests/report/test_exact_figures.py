import subprocess
import sys

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from PIL import Image

from rigor.errors import UserError
from rigor.maths.discount import Exponential, Hyperbolic, QuasiHyperbolic
from rigor.maths.utility import CVaR, Entropic, Mean
from rigor.report.exact_figures import (
    DPI,
    boundary_curve,
    discount_curves,
    exercise_boundary,
    outcome_law,
    policy_map,
    save,
    utility_curves,
)


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
    # 0.9^10 = 0.35 lies above 1/6, in the legend too
    assert legend(figure) == ["exponential", "hyperbolic"]
    assert legend(discount_curves({"hyperbolic": Hyperbolic(0.5)} | discounts, 10)) == legend(
        figure
    )
    assert left.get_xlabel() == "t (agent steps)"


def test_a_jump_at_the_start_does_not_flatten_the_factors():
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
    # at −2 they are −2, −20 and −6.39; the middle one sets the range
    assert axes.get_ylim() == pytest.approx((-1.15 * np.expm1(2), 2.3))
    assert legend(figure) == ["mean", "cvar", "entropic"]
    assert "slope 1" in texts(axes)[0]


# Three portfolios at wealth 50, 100, 200, 400; an early goal of cost 100 at t = 1, a late one of
# 150 at t = 2. At 50 the early goal is chosen but not affordable.
WEALTH = np.array([50.0, 100.0, 200.0, 400.0])
EARLY = np.array([[3, 4, 0, 5]])
LATE = np.array([[0, 0, 3, 3], [0, 0, 0, 3]])
ACTIONS = [np.array([[2, 1, 0, 0]]), EARLY, LATE]
OFFSETS = [np.zeros(1), np.zeros(1), np.array([0.0, 900.0])]
COSTS = {1: 100.0, 2: 150.0}


def drawn_policy(actions=ACTIONS, offsets=OFFSETS, limits=(10.0, 1000.0)):
    figure = policy_map(WEALTH, actions, offsets, 3, COSTS, 100.0, limits, "A policy")
    return figure, figure.axes[:-1]  # the last is the colour bar


def goals(axes):
    """Return t, lowest and highest wealth of every region in which a goal is taken."""
    return [
        (p.get_x() + 0.5, p.get_y(), p.get_y() + p.get_height())
        for p in axes.patches
        if isinstance(p, Rectangle)
    ]


def test_the_portfolio_of_every_wealth_and_time():
    figure, (first, second) = drawn_policy()
    numbers = first.collections[0].get_array()
    assert numbers[:, 0].tolist() == [3, 2, 1, 1]
    assert numbers[:, 1].tolist() == [1, 2, 1, 3]
    assert numbers.mask[:, 2].all()  # nothing is invested any more
    assert second.collections[0].get_array().mask.all()  # no second stock before t = 2
    assert figure._suptitle.get_text() == "A policy"
    assert first.get_title() == "nothing earned yet"
    assert second.get_title() == "early goal taken: 900 of discounted utility earned"
    assert first.get_yscale() == "log"
    assert first.get_xlim() == (-0.5, 2.5)
    assert figure.axes[-1].get_ylabel() == "portfolio number"


def test_where_a_goal_is_taken():
    _, (first, second) = drawn_policy()
    # edges lie in the middle on the log scale: 70.7, 141.4, 282.8, 565.7
    edge = 50 * 2 ** np.arange(-0.5, 4)
    assert np.array(goals(first)) == pytest.approx(
        np.array([(1, edge[1], edge[2]), (1, edge[3], edge[4]), (2, edge[2], edge[4])])
    )
    assert texts(first) == ["70.7", "283", "141"]
    assert np.array(goals(second)) == pytest.approx(np.array([(2, edge[3], edge[4])]))
    costs = [one.get_ydata()[0] for one in first.lines[:2]]
    assert costs == [100, 150]
    assert first.lines[2].get_ydata() == [100]  # initial wealth


def test_one_stock_is_one_panel():
    _, panels = drawn_policy([ACTIONS[0], EARLY, LATE[:1]], [np.zeros(1)] * 3)
    assert len(panels) == 1


def test_the_range_of_wealth_is_cut():
    _, (first, _) = drawn_policy(limits=(60.0, 300.0))
    assert first.get_ylim() == (100, 200)
    assert first.collections[0].get_array().shape == (2, 3)
    with pytest.raises(ValueError, match="no point of wealth"):
        drawn_policy(limits=(1.0, 2.0))


PRICES = np.array([80.0, 90.0, 95.0, 105.0])
EXERCISES = [np.array([row]) for row in ([0, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0])]


def test_the_boundary_is_the_highest_price_at_which_it_exercises():
    assert exercise_boundary(PRICES, EXERCISES) == pytest.approx(
        [np.nan, 90, 95, np.nan], nan_ok=True
    )


def test_the_boundary_over_time():
    figure = boundary_curve(PRICES, EXERCISES, 100.0, 98.0, 0.25)
    (axes,) = figure.axes
    drawn = line(axes, "highest price at which it exercises")
    assert drawn.get_xdata().tolist() == [0, 1, 2, 3]
    # at maturity whatever the table says
    assert drawn.get_ydata() == pytest.approx([np.nan, 90, 95, 100], nan_ok=True)
    assert line(axes, "strike 100").get_ydata() == [100, 100]
    assert line(axes, "start 98").get_ydata() == [98]
    # 90 to 100 and a quarter more at either end, which leaves out 80 and 105
    assert axes.get_ylim() == pytest.approx((87.5, 102.5))
    region = axes.collections[0].get_array()
    assert (~region.mask).tolist() == [[False, True, False, True], [False, False, True, True]]
    assert axes.get_xlabel() == "t (steps of 0.25 years)"
    assert legend(figure)[0] == "exercises"


def test_a_policy_that_never_exercises():
    (axes,) = boundary_curve(PRICES, [np.zeros((1, 4), int)] * 3, 100.0, 98.0, 0.5).axes
    assert texts(axes) == ["never exercises before maturity"]


def test_a_few_outcomes_are_stems():
    figure = outcome_law(
        np.array([0.0, 800.0, 1500.0]),
        np.array([0.05, 0.9, 0.05]),
        {"mean": 795.0, "objective": 795.0 + 1e-7, "−c₀*": 800.0},
        "utility",
    )
    (axes,) = figure.axes
    stems = axes.collections[0].get_segments()
    assert np.array([one[1] for one in stems]) == pytest.approx(
        np.array([(0, 0.05), (800, 0.9), (1500, 0.05)])
    )
    assert sorted(texts(axes)) == ["5 %", "5 %", "90 %"]
    assert legend(figure) == ["mean = objective = 795", "−c₀* = 800"]
    assert axes.get_xlabel() == "x = discounted return (utility)"


def test_the_only_outcome():
    (axes,) = outcome_law(np.array([5.0]), np.ones(1), {"mean": 5.0}).axes
    assert axes.get_xlim() == (4.5, 5.5)


def test_many_outcomes_are_a_histogram_and_a_distribution():
    returns = np.linspace(0, 100, 1001)
    probabilities = np.full(1001, 0.7 / 1000)
    probabilities[0] = 0.3
    figure = outcome_law(returns, probabilities, {"mean": 35.035}, "currency")
    upper, lower = figure.axes
    mass, edges, _ = upper.patches[0].get_data()
    assert (edges[0], edges[-1]) == pytest.approx((0, 100))
    assert mass.sum() == pytest.approx(0.7, abs=0.001)
    assert upper.collections[0].get_segments()[0][1].tolist() == [0, 0.3]
    assert texts(upper) == ["30 %"]
    x, y = lower.lines[0].get_data()
    assert (x[0], y[0], y[1], y[-1]) == pytest.approx((0, 0, 0.3, 1))
    assert legend(figure) == ["probability of a bin", "probability of one value", "mean = 35.03"]


def test_far_tails_are_left_out():
    returns = np.append(np.linspace(0, 10, 100), 1e6)
    probabilities = np.append(np.full(100, 0.01), 1e-12)
    upper, _ = outcome_law(returns, probabilities, {}).axes
    assert upper.get_xlim()[1] < 11


def test_both_files_are_the_same_every_time(tmp_path):
    names = []
    for place in ("a", "b/c"):
        png, svg = save(drawn_policy()[0], tmp_path / place, "policy")
        names.append((png.name, svg.name))
    assert names == [("policy.png", "policy.svg")] * 2
    for name in names[0]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b/c" / name).read_bytes()
    assert "<dc:date>" not in (tmp_path / "a/policy.svg").read_text()
    with Image.open(tmp_path / "a/policy.png") as image:
        assert image.size == (12 * DPI, 5.6 * DPI)


def test_an_unwritable_place_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    figure = outcome_law(np.array([5.0]), np.ones(1), {})
    with pytest.raises(UserError, match="not writable"):
        save(figure, tmp_path / "file", "outcomes")


def test_no_global_state_of_pyplot():
    code = (
        "import sys; from rigor.maths.utility import Mean; "
        "from rigor.report.exact_figures import utility_curves; utility_curves({'mean': Mean()}); "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
