import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rigor.maths import objective
from rigor.maths.discount import Hyperbolic
from rigor.maths.horizons import Multi
from rigor.maths.utility import (
    DISCOUNT_LIMIT,
    CVaR,
    Entropic,
    Mean,
    MeanCVaR,
    MeanVariance,
    Utility,
)

ALL = [Mean(), CVaR(0.1), MeanCVaR(0.5, 0.1), Entropic(-1.0), MeanVariance(0.1)]


def random_batch(n_horizons: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    quantiles = torch.randn(6, 4, n_horizons, 8, generator=generator, dtype=torch.float64)
    weights = torch.rand(6, n_horizons, generator=generator, dtype=torch.float64)
    return quantiles, weights / weights.sum(1, keepdim=True)


def test_outcome_by_hand() -> None:
    # one state, one action, two horizons of two quantiles: .25·(1, 2) + .75·(4, 8)
    quantiles = torch.tensor([[[[1.0, 2.0], [4.0, 8.0]]]])
    z = objective.outcome(quantiles, torch.tensor([[0.25, 0.75]]))
    assert z.tolist() == [[[3.25, 6.5]]]


def test_outcome_of_one_horizon_is_that_horizon() -> None:
    quantiles, _ = random_batch(1)
    torch.testing.assert_close(objective.outcome(quantiles, torch.ones(6, 1)), quantiles[:, :, 0])


def test_mean_values_are_the_means_of_the_outcome() -> None:
    quantiles, weights = random_batch(5)
    torch.testing.assert_close(
        objective.mean_values(quantiles, weights), objective.outcome(quantiles, weights).mean(-1)
    )


def test_outcome_is_a_comonotone_coupling() -> None:
    # erratum E10: G_1 = (0 or 2), G_2 = 2 − G_1: half of each is 1 for sure, but quantile by
    # quantile it is 0 or 2; the mean agrees, CVaR does not
    quantiles = torch.tensor([[[[0.0, 2.0], [0.0, 2.0]]]], dtype=torch.float64)
    z = objective.outcome(quantiles, torch.tensor([[0.5, 0.5]]))[0, 0].numpy()
    assert Mean().direct(z) == 1.0
    assert CVaR(0.5).direct(z) == 0.0


@pytest.mark.parametrize("utility", ALL, ids=str)
def test_action_values_rank_as_the_papers_formula(utility: Utility) -> None:
    # Q = mean_j f(S + Σ_i w_i γ_i^t ξ_ij)/D, here at D of order 1 where it can be computed
    quantiles, weights = random_batch(3)
    discount = torch.linspace(0.4, 1.0, 6, dtype=torch.float64)
    stock = torch.tensor([-2.0, -1.0, -0.1, 0.1, 1.0, 2.0], dtype=torch.float64)
    mixture = weights * discount[:, None]
    totals = stock[:, None, None] + torch.einsum("bm,bamn->ban", mixture, quantiles)
    papers = utility.f(totals).mean(-1) / discount[:, None]
    values = objective.action_values(utility, quantiles, weights, discount, stock)
    assert values.dtype == torch.float64
    assert torch.equal(values.argsort(-1), papers.argsort(-1))
    if not isinstance(utility, Entropic):
        offset = 0.0 if isinstance(utility, Mean) else utility.f(stock) / discount
        if isinstance(utility, Mean):
            offset = stock / discount
        torch.testing.assert_close(values + offset[:, None], papers)


def test_mean_stays_in_the_precision_of_the_network() -> None:
    quantiles, weights = random_batch(3)
    values = objective.action_values(
        Mean(), quantiles.float(), weights.float(), torch.ones(6), torch.zeros(6)
    )
    assert values.dtype == torch.float32


@pytest.mark.parametrize("utility", ALL[1:], ids=str)
def test_float32_networks_are_ranked_in_float64(utility: Utility) -> None:
    quantiles, weights = random_batch(3)
    values = objective.action_values(
        utility, quantiles.float(), weights.float(), torch.ones(6), torch.zeros(6)
    )
    assert values.dtype == torch.float64


@pytest.mark.parametrize("utility", ALL, ids=str)
@pytest.mark.parametrize("discount", [DISCOUNT_LIMIT / 2, 1e-300, 0.0])
def test_below_the_mass_limit_the_choice_is_by_the_mean(utility: Utility, discount: float) -> None:
    quantiles, weights = random_batch(3)
    stock = torch.tensor([-1e3, -1.0, 0.0, 1e-320, 1.0, 1e3], dtype=torch.float64)
    values = objective.action_values(
        utility, quantiles, weights, torch.full((6,), discount, dtype=torch.float64), stock
    )
    torch.testing.assert_close(values, objective.mean_values(quantiles, weights))


def test_far_from_the_kink_an_action_is_not_lost() -> None:
    # in float32, 1000 + 1e-6·z is 1000 for all z; the ranking value still tells z = 1 from z = 2
    quantiles = torch.tensor([[[[1.0, 1.0]], [[2.0, 2.0]]]])
    discount = torch.tensor([1e-6], dtype=torch.float64)
    for utility in (MeanCVaR(0.5, 0.1), MeanVariance(1e-6), Entropic(-1e-3)):
        stock = torch.tensor([1000.0], dtype=torch.float64)
        values = objective.action_values(utility, quantiles, torch.ones(1, 1), discount, stock)
        assert values[0, 1] - values[0, 0] > 0.4


def test_one_horizon_equals_a_bundle_of_equal_ones() -> None:
    quantiles, _ = random_batch(1)
    discount, stock = torch.full((6,), 0.5).double(), torch.linspace(-1, 1, 6).double()
    for utility in ALL:
        single = objective.action_values(utility, quantiles, torch.ones(6, 1), discount, stock)
        copies = quantiles.expand(-1, -1, 4, -1)
        bundle = objective.action_values(utility, copies, torch.full((6, 4), 0.25), discount, stock)
        torch.testing.assert_close(single, bundle)


def test_greedy_takes_the_largest_value() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0], [0.0, -1.0, -2.0]])
    actions = objective.greedy(values, torch.zeros(2, 3))
    assert actions.dtype == torch.int64
    assert actions.tolist() == [1, 0]


