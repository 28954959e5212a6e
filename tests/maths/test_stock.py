import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rigor.maths import stock
from rigor.maths.discount import Exponential, Hyperbolic
from rigor.maths.horizons import Multi, Single


def test_next_stock_by_hand() -> None:
    # 1 + .5·4 = 3; a discount of 0 leaves the stock alone
    result = stock.next_stock(np.array([1.0, 1.0]), np.array([0.5, 0.0]), np.array([4.0, 4.0]))
    np.testing.assert_array_equal(result, [3.0, 1.0])
    tensors = (torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([4.0]))
    assert stock.next_stock(*tensors).tolist() == [3.0]


def test_the_recursion_is_the_papers_without_its_division() -> None:
    # C_{t+1} = (C_t + R_{t+1})/d̂_t
    bundle = Multi(10, 0.999, "midpoint").bundle(Hyperbolic(0.05))
    discount = bundle.discount(np.arange(31))
    rewards = np.random.default_rng(0).normal(size=30)
    c = 0.7
    total = discount[0] * c
    for t in range(30):
        c = (c + rewards[t]) / (discount[t + 1] / discount[t])
        total = stock.next_stock(total, discount[t], rewards[t])
        assert total == pytest.approx(discount[t + 1] * c, rel=1e-12)


def test_the_stock_survives_the_underflow_of_the_mass() -> None:
    # γ = .5: d_t is 0 from t = 1075 on, Σ d_t = 2
    discount = Single().bundle(Exponential(0.5)).discount(np.arange(2000))
    total = 0.0
    for m in discount:
        total = stock.next_stock(total, m, 1.0)
    assert total == pytest.approx(2.0)


@given(st.floats(-100, 100), st.floats(-100, 100), st.lists(st.floats(-9, 9), max_size=20))
def test_relabelling_equals_playing_the_same_rewards_again(
    initial: float, other: float, rewards: list[float]
) -> None:
    discount = Hyperbolic(0.05).factor(np.arange(20))
    first, again = initial, other
    for m, reward in zip(discount, rewards, strict=False):
        first, again = stock.next_stock(first, m, reward), stock.next_stock(again, m, reward)
    assert stock.relabel(first, initial, other) == pytest.approx(again, abs=1e-9)


def test_grid_has_201_points_20_apart() -> None:
    # erratum E23
    grid = stock.grid(-4000.0, 0.0, 201)
    assert grid.dtype == np.float64
    np.testing.assert_allclose(grid, -4000.0 + 20.0 * np.arange(201))
