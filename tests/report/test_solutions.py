import numpy as np
import pytest
from matplotlib.patches import Rectangle

from rigor.report.solutions import boundary_curve, exercise_boundary, policy_map


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def line(axes, label):
    (found,) = [one for one in axes.lines if one.get_label() == label]
    return found


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
