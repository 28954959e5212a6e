"""The value network: observation, time and stock in; numbers [B, A, M, N] out.

Each action has N numbers for each of M horizons. `rigor.learning.value_targets` says what the
numbers mean; they are called quantiles here, as for most agents they are.
`rigor.learning.build_network` builds one from a config.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rigor.learning.layers import Normaliser, NumberEmbedding, scale_pixels, shift_and_ratio


class ValueHead(Protocol):
    """The last layer. `Head` is the plain form, `rigor.learning.fast_head.FastHead` the fast one.

    Attributes:
      linear: H to D · M · N.
      shape: (A, M, N).
    """

    linear: nn.Linear
    shape: tuple[int, int, int]

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the quantiles [B, A, M, N] of every action at hidden units [B, H]."""
        ...

    def means(self, hidden: Tensor) -> Tensor:
        """Return mean_j ξ_ij of every action, [B, A, M], without a gradient."""
        ...

    def of_actions(self, hidden: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles [B, M, N] of one action for each row, `action` int64 [B]."""
        ...


class Head(nn.Module):
    """A linear layer that gives D sets of M · N quantiles, and actions as combinations of sets.

    Without a basis D = A, and each action has its own set.

    Args:
      linear: H to D · M · N.
      shape: (A, M, N).
      basis: the coefficients of each action's combination, float32 [A, D].
    """

    basis: Tensor | None

    def __init__(
        self, linear: nn.Linear, shape: tuple[int, int, int], basis: Tensor | None
    ) -> None:
        super().__init__()
        self.linear, self.shape = linear, shape
        self.register_buffer("basis", basis, persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the quantiles [B, A, M, N] of every action at hidden units [B, H]."""
        sets = self.linear(hidden).unflatten(1, (-1, *self.shape[1:]))  # [B, D, M, N]
        return sets if self.basis is None else torch.einsum("bdmn,ad->bamn", sets, self.basis)

    @torch.no_grad()
    def means(self, hidden: Tensor) -> Tensor:
        """Return mean_j ξ_ij of every action, [B, A, M]."""
        return self(hidden).mean(-1)

    def of_actions(self, hidden: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles [B, M, N] of one action for each row, `action` int64 [B]."""
        return self(hidden)[torch.arange(len(action), device=action.device), action]


class QuantileNetwork(nn.Module):
    """Quantiles ξ_ij(s, t, S, a) of every horizon for every action.

    The observation is encoded alone, so that one encoding serves a whole grid of stocks; time and
    stock join its features afterwards.

    Args:
      encoder: observations [B, *shape] to features [B, F].
      torso: features and embedded scalars to hidden units [B, H].
      head: hidden units to quantiles.
      time, stock: embeddings of the scaled scalars, or None where the agent does not see them.
      time_scale: agent steps that count as one.
      stock_scale: stock (learner's reward units) that counts as one; see `rescale_stock`.
      attainable: returns that can still be earned from each t on, float64 [T, J], the first one 0.
        The stock then enters as the J totals S_t + return, because the utility bends there.
    """

    attainable: Tensor | None
    stock_unit: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        torso: nn.Module,
        head: ValueHead,
        time: nn.Module | None,
        stock: nn.Module | None,
        time_scale: float,
        stock_scale: float,
        attainable: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.torso, self.head = encoder, torso, head
        self.time, self.stock = time, stock
        self.time_scale = time_scale
        self.register_buffer("attainable", attainable, persistent=False)
        # the stock that enters as 0, and the difference that counts as one
        self.register_buffer("stock_unit", torch.tensor([0.0, stock_scale], dtype=torch.float64))

    def encode(self, observation: Tensor) -> Tensor:
        """Return features [B, F] of observations [B, *shape], raw or scaled by `scale_pixels`."""
        return self.encoder(scale_pixels(observation))

    def join(self, features: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return hidden units [B, H] at features [B, F], times t [B] and stocks S_t [B]."""
        parts = [features]
        if self.time is not None:
            parts.append(self.time((t / self.time_scale).to(features.dtype).unsqueeze(1)))
        if self.stock is not None:
            totals = stock.unsqueeze(1)  # [B, 1]
            if self.attainable is not None:
                totals = stock[:, None] + self.attainable[t]  # [B, J]
            # Rounding errors must not move a total across the bend of the utility.
            zero, one = self.stock_unit
            scaled = torch.round((totals - zero) / one, decimals=9)
            parts.append(self.stock(scaled.to(features.dtype)))
        return self.torso(torch.cat(parts, dim=1))

    def hidden(self, observation: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return hidden units [B, H] for observations [B, *shape], t [B] and S_t [B]."""
        return self.join(self.encode(observation), t, stock)

    def forward(self, observation: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return quantiles [B, A, M, N] for observations [B, *shape], t [B] and S_t [B]."""
        return self.head(self.hidden(observation, t, stock))

    @torch.no_grad()
    def rescale_stock(self, zero: float, one: float, keep: bool) -> None:
        """Let the stock enter as (S − zero) / one.

        Args:
          zero, one: learner's reward units. Not for networks with `attainable` returns.
          keep: whether the first layer changes so that the network's function stays as it is.
        """
        unit = torch.tensor([[zero], [one]], dtype=torch.float64)
        if keep and isinstance(self.stock, NumberEmbedding):
            self.stock.keep_function(self.stock_unit[:, None], unit)
        elif keep:  # the stock is the last input of the torso
            _keep_function(self._first(), slice(-1, None), self.stock_unit[:, None], unit)
        self.stock_unit.copy_(unit[:, 0])

    @torch.no_grad()
    def rescale_observations(self, zero: np.ndarray, one: np.ndarray, keep: bool) -> None:
        """Let observations enter as (x − zero) / one; `keep` as in `rescale_stock`."""
        assert isinstance(self.encoder, Normaliser)
        unit = torch.from_numpy(np.stack([zero, one]))  # [2, F]
        if keep and self.encoder.embedding is not None:
            self.encoder.embedding.keep_function(self.encoder.unit, unit)
        elif keep:
            _keep_function(self._first(), slice(0, len(zero)), self.encoder.unit, unit)
        self.encoder.unit.copy_(unit)

    @torch.no_grad()
    def rescale_outputs(self, factor: float) -> None:
        """Multiply all outputs by a factor."""
        for parameter in self.head.linear.parameters():
            parameter.mul_(factor)

    def _first(self) -> nn.Linear:
        """Return the layer that reads the features and the scalars."""
        layers = [*self.torso.modules(), self.head.linear]  # without hidden layers, the head
        return next(layer for layer in layers if isinstance(layer, nn.Linear))


def _keep_function(linear: nn.Linear, inputs: slice, before: Tensor, after: Tensor) -> None:
    """Change a linear layer so that inputs in another unit give the same outputs.

    Args:
      linear: the layer. inputs: which of its inputs, [F].
      before, after: what enters as 0, and the difference that enters as one, float64 [2, F].
    """
    weight = linear.weight[:, inputs]
    shift, ratio = shift_and_ratio(before, after, weight)
    linear.bias.add_(weight @ shift)
    weight.mul_(ratio)
