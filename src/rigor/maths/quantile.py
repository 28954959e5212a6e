"""Quantile levels and the quantile Huber loss (equations loss_single, loss_multi)."""

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Reduction = Literal["qr_dqn", "sum", "mean"]


def levels(n: int) -> np.ndarray:
    """Return the midpoint levels τ_j = (2j − 1)/2n, j = 1 ... n, float64 [N]."""
    return (2.0 * np.arange(1, n + 1) - 1.0) / (2.0 * n)


def quantile_huber_loss(
    predictions: "Tensor", targets: "Tensor", levels: "Tensor", kappa: float, reduction: Reduction
) -> "Tensor":
    """Return the loss Σ |τ_j − 1{u < 0}| L_κ(u), u = target_l − prediction_j, as a scalar.

    L_κ(u) = ½u² for |u| <= κ and κ(|u| − ½κ) beyond, not divided by κ (erratum E21). L_0(u) = |u|.
    L_∞(u) = ½u², under which the one quantile of level ½ is the mean. See `reduction_scale` for
    the weights of the terms.

    Args:
      predictions: ξ_ij of the selected action, [B, M, N].
      targets: y_il, [B, M, N'], constants.
      levels: τ_j, [N], of the predictions.
      kappa: the Huber threshold κ >= 0, in scaled reward units.
      reduction: how the [B, M, N, N'] terms become one number.
    """
    scale = reduction_scale(predictions, targets, reduction)
    u = targets.detach().unsqueeze(-2) - predictions.unsqueeze(-1)  # [B, M, N, N']
    weights = (levels[:, None] - (u < 0).to(u.dtype)).abs()
    slope = u.clamp(-kappa, kappa)  # of L_κ
    huber = slope * (u - 0.5 * slope) if kappa > 0.0 else u.abs()
    return scale * (weights * huber).sum()


def reduction_scale(predictions: "Tensor", targets: "Tensor", reduction: Reduction) -> float:
    """Return the weight of each of the B · M · N · N' terms of the loss.

    The reductions of the paper's two equations differ (erratum E20); all average over the batch:

      qr_dqn   mean over targets, sum over levels, mean over horizons (as released)
      sum      sum over targets, levels and horizons (equation loss_single)
      mean     mean over targets and levels, sum over horizons (equation loss_multi)

    Args:
      predictions: [B, M, N].
      targets: [B, M, N'].
      reduction: one of the three names.
    """
    batch, n_horizons, n_levels = predictions.shape
    assert targets.shape[:2] == (batch, n_horizons), (predictions.shape, targets.shape)
    n_targets = targets.shape[2]
    return {
        "qr_dqn": 1.0 / (batch * n_horizons * n_targets),
        "sum": 1.0 / batch,
        "mean": 1.0 / (batch * n_levels * n_targets),
    }[reduction]
