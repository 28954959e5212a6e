"""The quantile network: observation, time and stock in; quantiles [B, A, M, N] out."""

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rigor.envs.vector import VectorEnv
from rigor.errors import UserError
from rigor.learning.features import REACH, Bumps
from rigor.schemas import Mlp, NatureCnn

_SMALLEST_SIDE = 36  # pixels: 36 -> 8 -> 3 -> 1 through the three convolutions
_LARGE_HEAD = 300_000  # weights (measured); below, finding the groups costs more than it saves


class QuantileNetwork(nn.Module):
    """Quantiles ξ_ij(s, t, c, a) of every horizon for every action.

    The observation is encoded on its own, so that one encoding serves a whole grid of stocks; the
    time and the stock enter afterwards. The head gives D sets of quantiles, of which every action's
    is a linear combination; D = A and each its own unless the actions have a basis.

    Args:
      encoder: observations [B, *shape] to features [B, F].
      torso: features with the embedded scalars to the head's input [B, H].
      head: the last linear layer, H to D * M * N.
      time, stock: embeddings of the scaled scalars [B, 1], or None where the agent sees neither.
      shape: (A, M, N).
      time_scale: agent steps that count as one.
      stock_scale: outcome (learned reward units) that counts as one.
      basis: how the actions are made of the head's D sets, float32 [A, D].
      totals: all that rewards may still add from each t on, float64 [T, J], the first nothing; the
        stock enters as what it would be after each, [B, J], since that is where its utility bends.
    """

    basis: Tensor | None
    totals: Tensor | None

    def __init__(
        self,
        encoder: nn.Module,
        torso: nn.Module,
        head: nn.Linear,
        time: nn.Module | None,
        stock: nn.Module | None,
        shape: tuple[int, int, int],
        time_scale: float,
        stock_scale: float,
        basis: Tensor | None = None,
        totals: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.torso, self.head = encoder, torso, head
        self.time, self.stock = time, stock
        self.shape, self.time_scale, self.stock_scale = shape, time_scale, stock_scale
        self.register_buffer("basis", basis, persistent=False)
        self.register_buffer("totals", totals, persistent=False)
        self._mean_head: tuple[Tensor, Tensor] | None = None  # [A * M, H] and [A * M]
        self._head_gradient: Tensor | None = None  # memory for the gradient of the head's weight

    def encode(self, observation: Tensor) -> Tensor:
        """Return features [B, F] of observations [B, *shape], raw or as `as_input` gives them."""
        return self.encoder(as_input(observation))

    def join(self, features: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the head's input [B, H] at features [B, F], times t [B] and stocks S_t [B]."""
        parts = [features]
        if self.time is not None:
            parts.append(self.time((t / self.time_scale).to(features.dtype).unsqueeze(1)))
        if self.stock is not None:
            after = stock.unsqueeze(1) if self.totals is None else stock[:, None] + self.totals[t]
            # rounding must not move a stock across the place where a total settles it
            scaled = torch.round(after / self.stock_scale, decimals=9)
            parts.append(self.stock(scaled.to(features.dtype)))
        return self.torso(torch.cat(parts, dim=1))

    def hidden(self, observation: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return the head's input [B, H] for observations [B, *shape], t [B] and S_t [B]."""
        return self.join(self.encode(observation), t, stock)

    def quantiles(self, hidden: Tensor) -> Tensor:
        """Return the quantiles [B, A, M, N] of every action at the head's input [B, H]."""
        sets = self.head(hidden).unflatten(1, (-1, *self.shape[1:]))
        return sets if self.basis is None else torch.einsum("bdmn,ad->bamn", sets, self.basis)

    @torch.no_grad()
    def means(self, hidden: Tensor) -> Tensor:
        """Return mean_j ξ_ij of every action, [B, A, M, 1]: quantiles with N = 1 and the same mean.

        The head is linear, so its weights averaged over the quantiles give them N times sooner.
        They are kept until `forget_means`.
        """
        # a GPU averages in microseconds, and a recording must do so each time
        if self._mean_head is None or hidden.device.type != "cpu":
            parameters = (self.head.weight, self.head.bias)
            weight, bias = (one.unflatten(0, (-1, self.shape[2])).mean(1) for one in parameters)
            if self.basis is not None:
                weight, bias = (_combined(self.basis, one, self.shape[1]) for one in (weight, bias))
            self._mean_head = weight, bias
        return nn.functional.linear(hidden, *self._mean_head).unflatten(1, (*self.shape[:2], 1))

    def forget_means(self) -> None:
        """Average the head anew when next asked: whoever changes the parameters must say so."""
        self._mean_head = None

    def of_actions(self, hidden: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles [B, M, N] of one action each, int64 [B], at the head's input [B, H].

        A CPU leaves the others of a large head out. The gradient of the head's weight then lies in
        memory that the next backward pass may write over.
        """
        if self.basis is not None:
            sets = self.head(hidden).unflatten(1, (-1, *self.shape[1:]))
            return torch.einsum("bdmn,bd->bmn", sets, self.basis[action])
        # on a GPU one large product and shapes that never change
        if hidden.device.type != "cpu" or self.head.weight.numel() < _LARGE_HEAD:
            index = action[:, None, None, None].expand(-1, 1, *self.shape[1:])
            return self.quantiles(hidden).gather(1, index).squeeze(1)
        if self._head_gradient is None and torch.is_grad_enabled():
            self._head_gradient = torch.empty_like(self.head.weight)
        weight, bias = self.head.weight, self.head.bias
        taken = _OfActions.apply(hidden, weight, bias, action, self.shape[0], self._head_gradient)
        return taken.unflatten(1, self.shape[1:])

    def read(self, features: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return quantiles [B, A, M, N] at features [B, F], times t [B] and stocks S_t [B]."""
        return self.quantiles(self.join(features, t, stock))

    def forward(self, observation: Tensor, t: Tensor, stock: Tensor) -> Tensor:
        """Return quantiles [B, A, M, N] for observations [B, *shape], t [B] and S_t [B]."""
        return self.quantiles(self.hidden(observation, t, stock))


def _combined(basis: Tensor, means: Tensor, n_horizons: int) -> Tensor:
    """Return the actions' rows [A * M, ...] of the sets' rows [D * M, ...]."""
    sets = means.unflatten(0, (-1, n_horizons))
    return torch.einsum("ad,dm...->am...", basis, sets).flatten(0, 1)


def as_input(observation: Tensor) -> Tensor:
    """Return what the encoders take: images uint8 [B, C, H, W] as float32 in [0, 1], others as is.

    With their channels last, for then an update takes a tenth less; stacking bytes is the quickest
    way there.
    """
    if observation.dtype != torch.uint8:
        return observation
    pixels = torch.stack(observation.unbind(1), -1)  # [B, H, W, C]
    return pixels.float().div_(255.0).permute(0, 3, 1, 2)


class _OfActions(torch.autograd.Function):
    """x_b · weight[a_b]ᵀ + bias[a_b], [B, K], by one small product for each action taken.

    Autograd would make A gradients of the whole head, each nearly all zeros, and add them.

    Inputs: x [B, H], weight [A * K, H], bias [A * K], action int64 [B], A, and memory for the
    weight's gradient, used while the weight has none to add to: fresh pages of tens of megabytes
    cost more than the products that fill them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        action: Tensor,
        n_actions: int,
        memory: Tensor | None,
    ) -> Tensor:
        ctx.memory, ctx.order = memory, action.argsort(stable=True)
        ctx.counts = torch.bincount(action, minlength=n_actions).tolist()
        x = x[ctx.order]
        ctx.save_for_backward(x, weight, bias)
        sorted_ = x.new_empty(len(x), len(bias) // n_actions)  # [B, K]
        for w, b, rows, out in zip(
            weight.chunk(n_actions),
            bias.chunk(n_actions),
            x.split(ctx.counts),
            sorted_.split(ctx.counts),
            strict=True,
        ):
            # the other way round: with few rows a third faster than rows @ w.T
            out.copy_(torch.addmm(b[:, None], w, rows.T).T)
        return torch.empty_like(sorted_).index_copy_(0, ctx.order, sorted_)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        n_actions = len(ctx.counts)
        of_weight = ctx.memory if weight.grad is None else torch.empty_like(weight)
        of_bias, sorted_ = torch.empty_like(bias), torch.empty_like(x)
        for w, rows, g, to_x, to_w, to_b in zip(
            weight.chunk(n_actions),
            x.split(ctx.counts),
            gradient[ctx.order].split(ctx.counts),
            sorted_.split(ctx.counts),
            of_weight.chunk(n_actions),
            of_bias.chunk(n_actions),
            strict=True,
        ):
            torch.mm(g, w, out=to_x)
            torch.mm(g.T, rows, out=to_w)  # zeros for an action that nobody took
            torch.sum(g, 0, out=to_b)
        of_x = torch.empty_like(sorted_).index_copy_(0, ctx.order, sorted_)
        # an alias, which autograd takes for the gradient as it is; it would copy the memory itself
        return of_x, of_weight.detach(), of_bias, None, None, None


def build_network(
    spec: Mlp | NatureCnn,
    env: VectorEnv,
    shape: tuple[int, int, int],
    sees_time: bool,
    sees_stock: bool,
    stock_scale: float,
    totals: np.ndarray | None = None,
) -> QuantileNetwork:
    """Build the network that `spec` describes; parameters come from torch's global generator.

    Args:
      spec: `network=mlp` or `network=nature_cnn`.
      env: whose observations it reads, (features,) or (channels, height, width).
      shape: (A, M, N).
      sees_time, sees_stock: whether t and S_t are inputs.
      stock_scale: learned reward units. totals: what rewards may still add from t on, [T, J].

    Raises:
      UserError: the network does not fit the observations, or the environment has no coordinates
        or no basis of its actions.
    """
    observation_shape, basis, after = env.observation_shape, None, None
    embeddings = [sees_time, sees_stock]
    if isinstance(spec, NatureCnn):
        encoder, n_features = _nature_trunk(observation_shape)
        time, stock = (_embedding(spec.embedding) if seen else None for seen in embeddings)
        n_in = n_features + spec.embedding * sum(embeddings)
        torso = nn.Sequential(nn.Linear(n_in, spec.hidden), nn.ReLU())
        n_hidden = spec.hidden
    else:
        if len(observation_shape) == 3 and min(observation_shape[1:]) >= 36:
            raise UserError(
                f"network=mlp: observations are images {list(observation_shape)}; use "
                "network=nature_cnn"
            )
        if spec.actions == "smooth":
            declared = _declared(env, "action_basis", "network.actions=smooth")
            basis = torch.from_numpy(declared).float()
        if spec.bumps:
            encoder = Bumps(
                spec.bumps, _declared(env, "coordinates", f"network.bumps={spec.bumps}")
            )
            time, stock = (
                Bumps(spec.bumps, lambda z: REACH * z) if seen else None for seen in embeddings
            )
        else:
            encoder = nn.Flatten()
            time, stock = (nn.Identity() if seen else None for seen in embeddings)
        n_in = encoder(torch.zeros(1, *observation_shape)).shape[1]
        if stock is not None and spec.bumps and totals is not None:
            after = torch.from_numpy(totals)
        n_stocks = 1 if after is None else after.shape[1]
        for one, n_inputs in ((time, 1), (stock, n_stocks)):
            n_in += 0 if one is None else one(torch.zeros(1, n_inputs)).shape[1]
        sizes = [n_in, *spec.hidden]
        layers = [
            layer
            for n_in, n_out in itertools.pairwise(sizes)
            for layer in (nn.Linear(n_in, n_out), nn.ReLU())
        ]
        torso, n_hidden = nn.Sequential(*layers), sizes[-1]
    n_sets = shape[0] if basis is None else basis.shape[1]
    head = nn.Linear(n_hidden, n_sets * shape[1] * shape[2])
    scales = env.time_scale, stock_scale
    return QuantileNetwork(encoder, torso, head, time, stock, shape, *scales, basis, after)


def _declared(env: VectorEnv, name: str, asked: str) -> Any:
    found = getattr(env, name, None)
    if found is None:
        raise UserError(
            f"{asked}: this environment declares no {name}; use network.bumps=0 "
            "network.actions=separate"
        )
    return found


def _embedding(size: int) -> nn.Module:
    """One scalar to `size` features, as the paper embeds t (Linear and ReLU)."""
    return nn.Sequential(nn.Linear(1, size), nn.ReLU())


def _nature_trunk(observation_shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """The three convolutions of Mnih et al. (2015) and the number of features they give.

    Raises:
      UserError: the observation is no image, or smaller than the convolutions reach.
    """
    if len(observation_shape) != 3 or min(observation_shape[1:]) < _SMALLEST_SIDE:
        raise UserError(
            f"network=nature_cnn: needs images of {_SMALLEST_SIDE} or more pixels a side, and this "
            f"environment shows arrays of shape {observation_shape}; use network=mlp"
        )
    trunk = nn.Sequential(
        nn.Conv2d(observation_shape[0], 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        n_features = trunk(torch.zeros(1, *observation_shape)).shape[1]
    return trunk.to(memory_format=torch.channels_last), n_features  # type: ignore[call-overload]
