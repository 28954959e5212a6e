"""Quantile levels and the quantile (Huber) regression loss (equations loss_single, loss_multi)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Reduction = Literal["qr_dqn", "sum", "mean"]


# Elements of one block of pairwise errors. On a CPU blocks that fit the cache are three times
# faster than one of tens of megabytes, whose pages the system hands out anew at every update.
_BLOCK = 160_000


def levels(n: int) -> np.ndarray:
    """Return the midpoint levels τ_j = (2j − 1)/2n, j = 1 ... n, float64 [N]."""
    return (2.0 * np.arange(1, n + 1) - 1.0) / (2.0 * n)


def quantile_huber_loss(
    predictions: "torch.Tensor",
    targets: "torch.Tensor",
    levels: "torch.Tensor",
    kappa: float,
    reduction: Reduction,
) -> "torch.Tensor":
    """Return the loss Σ |τ_j − 1{u < 0}| L_κ(u), u = target_l − prediction_j, reduced to a scalar.

    L_κ(u) = ½u² for |u| <= κ, else κ(|u| − ½κ), not divided by κ (erratum E21); L_0(u) = |u|. The
    reductions of the paper's two equations differ (erratum E20); all average over the batch:

      qr_dqn   mean over targets, sum over levels, mean over horizons (as released)
      sum      sum over targets, levels and horizons (equation loss_single)
      mean     mean over targets and levels, sum over horizons (equation loss_multi)

    Args:
      predictions: ξ_ij of the action taken, [B, M, N].
      targets: y_il, [B, M, N'], taken as constants.
      levels: τ_j, [N], of the predictions.
      kappa: the Huber threshold κ >= 0, in learned reward units.
      reduction: how the [B, M, N, N'] terms become one number.
    """
    import torch

    batch, n_horizons, n_levels = predictions.shape
    n_targets = targets.shape[-1]
    scale = {
        "qr_dqn": 1.0 / (batch * n_horizons * n_targets),
        "sum": 1.0 / batch,
        "mean": 1.0 / (batch * n_levels * n_targets),
    }[reduction]
    total = predictions.new_zeros(())
    # contiguous, or the blocks below would be copies of it
    gradient = torch.empty_like(predictions, memory_format=torch.contiguous_format)  # [B, M, N]
    with torch.no_grad():
        leaks = (1.0 - levels) / levels
        for x, y, slope_sums in _in_cache(predictions, targets, gradient):
            errors = y.unsqueeze(-2) - x.unsqueeze(-1)  # u, [rows, N, N']
            slopes = errors.clamp(-kappa, kappa) if kappa > 0.0 else errors.sign()
            # |τ − 1{u < 0}|·slope is τ times a leaky rectifier: two passes instead of three
            weighted = torch.prelu(slopes, leaks).mul_(levels[:, None])
            torch.sum(weighted, -1, out=slope_sums)
            errors.sub_(slopes, alpha=0.5 if kappa > 0.0 else 0.0)  # L_κ(u) = slope·(u − ½ slope)
            total += torch.dot(weighted.flatten(), errors.flatten())
        gradient *= -scale
    # Autograd would keep four tensors of [B, M, N, N'] for a gradient known in closed form: the
    # second term is zero and carries it.
    carrier = torch.dot((predictions - predictions.detach()).flatten(), gradient.flatten())
    return scale * total + carrier


def _in_cache(
    predictions: "torch.Tensor", targets: "torch.Tensor", gradient: "torch.Tensor"
) -> "Iterator[tuple[torch.Tensor, ...]]":
    """Split predictions, targets and gradient into rows [rows, N]; one block of all on a GPU."""
    n_rows = predictions.shape[0] * predictions.shape[1]
    rows = max(1, _BLOCK // (predictions.shape[2] * targets.shape[2]))
    rows = rows if predictions.device.type == "cpu" else n_rows
    flat = [tensor.flatten(0, 1).split(rows) for tensor in (predictions, targets, gradient)]
    return zip(*flat, strict=True)
