"""Inputs of a network that bend where a value function does."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

REACH = 3.0  # where a coordinate's bumps end: three standard deviations of what is to come


class Bumps(nn.Module):
    """Spreads every input over Gaussian bumps, so that a small network can bend where it must.

    An input z gives n bumps, their middles even on [−3, 3] and as wide as they are apart, z itself
    cut to [−3, 3], and whether it reaches 0.

    Args:
      n: bumps of each input, >= 2.
      coordinates: from observations [B, *shape] to inputs [B, K].
    """

    middles: Tensor

    def __init__(self, n: int, coordinates: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.coordinates, self.width = coordinates, 2 * REACH / (n - 1)
        self.register_buffer("middles", torch.linspace(-REACH, REACH, n), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Return [B, K · (n + 2)]."""
        z = self.coordinates(observation)[..., None]  # [B, K, 1]
        bumps = torch.exp(-0.5 * ((z - self.middles) / self.width) ** 2)
        parts = [bumps, z.clamp(-REACH, REACH) / REACH, (z >= 0).to(z.dtype)]
        return torch.cat(parts, dim=-1).flatten(1)
