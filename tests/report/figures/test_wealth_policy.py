import numpy as np
import pytest
from matplotlib.patches import Rectangle

from rigor.report.figures.wealth_policy import policy_map


def texts(axes):
    return [text.get_text() for text in axes.texts]


# Three portfolios at wealth 50, 100, 200 and 400; an early goal of cost 100 at t = 1 and a late
# goal of cost 150 at t = 2. At wealth 50 the early goal is chosen but not affordable.
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
    assert numbers.mask[:, 2].all()  # nothing is invested at the end
    assert second.collections[0].get_array().mask.all()  # no second stock before t = 2
    assert figure._suptitle.get_text() == "A policy"
    assert first.get_title() == "nothing earned yet"
    assert second.get_title() == "early goal taken: 900 of discounted utility earned"
    assert first.get_yscale() == "log"
    assert first.get_xlim() == (-0.5, 2.5)
    assert figure.axes[-1].get_ylabel() == "portfolio number"


def test_the_wealth_at_which_a_goal_is_taken():
    _, (first, second) = drawn_policy()
    # The edges are midway on the log scale: 70.7, 141.4, 282.8, 565.7.
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


def test_the_axis_of_wealth_has_limits():
    _, (first, _) = drawn_policy(limits=(60.0, 300.0))
    assert first.get_ylim() == (100, 200)
    assert first.collections[0].get_array().shape == (2, 3)
    with pytest.raises(ValueError, match="no grid point of wealth"):
        drawn_policy(limits=(1.0, 2.0))
