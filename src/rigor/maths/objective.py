"""The value of an action from quantiles, horizons and utility, and the greedy action.

The total outcome S_t + Σ_i mixture_i(t) ξ_ij adds the horizons quantile by quantile: a comonotone
coupling, exact for the mean and for one horizon, an approximation otherwise (erratum E10).
"""

from typing import TYPE_CHECKING

from rigor.maths.utility import DISCOUNT_LIMIT, Utility, is_mean

if TYPE_CHECKING:
    from torch import Tensor


def outcome(quantiles: "Tensor", weights: "Tensor") -> "Tensor":
    """Return the outcomes z_j = Σ_i w_{i,t} ξ_ij (equation anytime_proxy_m), [B, A, N].

    Args:
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
    """
    _check_shapes(quantiles, weights)
    return (weights[:, None, None, :].to(quantiles.dtype) @ quantiles)[:, :, 0, :]


def mean_values(quantiles: "Tensor", weights: "Tensor") -> "Tensor":
    """Return Σ_i w_{i,t} mean_j ξ_ij, [B, A], in the precision of the quantiles.

    Args:
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
    """
    _check_shapes(quantiles, weights)
    means = quantiles.mean(dim=-1)  # [B, A, M]
    return (means @ weights[:, :, None].to(means.dtype))[:, :, 0]


def action_values(
    utility: Utility, quantiles: "Tensor", weights: "Tensor", discount: "Tensor", stock: "Tensor"
) -> "Tensor":
    """Return the ranking value of every action, [B, A]: Q(s, t, c, a) up to a constant of actions.

    For the mean this is Σ_i w_{i,t} mean_j ξ_ij, without the stock. For another utility it is
    `utility.value` in float64, and the mean where the discount is below DISCOUNT_LIMIT.

    Args:
      utility: the risk measure's f.
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
      discount: d̃_t, float64 [B].
      stock: S_t, float64 [B], reward units.
    """
    import torch

    assert discount.shape == stock.shape == quantiles.shape[:1], (discount.shape, stock.shape)
    if is_mean(utility):
        return mean_values(quantiles, weights)
    z = outcome(quantiles.double(), weights)
    discount = discount.double()
    values = utility.value(stock.double(), discount, z)
    return torch.where(discount[:, None] < DISCOUNT_LIMIT, z.mean(dim=-1), values)


def greedy(values: "Tensor", means: "Tensor") -> "Tensor":
    """Return the best action, int64 [B]; ties go to the larger mean, then to the lower index.

    Ties are common where a utility is flat, as CVaR's is above its kink.

    Args:
      values: ranking values, [B, A].
      means: mean outcomes, [B, A].
    """
    assert values.shape == means.shape, (values.shape, means.shape)
    best = values == values.amax(dim=-1, keepdim=True)
    return means.masked_fill(~best, float("-inf")).argmax(dim=-1)


def _check_shapes(quantiles: "Tensor", weights: "Tensor") -> None:
    batch, _, n_horizons, _ = quantiles.shape
    assert weights.shape == (batch, n_horizons), (quantiles.shape, weights.shape)
