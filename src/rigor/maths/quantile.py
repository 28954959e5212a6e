"""Quantile levels and the quantile (Huber) regression loss (equations loss_single, loss_multi).

The loss is computed together with its gradient, in closed form, in one of three ways that agree to
rounding: from all pairs of a prediction and a target, from the same pairs compiled into one loop,
or from the sorted targets and their prefix sums in O(N log N).
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Pairs = Callable[["Tensor", "Tensor", "Tensor", float], "tuple[Tensor, Tensor]"]
"""A way to meet predictions and targets; see `meet`."""

Reduction = Literal["qr_dqn", "sum", "mean"]


# Elements of one block of pairwise errors. On a CPU blocks that fit the cache are three times
# faster than one of tens of megabytes, whose pages the system hands out anew at every update.
_BLOCK = 160_000

# Targets from which sorting them is quicker than meeting them all, on a CPU (measured).
SORT_FROM = 300


def levels(n: int) -> np.ndarray:
    """Return the midpoint levels τ_j = (2j − 1)/2n, j = 1 ... n, float64 [N]."""
    return (2.0 * np.arange(1, n + 1) - 1.0) / (2.0 * n)


def quantile_huber_loss(
    predictions: "Tensor",
    targets: "Tensor",
    levels: "Tensor",
    kappa: float,
    reduction: Reduction,
    pairs: Pairs | None = None,
) -> "Tensor":
    """Return the loss Σ |τ_j − 1{u < 0}| L_κ(u), u = target_l − prediction_j, reduced to a scalar.

    L_κ(u) = ½u² for |u| <= κ, else κ(|u| − ½κ), not divided by κ (erratum E21); L_0(u) = |u|, and
    L_∞(u) = ½u², under which one quantile of level ½ is the mean. The
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
      pairs: `meet`, `meet_sorted` or `meet_compiled()`; None takes the quicker of the first two.
    """
    batch, n_horizons, n_levels = predictions.shape
    n_targets = targets.shape[-1]
    scale = {
        "qr_dqn": 1.0 / (batch * n_horizons * n_targets),
        "sum": 1.0 / batch,
        "mean": 1.0 / (batch * n_levels * n_targets),
    }[reduction]
    if pairs is None:
        on_cpu = predictions.device.type == "cpu"
        pairs = meet_sorted if on_cpu and n_targets >= SORT_FROM else meet
    rows = predictions.detach().flatten(0, 1)  # [B * M, N]
    total, slopes = pairs(rows, targets.detach().flatten(0, 1), levels, kappa)
    known: Tensor = _known().apply(predictions, scale * total, -scale * slopes)
    return known


def meet(x: "Tensor", y: "Tensor", levels: "Tensor", kappa: float) -> "tuple[Tensor, Tensor]":
    """Return Σ |τ_j − 1{u < 0}| L_κ(u), u = y_l − x_j, and the sums of its slopes in u.

    Args:
      x: predictions, [R, N]. y: targets, [R, N']. levels: τ_j, [N]. kappa: κ >= 0.

    Returns:
      The total over rows, predictions and targets, a scalar; and for each prediction the slopes
      summed over targets, [R, N]: less the gradient of the total.
    """
    import torch

    n_rows = max(1, _BLOCK // (x.shape[1] * y.shape[1])) if x.device.type == "cpu" else len(x)
    total, slopes = x.new_zeros(()), torch.empty_like(x, memory_format=torch.contiguous_format)
    leaks = (1.0 - levels) / levels
    for x_rows, y_rows, sums in zip(
        x.split(n_rows), y.split(n_rows), slopes.split(n_rows), strict=True
    ):
        errors = y_rows.unsqueeze(-2) - x_rows.unsqueeze(-1)  # u, [rows, N, N']
        slope = errors.clamp(-kappa, kappa) if kappa > 0.0 else errors.sign()
        # |τ − 1{u < 0}|·slope is τ times a leaky rectifier: two passes instead of three
        weighted = torch.prelu(slope, leaks).mul_(levels[:, None])
        torch.sum(weighted, -1, out=sums)
        errors.sub_(slope, alpha=0.5 if kappa > 0.0 else 0.0)  # L_κ(u) = slope·(u − ½ slope)
        total += torch.dot(weighted.flatten(), errors.flatten())
    return total, slopes


def meet_sorted(
    x: "Tensor", y: "Tensor", levels: "Tensor", kappa: float
) -> "tuple[Tensor, Tensor]":
    """Return what `meet` returns in O(N log N), from sorted targets and their prefix sums.

    The targets y < x − κ, x − κ <= y < x, x <= y < x + κ and y >= x + κ of a prediction x lie side
    by side, and on each L_κ is a polynomial of degree two. In float64: differences of sums.
    """
    import torch

    like, n = x, y.shape[1]
    x, y, levels = x.double(), y.double().sort(-1).values, levels.double()
    middle = y.mean(-1, keepdim=True)  # small numbers have small squares
    x, y = (x - middle).contiguous(), y - middle
    sums, squares = (  # of the first k targets, [R, N' + 1]
        torch.nn.functional.pad(powers.cumsum(-1), (1, 0)) for powers in (y, y * y)
    )
    below, at, above = (torch.searchsorted(y, x + shift) for shift in (-kappa, 0.0, kappa))

    def between(first: "Tensor", last: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
        """Return how many targets stand there, Σu and Σu², each [R, N]."""
        count = (last - first).double()
        linear = sums.gather(-1, last) - sums.gather(-1, first)
        square = squares.gather(-1, last) - squares.gather(-1, first)
        return count, linear - x * count, square - 2.0 * x * linear + x * x * count

    none, all_ = torch.zeros_like(at), torch.full_like(at, n)
    far_below, far_above = between(none, below), between(above, all_)
    near_below, near_above = between(below, at), between(at, above)
    # slope far from the kink, where for κ = ∞ no target lies
    size = kappa if 0.0 < kappa < math.inf else 1.0
    half = 0.5 * size * size if kappa > 0.0 else 0.0
    total = (1.0 - levels) * (
        0.5 * near_below[2] - size * far_below[1] - half * far_below[0]
    ) + levels * (0.5 * near_above[2] + size * far_above[1] - half * far_above[0])
    slopes = (1.0 - levels) * (near_below[1] - size * far_below[0]) + levels * (
        near_above[1] + size * far_above[0]
    )
    if kappa == 0.0:  # a target equal to its prediction has no slope
        ties = torch.searchsorted(y, x, right=True) - at
        slopes -= levels * ties
    return total.sum().to(like), slopes.to(like)


@functools.cache
def meet_compiled() -> Pairs:
    """Return `meet` compiled into one loop over all pairs; the first call of a shape compiles it.

    Half a minute the first time on a machine, seconds later, so it pays in long runs.

    Raises:
      Exception: whatever the compiler raises, at the first call; there may be none.
    """
    import torch

    def pairs(x: "Tensor", y: "Tensor", levels: "Tensor", kappa: float) -> "tuple[Tensor, Tensor]":
        errors = y.unsqueeze(-2) - x.unsqueeze(-1)
        slope = errors.clamp(-kappa, kappa) if kappa > 0.0 else errors.sign()
        weights = torch.where(errors < 0.0, 1.0 - levels[:, None], levels[:, None])
        losses = weights * slope * (errors - (0.5 if kappa > 0.0 else 0.0) * slope)
        # a sum for each row first: one of ten million terms would lose digits
        return losses.sum((-2, -1)).sum(), (weights * slope).sum(-1)

    return torch.compile(pairs, dynamic=False)


@functools.cache
def _known() -> "type[torch.autograd.Function]":
    """Return a function whose value and gradient are known: autograd would keep every pair."""
    import torch

    class Known(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: "Tensor", value: "Tensor", gradient: "Tensor") -> "Tensor":
            """Return the value, and keep its gradient in x."""
            ctx.save_for_backward(gradient.view_as(x))
            return value.clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, outer: "Tensor") -> "tuple[Tensor, None, None]":
            """Return the gradient that was kept, times the outer one."""
            (gradient,) = ctx.saved_tensors
            return outer * gradient, None, None

    return Known
