"""The value of an action from quantiles, horizons and utility, and the greedy action.

The total outcome S_t + Σ_i readout_i(t) ξ_ij adds the horizons quantile by quantile: a comonotone
coupling, exact for the mean and for one horizon, an approximation otherwise (erratum E10).
"""

from typing import TYPE_CHECKING

from rigor.maths.utility import MASS_LIMIT, Mean, Utility

if TYPE_CHECKING:
    import torch


def outcome(quantiles: "torch.Tensor", weights: "torch.Tensor") -> "torch.Tensor":
    """Return the outcomes z_j = Σ_i w_{i,t} ξ_ij (equation anytime_proxy_m), [B, A, N].

    Args:
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
    """
    return (weights[:, None, None, :].to(quantiles.dtype) @ quantiles)[:, :, 0, :]


def mean_values(quantiles: "torch.Tensor", weights: "torch.Tensor") -> "torch.Tensor":
    """Return Σ_i w_{i,t} mean_j ξ_ij, [B, A], in the precision of the quantiles.

    Args:
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
    """
    means = quantiles.mean(dim=-1)  # [B, A, M]
    return (means @ weights[:, :, None].to(means.dtype))[:, :, 0]


def action_values(
    utility: Utility,
    quantiles: "torch.Tensor",
    weights: "torch.Tensor",
    mass: "torch.Tensor",
    stock: "torch.Tensor",
) -> "torch.Tensor":
    """Return the ranking value of every action, [B, A]: Q(s, t, c, a) less what no action changes.

    For the mean Σ_i w_{i,t} mean_j ξ_ij, without the stock; for another utility `utility.value`
    in float64, and the mean where the mass is below MASS_LIMIT.

    Args:
      utility: the risk.
      quantiles: ξ, [B, A, M, N], reward units.
      weights: w_{i,t}, [B, M].
      mass: d̃_t, float64 [B].
      stock: S_t, float64 [B], reward units.
    """
    import torch

    if isinstance(utility, Mean):
        return mean_values(quantiles, weights)
    z = outcome(quantiles.double(), weights)
    mass = mass.double()
    values = utility.value(stock.double(), mass, z)
    return torch.where(mass[:, None] < MASS_LIMIT, z.mean(dim=-1), values)


def greedy(values: "torch.Tensor", means: "torch.Tensor") -> "torch.Tensor":
    """Return the best action, int64 [B]; ties go to the larger mean, then the lower index.

    Ties are common where a utility is flat, as CVaR's is above its kink.

    Args:
      values: ranking values, [B, A].
      means: mean outcomes, [B, A].
    """
    best = values == values.amax(dim=-1, keepdim=True)
    return means.masked_fill(~best, float("-inf")).argmax(dim=-1)
