"""A fast form of `rigor.maths.quantile.quantile_huber_loss`, with the same numbers up to rounding.

The loss is computed together with its gradient in closed form, so autograd does not keep every
pair of a prediction and a target. Two kernels sum over the pairs: eager blocks that fit the cache,
and the same pairs compiled into one loop, by `rigor.learning.compiled_loss`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rigor.maths.quantile import Reduction, reduction_scale

SumOverPairs = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""A kernel; see `sum_over_pairs`."""

# Elements of one block of pairs. On a CPU blocks that fit the cache are three times faster than one
# of tens of megabytes, whose pages the system maps anew at every update.
_BLOCK = 160_000


def fast_quantile_huber_loss(
    predictions: Tensor,
    targets: Tensor,
    levels: Tensor,
    kappa: float,
    reduction: Reduction,
    kernel: SumOverPairs | None = None,
) -> Tensor:
    """Return the loss; see `quantile_huber_loss` for the formula and the other arguments.

    Args:
      kernel: `sum_over_pairs` (None), or one of `compiled_sum_over_pairs`.
    """
    scale = reduction_scale(predictions, targets, reduction)
    rows = predictions.detach().flatten(0, 1)  # [B · M, N]
    kernel = kernel or sum_over_pairs
    total, slopes = kernel(rows, targets.detach().flatten(0, 1), levels, kappa)
    loss: Tensor = _FixedGradient.apply(predictions, scale * total, -scale * slopes)
    return loss


def sum_over_pairs(x: Tensor, y: Tensor, levels: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """Return Σ |τ_j − 1{u < 0}| L_κ(u), u = y_l − x_j, and its slopes in u.

    Args:
      x: predictions, [R, N]. y: targets, [R, N']. levels: τ_j, [N]. kappa: κ >= 0.

    Returns:
      The total over rows, predictions and targets, a scalar; and for each prediction the slopes
      summed over targets, [R, N], which are minus the gradient of the total.
    """
    n_rows = max(1, _BLOCK // (x.shape[1] * y.shape[1])) if x.device.type == "cpu" else len(x)
    total, slopes = x.new_zeros(()), torch.empty_like(x, memory_format=torch.contiguous_format)
    leaks = (1.0 - levels) / levels
    for x_rows, y_rows, sums in zip(
        x.split(n_rows), y.split(n_rows), slopes.split(n_rows), strict=True
    ):
        errors = y_rows.unsqueeze(-2) - x_rows.unsqueeze(-1)  # u, [rows, N, N']
        slope = errors.clamp(-kappa, kappa) if kappa > 0.0 else errors.sign()
        # |τ − 1{u < 0}| · slope is τ times a leaky rectifier: two passes instead of three.
        weighted = torch.prelu(slope, leaks).mul_(levels[:, None])
        torch.sum(weighted, -1, out=sums)
        errors.sub_(slope, alpha=0.5 if kappa > 0.0 else 0.0)  # L_κ(u) = slope · (u − ½ slope)
        total += torch.dot(weighted.flatten(), errors.flatten())
    return total, slopes


class _FixedGradient(torch.autograd.Function):
    """A value whose gradient in x is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        """Return the value, and keep its gradient in x."""
        ctx.save_for_backward(gradient.view_as(x))
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        """Return the given gradient times the outer one."""
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None
