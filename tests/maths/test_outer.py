import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rigor.maths.outer import Outer, best, objective, refined
from rigor.maths.stock import grid
from rigor.maths.utility import CVaR, Entropic, Mean, MeanCVaR, MeanVariance, Utility


def initial_stock(utility, candidates, outcomes):
    return best(candidates.double(), objective(utility, candidates, outcomes))


def at_every_candidate(candidates: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return the same outcomes [K, A, N] at every candidate, [G, K, A, N]."""
    return z.expand(len(candidates), *z.shape)


def test_one_action_gives_the_risk_measure() -> None:
    # z = 1 ... 10 equally likely: CVaR_.2 = 1.5 at c = −2 or −3 (any .2-quantile), nearest 0: −2
    candidates = torch.from_numpy(grid(-10.0, 0.0, 11))
    z = torch.arange(1.0, 11.0)[None, None]
    result = initial_stock(CVaR(0.2), candidates, at_every_candidate(candidates, z))
    assert result.c0 == -2.0
    assert result.value == pytest.approx(1.5)
    assert not result.on_edge


def test_each_candidate_has_its_own_best_action() -> None:
    # a safe 1 against 0 or 3: the mean prefers the second, CVaR_.5 the first
    candidates = torch.from_numpy(grid(-3.0, 3.0, 61))
    z = torch.tensor([[[1.0, 1.0], [0.0, 3.0]]])
    assert initial_stock(
        Mean(), candidates, at_every_candidate(candidates, z)
    ).value == pytest.approx(1.5)
    cautious = initial_stock(CVaR(0.5), candidates, at_every_candidate(candidates, z))
    assert cautious.value == pytest.approx(1.0)
    assert cautious.c0 == pytest.approx(-1.0)


def test_outcomes_may_depend_on_the_candidate() -> None:
    # τ = 1: J(c) = −c + min(c + z_c, 0) = −5, −5, −1 as c + z_c < 0 throughout
    candidates = torch.tensor([-2.0, -1.0, 0.0])
    z = torch.tensor([-5.0, -5.0, -1.0])[:, None, None, None]
    assert initial_stock(CVaR(1.0), candidates, z)[:2] == (0.0, -1.0)


def test_initial_states_are_averaged() -> None:
    # one c₀ for the outcomes 0 and 4, τ = 1: J(c) = −c + mean min(c + z, 0) is 2 for c <= −4
    candidates = torch.from_numpy(grid(-6.0, 0.0, 7))
    z = torch.tensor([[[0.0]], [[4.0]]])
    result = initial_stock(CVaR(1.0), candidates, at_every_candidate(candidates, z))
    assert result.c0 == -4.0
    assert result.value == pytest.approx(2.0)


def test_ties_go_to_the_stock_nearest_0() -> None:
    # erratum E5: J of the mean is constant
    for low, high, expected in ((-4.0, 4.0, 0.0), (-4.0, -1.0, -1.0), (2.0, 5.0, 2.0)):
        candidates = torch.from_numpy(grid(low, high, 9))
        result = initial_stock(
            Mean(), candidates, at_every_candidate(candidates, torch.rand(3, 2, 4))
        )
        assert result.c0 == expected
    candidates = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    assert initial_stock(Mean(), candidates, torch.ones(4, 1, 1, 1)).c0 == -1.0


def test_rounding_does_not_break_a_tie() -> None:
    # thirds are inexact: J on the plateau differs in its last digits only
    candidates = torch.from_numpy(grid(-1000.0 / 3.0, 1000.0 / 3.0, 201))
    z = torch.rand(5, 3, 7, generator=torch.Generator().manual_seed(0))
    assert initial_stock(Mean(), candidates, at_every_candidate(candidates, z)).c0 == 0.0


@pytest.mark.parametrize("unit", [1e-12, 1e-8, 1.0, 1e8])
def test_the_unit_of_the_rewards_does_not_matter(unit: float) -> None:
    z = torch.rand(5, 3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    candidates = torch.from_numpy(grid(-1.0, 1.0, 201))
    result = initial_stock(CVaR(0.3), candidates, at_every_candidate(candidates, z))
    scaled = initial_stock(CVaR(0.3), unit * candidates, at_every_candidate(candidates, unit * z))
    assert scaled.c0 / unit == pytest.approx(result.c0)
    assert scaled.value / unit == pytest.approx(result.value)


def test_an_optimum_on_the_edge_is_flagged() -> None:
    z = torch.arange(1.0, 11.0)[None, None]
    for low, high, c0, on_edge in ((-1.0, 0.0, -1.0, True), (-9.0, -3.0, -3.0, True),
                                   (-9.0, 0.0, -2.0, False)):  # fmt: skip
        candidates = torch.from_numpy(grid(low, high, int(high - low) + 1))
        result = initial_stock(CVaR(0.2), candidates, at_every_candidate(candidates, z))
        assert (result.c0, result.on_edge) == (c0, on_edge)


def test_overflowing_candidates_are_ignored() -> None:
    candidates = torch.tensor([-1e4, -1.0, 0.0])
    result = initial_stock(Entropic(-1.0), candidates, torch.ones(3, 1, 1, 2))
    assert (result.c0, result.value) == (-1.0, pytest.approx(1.0))


def test_disagreeing_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="disagree"):
        initial_stock(Mean(), torch.zeros(3), torch.zeros(2, 1, 1, 1))


@pytest.mark.parametrize(
    "utility", [CVaR(0.3), MeanCVaR(0.5, 0.1), Entropic(-0.5), MeanVariance(0.2)], ids=str
)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_a_fine_grid_comes_near_the_exact_optimum(utility: Utility, seed: int) -> None:
    z = np.random.default_rng(seed).uniform(-2.0, 2.0, size=(1, 3, 6))
    candidates = torch.from_numpy(grid(-6.0, 6.0, 601))
    result = initial_stock(utility, candidates, at_every_candidate(candidates, torch.from_numpy(z)))
    exact = max(utility.oce(outcomes)[0] for outcomes in z[0])
    assert exact - 0.06 <= result.value <= exact + 1e-9
    assert not result.on_edge


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": 1}, r"outer.points=1: "),
        ({"every": 0}, r"outer.every=0: "),
        ({"batch": 0}, r"outer.batch=0: "),
        ({"relabel": 1.5}, r"outer.relabel=1.5: "),
        ({"rollouts": -1}, r"outer.rollouts=-1: "),
        ({"low": 1.0, "high": 1.0}, r"outer.low=1.0 must lie below outer.high=1.0"),
    ],
)
def test_values_out_of_range_are_refused_with_their_key(
    change: dict[str, float], message: str
) -> None:
    ends = {"low": None, "high": None}
    good = {"points": 3, "every": 1, "batch": 1, "relabel": 0.5, "rollouts": 0, **ends}
    assert Outer(**good).low is None
    with pytest.raises(ValueError, match=message):
        Outer(**{**good, **change})


def test_outer_is_a_schema() -> None:
    values = {"points": 201, "every": 9, "low": -4000, "high": None, "batch": 2, "relabel": 0}
    values["rollouts"] = 5
    merged = OmegaConf.merge(OmegaConf.structured(Outer), values)
    assert OmegaConf.to_object(merged) == Outer(201, 9, -4000.0, None, 2, 0.0, 5)


def test_refined_stocks_are_the_best_for_the_returns_of_each_policy():
    # at c = −30 the risky {60, 20} is worth more than the sure 26, at −60 less
    z = torch.tensor([[[[60.0, 20.0], [26.0, 26.0]]]])
    candidates = torch.tensor([-60.0, -30.0, 0.0])
    outcomes = at_every_candidate(candidates, z[0])
    risky = CVaR(0.5).f(candidates[:, None] + z[0, 0, 0]).mean(1)
    sure = CVaR(0.5).f(candidates[:, None] + z[0, 0, 1]).mean(1)
    assert (risky - sure).tolist() == [28.0, -2.0, 0.0]
    assert refined(CVaR(0.5), outcomes, candidates).tolist() == [-20.0, -26.0, -20.0]
