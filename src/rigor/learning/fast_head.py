"""A fast form of `rigor.learning.networks.Head`, with the same numbers up to rounding.

Two facts save most of the head's work on a CPU. The head is linear, so the mean of N quantiles is
the product with the mean of their N weights, N times cheaper. And a loss needs the quantiles of one
action for each row, so the other actions need not be computed.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rigor.learning.networks import Head

LARGE = 300_000  # weights (measured); for fewer, grouping rows by action costs more than it saves


class FastHead(Head):
    """See `rigor.learning.networks.Head` for arguments and results."""

    def __init__(
        self, linear: nn.Linear, shape: tuple[int, int, int], basis: Tensor | None
    ) -> None:
        super().__init__(linear, shape, basis)
        self._means: tuple[Tensor, Tensor] | None = None  # [A · M, H] and [A · M]
        self._averaged: tuple[Tensor, Tensor] | None = None  # parameters that `_means` is made of
        self._made_of: tuple[int, ...] = ()  # their identities and versions
        self._gradient: Tensor | None = None  # memory for the gradient of the weight

    @torch.no_grad()
    def means(self, hidden: Tensor) -> Tensor:
        """Return mean_j ξ_ij of every action, [B, A, M], by weights averaged over the quantiles.

        On a CPU the averaged weights are kept until the parameters change: until there are others,
        or their version counters move (a change of `parameter.data` moves none). A GPU averages
        them in microseconds, and a CUDA graph must do so at each replay.
        """
        w, b = self.linear.weight, self.linear.bias
        made_of = id(w), id(b), w._version, b._version
        if self._means is None or made_of != self._made_of or hidden.device.type != "cpu":
            weight, bias = (one.unflatten(0, (-1, self.shape[2])).mean(1) for one in (w, b))
            if self.basis is not None:
                weight, bias = self._combine(weight), self._combine(bias)
            self._means, self._made_of = (weight, bias), made_of
            self._averaged = w, b  # kept alive, so that no other tensor gets their identities
        return nn.functional.linear(hidden, *self._means).unflatten(1, self.shape[:2])

    def of_actions(self, hidden: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles [B, M, N] of one action for each row, `action` int64 [B].

        The gradient of a large head's weight lies in memory that the next backward pass reuses.
        """
        if self.basis is not None:
            sets = self.linear(hidden).unflatten(1, (-1, *self.shape[1:]))
            return torch.einsum("bdmn,bd->bmn", sets, self.basis[action])
        weight, bias = self.linear.weight, self.linear.bias
        # A GPU prefers one large product whose shape never changes.
        if hidden.device.type != "cpu" or weight.numel() < LARGE:
            index = action[:, None, None, None].expand(-1, 1, *self.shape[1:])
            return self(hidden).gather(1, index).squeeze(1)
        if torch.is_grad_enabled() and (
            self._gradient is None or self._gradient.dtype != weight.dtype
        ):
            self._gradient = torch.empty_like(weight)
        selected = _OfActions.apply(hidden, weight, bias, action, self.shape[0], self._gradient)
        return selected.unflatten(1, self.shape[1:])

    def _combine(self, means: Tensor) -> Tensor:
        """Return the rows [A · M, ...] of the actions from the rows [D · M, ...] of the sets."""
        sets = means.unflatten(0, (-1, self.shape[1]))
        return torch.einsum("ad,dm...->am...", self.basis, sets).flatten(0, 1)


class _OfActions(torch.autograd.Function):
    """x_b · weight[a_b]ᵀ + bias[a_b], [B, K], by one small product for each action.

    Autograd would build A gradients of the whole head, nearly all zeros, and add them.

    Inputs: x [B, H], weight [A · K, H], bias [A · K], action int64 [B], A, and memory for the
    gradient of the weight, which is used while the weight has no gradient to add to: fresh pages
    of tens of megabytes cost more than the products that fill them.
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
        grouped = x.new_empty(len(x), len(bias) // n_actions)  # [B, K]
        for w, b, rows, out in zip(
            weight.chunk(n_actions),
            bias.chunk(n_actions),
            x.split(ctx.counts),
            grouped.split(ctx.counts),
            strict=True,
        ):
            # With few rows the transposed product is a third faster than rows @ w.T.
            out.copy_(torch.addmm(b[:, None], w, rows.T).T)
        return torch.empty_like(grouped).index_copy_(0, ctx.order, grouped)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        n_actions = len(ctx.counts)
        of_weight = ctx.memory if weight.grad is None else torch.empty_like(weight)
        of_bias, grouped = torch.empty_like(bias), torch.empty_like(x)
        for w, rows, g, to_x, to_w, to_b in zip(
            weight.chunk(n_actions),
            x.split(ctx.counts),
            gradient[ctx.order].split(ctx.counts),
            grouped.split(ctx.counts),
            of_weight.chunk(n_actions),
            of_bias.chunk(n_actions),
            strict=True,
        ):
            torch.mm(g, w, out=to_x)
            torch.mm(g.T, rows, out=to_w)  # zeros for an action that no row has
            torch.sum(g, 0, out=to_b)
        of_x = torch.empty_like(grouped).index_copy_(0, ctx.order, grouped)
        # Autograd takes an alias as the gradient itself; it would copy the memory otherwise.
        return of_x, of_weight.detach(), of_bias, None, None, None
