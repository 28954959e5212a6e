import pytest
import torch

from rigor.learning.compiled_loss import Pairs
from rigor.learning.fast_loss import fast_quantile_huber_loss, sum_over_pairs
from rigor.maths.quantile import Reduction, levels, quantile_huber_loss

REDUCTIONS: list[Reduction] = ["qr_dqn", "sum", "mean"]
KAPPAS = [0.0, 0.25, 1.0, float("inf")]


def crowded_case(n, n_targets, seed, dtype=torch.float64):
    """Predictions and targets on one coarse grid: errors of exactly 0, .25 and −.25 abound."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (
        torch.randint(-6, 7, (12, k), generator=generator, dtype=torch.float64) / 4 + 1000.0
        for k in (n, n_targets)
    )
    return x.to(dtype), y.to(dtype), torch.from_numpy(levels(n)).to(dtype)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (50, 200)])
def test_loss_and_gradient_are_those_of_the_formula(shape, kappa, reduction):
    x, y, tau = crowded_case(*shape, seed=1)
    y = y + 0.1 * torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
    found = []
    for loss_of in (quantile_huber_loss, fast_quantile_huber_loss):
        predictions = x.unflatten(0, (4, 3)).clone().requires_grad_()
        loss = loss_of(predictions, y.unflatten(0, (4, 3)), tau, kappa, reduction)
        loss.backward()
        found.append((loss.detach(), predictions.grad))
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-9)


def test_float32_keeps_its_precision_at_the_learners_size():
    generator = torch.Generator().manual_seed(0)
    predictions, targets = torch.randn(2, 32, 10, 50, generator=generator, dtype=torch.float64)
    tau = torch.from_numpy(levels(50))
    exact = quantile_huber_loss(predictions, targets, tau, 0.1, "qr_dqn")
    single = fast_quantile_huber_loss(
        predictions.float(), targets.float(), tau.float(), 0.1, "qr_dqn"
    )
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(exact.item(), rel=1e-5)


def test_targets_are_constants_and_the_layout_does_not_matter():
    torch.manual_seed(0)
    values, targets = torch.randn(3, 2, 5), torch.randn(3, 2, 7, requires_grad=True)
    gradients = []
    for view in (values.clone(), values.transpose(0, 1).contiguous().transpose(0, 1)):
        view.requires_grad_()
        tau = torch.tensor(levels(5), dtype=torch.float32)
        fast_quantile_huber_loss(view, targets, tau, 0.3, "qr_dqn").backward()
        gradients.append(view.grad)
    assert torch.equal(*gradients)
    assert targets.grad is None


@pytest.mark.parametrize("kappa", KAPPAS)
def test_what_is_compiled_gives_the_same(kappa):
    x, y, tau = crowded_case(20, 30, seed=4)
    there = sum_over_pairs(x, y, tau, kappa)
    for one, other in zip(Pairs(kappa)(x, y, tau), there, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-9)