def test_greedy_breaks_ties_by_the_mean_then_by_the_index() -> None:
    values = torch.tensor([[2.0, 2.0, 1.0], [2.0, 2.0, 1.0], [0.0, 5.0, 5.0]])
    means = torch.tensor([[0.0, 1.0, 9.0], [1.0, 1.0, 9.0], [7.0, 3.0, 3.0]])
    assert objective.greedy(values, means).tolist() == [1, 0, 1]


def test_greedy_with_a_flat_cvar_goes_by_the_mean() -> None:
    # a stock far above the kink: both actions have ranking value 0
    quantiles = torch.tensor([[[[1.0, 2.0]], [[1.0, 5.0]]]])
    weights, one = torch.ones(1, 1), torch.ones(1, dtype=torch.float64)
    values = objective.action_values(CVaR(0.1), quantiles, weights, one, 100.0 * one)
    assert values.tolist() == [[0.0, 0.0]]
    assert objective.greedy(values, objective.mean_values(quantiles, weights)).tolist() == [1]


def test_greedy_copes_with_minus_infinity() -> None:
    values = torch.full((1, 3), -torch.inf)
    assert objective.greedy(values, torch.tensor([[0.0, 2.0, 1.0]])).tolist() == [1]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_greedy_is_never_beaten(seed: int, n_actions: int) -> None:
    rng = np.random.default_rng(seed)
    values = torch.from_numpy(rng.integers(0, 3, size=(20, n_actions)).astype(np.float64))
    means = torch.from_numpy(rng.integers(0, 3, size=(20, n_actions)).astype(np.float64))
    actions = objective.greedy(values, means)
    for row, action in enumerate(actions.tolist()):
        key = [
            (float(v), float(m), -i)
            for i, (v, m) in enumerate(zip(values[row], means[row], strict=True))
        ]
        assert max(range(n_actions), key=key.__getitem__) == action


def test_late_in_an_atari_game_the_weights_and_the_choice_are_finite() -> None:
    # t = 27,000 agent steps, the 108,000-frame cap: d̃_t ≈ 1e-19
    bundle = Multi(10, 0.999, "lower").bundle(Hyperbolic(0.05))
    t = np.full(6, 27_000)
    quantiles = torch.randn(6, 4, 10, 8, generator=torch.Generator().manual_seed(1))
    weights, discount = (
        torch.from_numpy(bundle.normalised_weights(t)),
        torch.from_numpy(bundle.discount(t)),
    )
    assert 0.0 < float(discount[0]) < 1e-18
    for utility in ALL:
        stock = torch.linspace(-5, 5, 6, dtype=torch.float64)
        values = objective.action_values(utility, quantiles, weights, discount, stock)
        assert torch.isfinite(values).all()
