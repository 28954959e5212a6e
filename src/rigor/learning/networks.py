"""The value network: observation, time and stock in; numbers [B, A, M, N] out.

Each action has N numbers for each of M horizons. `rigor.learning.value_targets` says what the
numbers mean; they are called quantiles here, as for most agents they are.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rigor.config.schemas import Mlp, NatureCnn, SmallCnn
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError

_SMALLEST_SIDE = 36  # pixels: 36 -> 8 -> 3 -> 1 through the three convolutions
_FILTER_SIDE = 3  # pixels, of the small network's one convolution
REACH = 3.0  # RBF features cover [−3, 3]: three standard deviations of the noise still to come


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
            _keep_function(self.torso, slice(-1, None), self.stock_unit[:, None], unit)
        self.stock_unit.copy_(unit[:, 0])

    @torch.no_grad()
    def rescale_observations(self, zero: np.ndarray, one: np.ndarray, keep: bool) -> None:
        """Let observations enter as (x − zero) / one; `keep` as in `rescale_stock`."""
        assert isinstance(self.encoder, Normaliser)
        unit = torch.from_numpy(np.stack([zero, one]))  # [2, F]
        if keep and self.encoder.embedding is not None:
            self.encoder.embedding.keep_function(self.encoder.unit, unit)
        elif keep:
            _keep_function(self.torso, slice(0, len(zero)), self.encoder.unit, unit)
        self.encoder.unit.copy_(unit)

    @torch.no_grad()
    def rescale_outputs(self, factor: float) -> None:
        """Multiply all outputs by a factor."""
        for parameter in self.head.linear.parameters():
            parameter.mul_(factor)


def _keep_function(layers: nn.Module, inputs: slice, before: Tensor, after: Tensor) -> None:
    """Change the first linear layer so that inputs in another unit give the same outputs.

    Args:
      layers: whose first linear layer reads the inputs. inputs: which of its inputs, [F].
      before, after: what enters as 0, and the difference that enters as one, float64 [2, F].
    """
    linear = next(layer for layer in layers.modules() if isinstance(layer, nn.Linear))
    weight = linear.weight[:, inputs]
    shift, ratio = _shift_and_ratio(before, after, weight)
    linear.bias.add_(weight @ shift)
    weight.mul_(ratio)


def _shift_and_ratio(before: Tensor, after: Tensor, like: Tensor) -> Tensor:
    """Return (zero′ − zero) / one and one′ / one of two units [2, F], as [2, F] like a tensor."""
    before, after = before.to(like.device), after.to(like.device)
    change = torch.stack([after[0] - before[0], after[1]]) / before[1]
    return change.to(like.dtype)


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
        shift, ratio = _shift_and_ratio(before, after, self.weight)
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


MakeHead = Callable[[nn.Linear, tuple[int, int, int], Tensor | None], ValueHead]


def build_network(
    spec: Mlp | NatureCnn | SmallCnn,
    env: VectorEnv,
    shape: tuple[int, int, int],
    sees_time: bool,
    sees_stock: bool,
    stock_scale: float,
    attainable: np.ndarray | None = None,
    make_head: MakeHead = Head,
) -> QuantileNetwork:
    """Build the network that `spec` describes; parameters come from torch's global generator.

    Args:
      spec: `network=mlp`, `rbf_mlp`, `nature_cnn` or `small_cnn`.
      env: whose observations it reads, (features,) or (channels, height, width).
      shape: (A, M, N).
      sees_time, sees_stock: whether t and S_t are inputs.
      stock_scale: learner's reward units, at first.
      attainable: returns that can still be earned from each t on, [T, J]; for RBF features only.
      make_head: `Head` or `rigor.learning.fast_head.FastHead`.

    Raises:
      UserError: the network does not fit the observations, or the environment declares no
        coordinates or no basis of its actions.
    """
    if isinstance(spec, NatureCnn | SmallCnn):
        encoder, time, stock, after = _cnn_parts(spec, env, sees_time, sees_stock)
        hidden = [spec.hidden]
    else:
        encoder, time, stock, after = _mlp_parts(spec, env, sees_time, sees_stock, attainable)
        hidden = spec.hidden
    n_stocks = 1 if after is None else after.shape[1]
    n_in = _width(encoder, env.observation_shape) + _width(time, (1,)) + _width(stock, (n_stocks,))
    layers: list[nn.Module] = []
    for n_out in hidden:
        layers.append(nn.Linear(n_in, n_out))
        layers += [nn.LayerNorm(n_out)] if spec.norm == "layer" else []
        layers.append(nn.ReLU())
        n_in = n_out
    basis = _action_basis(spec, env)
    n_sets = shape[0] if basis is None else basis.shape[1]
    head = make_head(nn.Linear(n_in, n_sets * shape[1] * shape[2]), shape, basis)
    torso = nn.Sequential(*layers)
    return QuantileNetwork(encoder, torso, head, time, stock, env.time_scale, stock_scale, after)


Parts = tuple[nn.Module, nn.Module | None, nn.Module | None, Tensor | None]
"""Encoder, embeddings of time and stock, and the attainable returns that the stock enters with."""


def _cnn_parts(
    spec: NatureCnn | SmallCnn, env: VectorEnv, sees_time: bool, sees_stock: bool
) -> Parts:
    encoder = _convolutions(spec, env.observation_shape)
    time, stock = _scalars(spec.embedding, sees_time, sees_stock)
    return encoder, time, stock, None


def _scalars(width: int, *seen: bool) -> list[nn.Module | None]:
    """Return the embeddings of t and the stock, where seen, as the paper embeds t."""
    return [
        (NumberEmbedding(1, width) if width else nn.Identity()) if sees else None for sees in seen
    ]


def _mlp_parts(
    spec: Mlp, env: VectorEnv, sees_time: bool, sees_stock: bool, attainable: np.ndarray | None
) -> Parts:
    shape, n = env.observation_shape, spec.rbf_features
    if len(shape) == 3 and min(shape[1:]) >= _SMALLEST_SIDE:
        raise UserError(
            f"network=mlp: observations are images {list(shape)}; use network=nature_cnn"
        )
    sees = sees_time, sees_stock
    if not n:
        n_features, width = int(np.prod(shape)), spec.embedding
        embedding = NumberEmbedding(n_features, width) if width else None
        if spec.normalise:
            encoder: nn.Module = Normaliser(n_features, embedding)
        else:
            encoder = nn.Sequential(nn.Flatten(), *([embedding] if embedding else []))
        time, stock = _scalars(width, *sees)
        return encoder, time, stock, None
    coordinates = None if env.problem is None else env.problem.coordinates
    if coordinates is None:
        raise _undeclared(f"network.rbf_features={n}", "coordinates")
    time, stock = (RbfFeatures(n, lambda z: REACH * z) if seen else None for seen in sees)
    after = None if attainable is None or not sees_stock else torch.from_numpy(attainable)
    return RbfFeatures(n, coordinates), time, stock, after


def _action_basis(spec: Mlp | NatureCnn | SmallCnn, env: VectorEnv) -> Tensor | None:
    """Return the basis of the actions, float32 [A, D], where the config asks for it."""
    if not isinstance(spec, Mlp) or spec.action_basis == "none":
        return None
    basis = None if env.problem is None else env.problem.action_basis
    if basis is None:
        raise _undeclared("network.action_basis=polynomial", "action_basis")
    return torch.from_numpy(basis).float()


def _undeclared(asked: str, name: str) -> UserError:
    return UserError(
        f"{asked}: this environment declares no {name}; use network.rbf_features=0 "
        "network.action_basis=none"
    )


def _width(module: nn.Module | None, shape: tuple[int, ...]) -> int:
    """Return the number of features that a module gives for one input of a shape."""
    if module is None:
        return 0
    with torch.no_grad():
        return int(module(torch.zeros(1, *shape)).shape[1])


def _convolutions(spec: NatureCnn | SmallCnn, shape: tuple[int, ...]) -> nn.Module:
    """Return the convolutions of Mnih et al. (2015), or the one of Young and Tian (2019).

    Raises:
      UserError: the observation is no image, or smaller than the convolutions reach.
    """
    least = _SMALLEST_SIDE if isinstance(spec, NatureCnn) else _FILTER_SIDE
    side = min(shape[1:]) if len(shape) == 3 else 0
    if side < least:
        network = "nature_cnn" if isinstance(spec, NatureCnn) else "small_cnn"
        raise UserError(
            f"network={network}: needs images of {least} or more pixels a side, and this "
            f"environment shows arrays of shape {shape}; use "
            f"network={'small_cnn' if side >= _FILTER_SIDE else 'mlp'}"
        )
    layers: list[nn.Module] = []
    n_in = shape[0]
    sizes = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]  # channels, filter and stride
    if isinstance(spec, SmallCnn):
        sizes = [(spec.filters, _FILTER_SIDE, 1)]
    for n_out, size, stride in sizes:
        layers.append(nn.Conv2d(n_in, n_out, size, stride))
        layers += [ChannelNorm(n_out)] if spec.norm == "layer" else []
        layers.append(nn.ReLU())
        n_in = n_out
    trunk = nn.Sequential(*layers, nn.Flatten())
    return trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
