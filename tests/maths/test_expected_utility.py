import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigor.maths.expected_utility import recursion, utility_bounds
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance, Utility

ALL = [Mean(), CVaR(0.1), MeanCVaR(0.5, 0.1), Entropic(-0.7), MeanVariance(0.1)]


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers, float)


def test_a_step_by_hand() -> None:
    # f = 2 min(x, 0). At S = −3 with 0 to 4 to come the utility ends between −6 and 0; a reward of
    # 2 leaves S = −1 with 0 to 2 to come, between −2 and 0: σ is (4 + 2 σ')/6
    found = recursion(CVaR(0.5), array(-3), (array(0), array(4)), array(-1), (array(0), array(2)))
    assert found.start == pytest.approx([2 / 3])
    assert found.slope == pytest.approx([1 / 3])
    assert found.undetermined.tolist() == [True]
    assert utility_bounds(CVaR(0.5), array(-3), 0.0, 4.0) == (array(-6), array(0))


def test_sigma_is_undefined_where_the_outcome_is_determined() -> None:
    # above the kink nothing that may come changes anything; nor does it where nothing may come
    stock, low, high = array(1, -3, 1e9), array(0, 0, 0), array(4, 0, 1e-3)
    found = recursion(CVaR(0.5), stock, (low, high), stock, (low, low))
    assert found.undetermined.tolist() == [False, False, False]
    assert not found.start.any()
    assert not found.slope.any()


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_the_unit_of_the_rewards_does_not_matter(unit: float) -> None:
    now, after = (array(0), array(4)), (array(0), array(2))
    expected = recursion(CVaR(0.5), array(-3), now, array(-1), after)
    now, after = ((unit * low, unit * high) for low, high in (now, after))
    found = recursion(CVaR(0.5), array(-3 * unit), now, array(-unit), after)
    assert found.undetermined.all()
    assert found.start == pytest.approx(expected.start)
    assert found.slope == pytest.approx(expected.slope)


def test_the_end_of_an_episode_determines_the_outcome() -> None:
    # the mean, a reward of 1 of 3 possible, then nothing: a third, whatever the network says
    zero = array(0)
    found = recursion(Mean(), zero, (zero, array(3)), array(1), (zero, zero))
    assert found.start == pytest.approx([1 / 3])
    assert found.slope == pytest.approx([0.0])


@pytest.mark.parametrize("utility", ALL, ids=str)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_recursion_ends_at_the_utility_of_the_total(utility: Utility, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 6
    low, high = -rng.random(n + 1), rng.random(n + 1)  # of single rewards
    rewards = rng.uniform(low[:n], high[:n])
    low[n] = high[n] = 0.0
    low, high = (np.cumsum(bound[::-1])[::-1] for bound in (low, high))  # of all that follow
    stock = rng.normal() + np.concatenate([[0.0], np.cumsum(rewards)])
    sigma = 0.123  # undefined at the end
    for t in reversed(range(n)):
        now, later = ((low[[k]], high[[k]]) for k in (t, t + 1))
        step = recursion(utility, stock[[t]], now, stock[[t + 1]], later)
        sigma = float(step.start[0] + step.slope[0] * sigma)
        assert -1e-9 <= sigma <= 1 + 1e-9
    least, most = utility_bounds(utility, stock[0], low[0], high[0])
    if most - least > 1e-6:
        assert least + (most - least) * sigma == pytest.approx(utility.f(stock[-1]), abs=1e-9)


@pytest.mark.parametrize("utility", [Mean(), Entropic(-0.7)], ids=str)
def test_without_a_stock_the_sigma_does_not_depend_on_it(utility: Utility) -> None:
    ahead, later = (array(0, 0), array(4, 4)), (array(0, 0), array(2, 2))
    found = recursion(utility, array(0, 5000), ahead, array(1, 5001), later)
    assert found.undetermined.all()  # however little e^{−3500} weighs
    assert found.start[0] == pytest.approx(found.start[1])
    assert found.slope[0] == pytest.approx(found.slope[1])
