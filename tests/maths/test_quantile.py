import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rigor.maths.quantile import Reduction, levels, quantile_huber_loss

REDUCTIONS: list[Reduction] = ["qr_dqn", "sum", "mean"]
KAPPAS = [0.0, 0.3, 1.0]


def plain_loss(
    predictions: torch.Tensor, targets: torch.Tensor, kappa: float, reduction: str
) -> float:
    """Return the loss by loops over samples, horizons, levels and targets."""
    batch, n_horizons, n = predictions.shape
    total = 0.0
    for b in range(batch):
        for i in range(n_horizons):
            for j in range(n):
                for y in targets[b, i].tolist():
                    u = y - float(predictions[b, i, j])
                    size = abs(u)
                    huber = u * u / 2 if size <= kappa else kappa * (size - kappa / 2)
                    if kappa == 0.0:
                        huber = size
                    total += abs((2 * j + 1) / (2 * n) - (u < 0)) * huber
    n_targets = targets.shape[-1]
    divisor = {
        "qr_dqn": batch * n_horizons * n_targets,
        "sum": batch,
        "mean": batch * n * n_targets,
    }
    return total / divisor[reduction]


def random_case(
    shape: tuple[int, int, int] = (2, 3, 4), n_targets: int = 5, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predictions = torch.randn(*shape, generator=generator, dtype=torch.float64)
    targets = torch.randn(*shape[:2], n_targets, generator=generator, dtype=torch.float64)
    return predictions.requires_grad_(), targets, torch.from_numpy(levels(shape[2]))


def test_levels_are_midpoints() -> None:
    np.testing.assert_allclose(levels(4), [0.125, 0.375, 0.625, 0.875])
    assert levels(1).tolist() == [0.5]


def test_loss_by_hand() -> None:
    # one prediction 0 at τ = .5, targets 3 and −.2, κ = 1: .5·(1·(3 − ½)) + .5·½·.04 = 1.26
    loss = [
        quantile_huber_loss(
            torch.zeros(1, 1, 1), torch.tensor([[[3.0, -0.2]]]), torch.tensor([0.5]), 1.0, reduction
        ).item()
        for reduction in REDUCTIONS
    ]
    assert loss == pytest.approx([0.63, 1.26, 0.63])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_loss_equals_plain_loops(kappa: float, reduction: Reduction) -> None:
    predictions, targets, tau = random_case()
    loss = quantile_huber_loss(predictions, targets, tau, kappa, reduction)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(
        plain_loss(predictions.detach(), targets, kappa, reduction), rel=1e-12
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_gradient_is_that_of_the_value(kappa: float, reduction: Reduction) -> None:
    predictions, targets, tau = random_case()
    assert torch.autograd.gradcheck(
        lambda x: quantile_huber_loss(x, targets, tau, kappa, reduction), (predictions,)
    )


@pytest.mark.parametrize("kappa", KAPPAS)
def test_gradient_equals_autograd_through_the_formula(kappa: float) -> None:
    predictions, targets, tau = random_case(seed=3)
    u = targets[:, :, None, :] - predictions[..., None]
    huber = (
        u.abs()
        if kappa == 0.0
        else torch.nn.functional.huber_loss(u, torch.zeros_like(u), reduction="none", delta=kappa)
    )
    weight = (tau[:, None] - (u.detach() < 0).double()).abs()
    formula = (weight * huber).mean(-1).sum(-1).mean()
    loss = quantile_huber_loss(predictions, targets, tau, kappa, "qr_dqn")
    torch.testing.assert_close(loss, formula)
    expected = torch.autograd.grad(formula, predictions)[0]
    torch.testing.assert_close(torch.autograd.grad(loss, predictions)[0], expected)


def test_reductions_differ_by_known_factors() -> None:
    # erratum E20: sum = B-mean of everything; qr_dqn divides by M N', mean by N N'
    predictions, targets, tau = random_case((2, 3, 4), 5)
    qr_dqn, total, mean = (
        quantile_huber_loss(predictions, targets, tau, 0.3, reduction).item()
        for reduction in REDUCTIONS
    )
    assert total / qr_dqn == pytest.approx(3 * 5)
    assert total / mean == pytest.approx(4 * 5)


def test_the_threshold_is_not_divided_by_kappa() -> None:
    # erratum E21: far away the slope is κ, not 1
    predictions, targets = torch.zeros(1, 1, 1), torch.tensor([[[100.0]]])
    for kappa in (0.1, 1.0):
        loss = quantile_huber_loss(predictions, targets, torch.tensor([0.5]), kappa, "sum")
        assert loss.item() == pytest.approx(0.5 * kappa * (100.0 - kappa / 2))


def test_an_exact_prediction_costs_nothing() -> None:
    for kappa in KAPPAS:
        predictions = torch.full((1, 2, 3), 7.0, requires_grad=True)
        tau = torch.from_numpy(levels(3)).float()
        loss = quantile_huber_loss(predictions, torch.full((1, 2, 3), 7.0), tau, kappa, "sum")
        loss.backward()
        assert loss.item() == 0.0
        assert predictions.grad is not None
        assert not predictions.grad.any()


def test_targets_are_constants() -> None:
    predictions, targets, tau = random_case()
    targets.requires_grad_()
    quantile_huber_loss(predictions, targets, tau, 0.3, "sum").backward()
    assert targets.grad is None


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(AssertionError):
        quantile_huber_loss(torch.ones(2, 1, 3), torch.ones(2, 2, 3), torch.ones(3), 1.0, "sum")


def test_descent_finds_the_quantiles() -> None:
    # κ = 0, targets 0, 1, ..., 99: the minimiser at τ_j is the τ_j-quantile of the targets
    targets = torch.arange(100.0)[None, None]
    tau = torch.from_numpy(levels(4)).float()
    predictions = torch.full((1, 1, 4), 50.0, requires_grad=True)
    optimiser = torch.optim.SGD([predictions], lr=50.0)
    for _ in range(60):
        optimiser.zero_grad()
        quantile_huber_loss(predictions, targets, tau, 0.0, "qr_dqn").backward()
        optimiser.step()
    torch.testing.assert_close(
        predictions.detach().flatten(), torch.tensor([12.0, 37.0, 62.0, 87.0]), atol=1.0, rtol=0
    )


def test_float32_keeps_its_precision_at_the_learners_size() -> None:
    predictions, targets, tau = random_case((32, 10, 50), 50)
    exact = quantile_huber_loss(predictions, targets, tau, 0.1, "qr_dqn")
    single = quantile_huber_loss(predictions.float(), targets.float(), tau.float(), 0.1, "qr_dqn")
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(exact.item(), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(KAPPAS), st.sampled_from(REDUCTIONS))
def test_loss_is_non_negative_and_symmetric(seed: int, kappa: float, reduction: Reduction) -> None:
    # turning every number round turns the levels round
    predictions, targets, tau = random_case(seed=seed)
    loss = quantile_huber_loss(predictions, targets, tau, kappa, reduction).item()
    mirrored = quantile_huber_loss(
        -predictions.flip(-1), -targets, (1 - tau).flip(-1), kappa, reduction
    ).item()
    assert loss >= 0.0
    assert math.isclose(loss, mirrored, rel_tol=1e-12)
