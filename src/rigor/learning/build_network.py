"""Builds the value network that a config describes."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from rigor.config.schemas import Mlp, NatureCnn, SmallCnn
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError
from rigor.learning.layers import REACH, ChannelNorm, Normaliser, NumberEmbedding, RbfFeatures
from rigor.learning.networks import Head, QuantileNetwork, ValueHead

_SMALLEST_SIDE = 36  # pixels: 36 -> 8 -> 3 -> 1 through the three convolutions
_FILTER_SIDE = 3  # pixels, of the small network's one convolution

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
    # torch's types lack a module's memory format
    return trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
