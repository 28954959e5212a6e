"""Utilities that are linear on both sides of 0, and their stable difference from a stock."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace

Array = Any  # a numpy array or a torch tensor; torch is never imported here


def ratio(stock: Array, discount: Array) -> Array:
    """Return stock/discount, with 0/0 = 0 and ±inf for any other stock over a discount of 0."""
    xp = array_namespace(stock)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return xp.where(stock == 0.0, xp.zeros_like(stock), stock / discount)


def piecewise_linear(x: Array, gain: float, loss: float) -> Array:
    """Return gain·max(x, 0) + loss·min(x, 0)."""
    xp = array_namespace(x)
    return gain * xp.clip(x, min=0.0) + loss * xp.clip(x, max=0.0)


def piecewise_linear_value(
    stock: Array, discount: Array, z: Array, gain: float, loss: float
) -> Array:
    """Return mean_j (f(C + z_j) − f(C)), [B, A], C = S/D, without subtracting large numbers.

    For C <= 0 the summand is κ₂ min(z, −C) + κ₁ max(z + C, 0): slope κ₂ up to the kink and κ₁
    beyond it. For C > 0 it is κ₁ max(z, −C) + κ₂ min(z + C, 0). `gain` is κ₁ and `loss` is κ₂.
    """
    xp = array_namespace(z)
    c = ratio(stock, discount)[:, None, None]  # [B, 1, 1]
    shortfall, surplus = xp.clip(c, max=0.0), xp.clip(c, min=0.0)  # no 0·inf in the other branch
    below = loss * xp.minimum(z, -shortfall) + gain * xp.clip(z + shortfall, min=0.0)
    above = gain * xp.maximum(z, -surplus) + loss * xp.clip(z + surplus, max=0.0)
    return xp.mean(xp.where(c <= 0.0, below, above), axis=-1)
