"""Layers that embed, normalise and scale what the value network reads."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

REACH = 3.0  # RBF features cover [−3, 3]: three standard deviations of the noise still to come


class NumberEmbedding(nn.Module):
    """Each of F numbers x_i as max(0, w_ie x_i + b_ie), e = 1 ... E, so that kinks are learned.

    Args:
      n_features: F.
      width: E.
    """

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.empty(n_features, width).uniform_(-1.0, 1.0)) for _ in range(2)
        )

    def forward(self, numbers: Tensor) -> Tensor:
        """Return [B, F · E] of numbers [B, F]."""
        return torch.relu(numbers[..., None] * self.weight + self.bias).flatten(1)

    def keep_function(self, before: Tensor, after: Tensor) -> None:
        """Change the weights so that numbers in another unit give the same result.

        Args:
          before, after: what enters as 0, and the difference that enters as one, float64 [2, F].
        """
        shift, ratio = shift_and_ratio(before, after, self.weight)
        self.bias.add_(self.weight * shift[:, None])
        self.weight.mul_(ratio[:, None])


class Normaliser(nn.Module):
    """Observations [B, *shape] as F numbers relative to a centre and in units of a scale, embedded.

    Args:
      n_features: F.
      embedding: of the numbers, or None.
    """

    unit: Tensor

    def __init__(self, n_features: int, embedding: NumberEmbedding | None) -> None:
        super().__init__()
        self.embedding = embedding
        unit = torch.stack([torch.zeros(n_features), torch.ones(n_features)])
        self.register_buffer("unit", unit.double())  # what enters as 0, and as one more

    def forward(self, observation: Tensor) -> Tensor:
        """Return [B, F] or [B, F · E], float32."""
        zero, one = self.unit
        numbers = ((observation.flatten(1) - zero) / one).to(observation.dtype)
        return numbers if self.embedding is None else self.embedding(numbers)


class RbfFeatures(nn.Module):
    """Gaussian radial basis functions of every input, so that a small network can represent kinks.

    An input z gives n Gaussians with centres evenly spaced on [−3, 3] and a width of one spacing,
    z itself clipped to [−3, 3] and divided by 3, and the indicator of z >= 0.

    Args:
      n: Gaussians of each input, >= 2.
      coordinates: from observations [B, *shape] to inputs [B, K].
    """

    centres: Tensor

    def __init__(self, n: int, coordinates: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.coordinates, self.width = coordinates, 2 * REACH / (n - 1)
        self.register_buffer("centres", torch.linspace(-REACH, REACH, n), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """Return [B, K · (n + 2)]."""
        z = self.coordinates(observation)[..., None]  # [B, K, 1]
        gaussians = torch.exp(-0.5 * ((z - self.centres) / self.width) ** 2)
        parts = [gaussians, z.clamp(-REACH, REACH) / REACH, (z >= 0).to(z.dtype)]
        return torch.cat(parts, dim=-1).flatten(1)


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation of images [B, C, H, W] over their channels, at each pixel."""

    def forward(self, images: Tensor) -> Tensor:
        """Return [B, C, H, W], with the channels last in memory."""
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def scale_pixels(observation: Tensor) -> Tensor:
    """Return images [B, C, H, W] of uint8 or bool as float32 in [0, 1], others as they are.

    The result lies in memory with its channels last, which makes updates 10 % faster; stacking
    bytes is the fastest way to that layout.
    """
    if observation.dtype not in (torch.uint8, torch.bool):
        return observation
    pixels = torch.stack(observation.unbind(1), -1).float()  # [B, H, W, C]
    if observation.dtype == torch.uint8:
        pixels.div_(255.0)
    return pixels.permute(0, 3, 1, 2)


def shift_and_ratio(before: Tensor, after: Tensor, like: Tensor) -> Tensor:
    """Return (zero′ − zero) / one and one′ / one of two units [2, F], as [2, F] like a tensor."""
    before, after = before.to(like.device), after.to(like.device)
    change = torch.stack([after[0] - before[0], after[1]]) / before[1]
    return change.to(like.dtype)
