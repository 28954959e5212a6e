"""What a discount and a risk measure of the user's own must give, asked once before a run starts.

rigor's own keep these promises by their tests. One that is broken would be silent nonsense later:
a discount that increases, a `value` that ranks other than `f`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rigor.errors import UserError

DISCOUNT = ("factor", "step_factor", "mixture", "atoms", "tail_factor")
RISK = ("f", "value", "oce", "needs_stock", "lipschitz")
"""Members; `rigor.maths.discount.Discount` and `rigor.maths.utility.Utility` say what each is."""

STEPS = 1000  # agent steps over which a discount is looked at
ROUNDING = 1e-6  # share by which two ways to the same number may differ


def check_discount(discount: Any) -> None:
    """Refuse a discount that increases, does not start at 1 or contradicts its own factors.

    Raises:
      UserError: naming the class, the member and what was found.
    """
    name = f"discount={type(discount).__name__}"
    _check_members(name, discount, DISCOUNT)
    t = np.arange(STEPS + 1)
    d = _array(name, "factor(t)", lambda: discount.factor(t), t.shape)
    step = _array(name, "step_factor(t)", lambda: discount.step_factor(t), t.shape)
    if abs(d[0] - 1.0) > ROUNDING:
        raise UserError(f"{name}: factor(0) is {d[0]:.6g}; a discount starts at 1")
    for member, values in (("factor", d), ("step_factor", step)):
        if (wrong := np.flatnonzero(~((values >= 0.0) & (values <= 1.0 + ROUNDING)))).size:
            raise UserError(
                f"{name}: {member}({wrong[0]}) is {values[wrong[0]]:.6g}; a discount lies from 0 "
                "to 1 and never increases"
            )
    if (rises := np.flatnonzero(np.diff(d) > ROUNDING * d[:-1])).size:
        at = rises[0]
        raise UserError(
            f"{name}: factor(t) rises from {d[at]:.6g} at t={at} to {d[at + 1]:.6g}; a discount "
            "never increases"
        )
    if (off := np.flatnonzero(np.abs(d[:-1] * step[:-1] - d[1:]) > ROUNDING * d[:-1])).size:
        at = off[0]
        raise UserError(
            f"{name}: step_factor({at}) is {step[at]:.6g}, but factor({at + 1})/factor({at}) is "
            f"{d[at + 1] / d[at]:.6g}; they must agree"
        )
    _check_parts(name, discount, d)


def _check_parts(name: str, discount: Any, d: np.ndarray) -> None:
    """Refuse mixtures that are none, and a limit out of range."""
    tail = _array(name, "tail_factor", lambda: discount.tail_factor, ())
    if not 0.0 <= tail <= 1.0:
        raise UserError(
            f"{name}: tail_factor is {tail}; the limit of step_factor(t) lies from 0 to 1"
        )
    if discount.mixture is not None and not hasattr(discount.mixture, "cdf"):
        raise UserError(f"{name}: mixture is a rigor.maths.discount.Mixture(gamma, cdf) or None")
    if discount.atoms is None:
        return
    t = np.arange(len(d))[:, None]
    sums = _array(
        name, "atoms", lambda: np.power(discount.atoms[0], t) @ discount.atoms[1], d.shape
    )
    if np.abs(sums - d).max() > ROUNDING:
        raise UserError(
            f"{name}: atoms are (gammas, weights) with factor(t) = sum of weights * gammas**t, or "
            f"None; their sum is off by {np.abs(sums - d).max():.2g}"
        )


def check_risk(risk: Any, learns: bool) -> None:
    """Refuse a risk measure whose f is no OCE utility, or whose members contradict f.

    Args:
      learns: whether a network is trained, so that `f` and `value` are given torch tensors.

    Raises:
      UserError: naming the class, the member and what was found.
    """
    name = f"risk={type(risk).__name__}"
    _check_members(name, risk, RISK)
    grid = np.array([-1.0, -0.3, -0.1, -0.01, 0.0, 0.01, 0.1, 0.3, 1.0])
    f = _array(name, "f(x)", lambda: risk.f(grid.reshape(3, 3)), (3, 3)).ravel()
    slopes = np.diff(f) / np.diff(grid)
    if abs(f[4]) > ROUNDING or (f > grid + ROUNDING).any():
        raise UserError(
            f"{name}: f(0) is {f[4]:.6g} and f(1) is {f[-1]:.6g}; a utility has f(0) = 0 and "
            "f(x) <= x, so that a sure reward is worth itself"
        )
    if slopes.min() < -ROUNDING or np.diff(slopes).max() > ROUNDING * max(1.0, slopes[0]):
        raise UserError(
            f"{name}: f does not increase concavely between -1 and 1, as a utility must"
        )
    returns = np.array([-1.0, 0.5, 2.0, 2.5])
    pair = _array(name, "oce(outcomes)", lambda: np.array(risk.oce(returns)), (2,))
    reached = float(np.mean(risk.f(pair[1] + returns)) - pair[1])
    if abs(reached - pair[0]) > 1e-4 * max(1.0, abs(pair[0])):
        raise UserError(
            f"{name}: oce says {pair[0]:.6g} at c={pair[1]:.6g}, where -c + mean f(c + x) is "
            f"{reached:.6g}; it returns that number and its c"
        )
    if learns:
        _check_tensors(name, risk)


def _check_tensors(name: str, risk: Any) -> None:
    """Refuse an `f` or `value` that a learner cannot use; [B, A, N] = [3, 4, 5]."""
    import torch

    draw = torch.Generator().manual_seed(0)
    stock = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    mass = torch.tensor([1.0, 0.5, 0.01], dtype=torch.float64)
    z = torch.randn(3, 4, 5, generator=draw, dtype=torch.float64)
    # a sure action beside a spread one of slightly larger mean: whoever minds risk tells them apart
    z[:, 0], z[:, 1] = 0.0, torch.linspace(-3.0, 3.2, 5, dtype=torch.float64)
    totals = stock[:, None, None] + mass[:, None, None] * z
    f = _tensor(name, "f(x)", lambda: risk.f(totals), (3, 4, 5)).mean(-1)
    value = _tensor(name, "value(stock, mass, z)", lambda: risk.value(stock, mass, z), (3, 4))
    difference, ranked = (x[:, :, None] - x[:, None, :] for x in (f, value))
    if ((difference > ROUNDING) & (ranked <= 0.0)).any():
        raise UserError(
            f"{name}: value(stock, mass, z) ranks actions other than the mean of "
            "f(stock + mass * z) does; it is (mean f(stock + mass * z) - f(stock)) / mass"
        )


def _check_members(name: str, choice: Any, members: tuple[str, ...]) -> None:
    if missing := [member for member in members if not hasattr(choice, member)]:
        group = name.partition("=")[0]
        raise UserError(
            f"{name}: has no {', '.join(missing)}; a {group} needs {', '.join(members)}"
        )


def _array(name: str, call: str, member: Callable[[], Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return what a member gives, numbers of that shape."""
    found = _asked(name, call, member)
    try:
        array = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {call} gives {found!r}, not numbers; {error}") from error
    if array.shape != shape:
        raise UserError(f"{name}: {call} gives shape {array.shape} where {shape} is due")
    if np.isnan(array).any():
        raise UserError(f"{name}: {call} gives nan")
    return array


def _tensor(name: str, call: str, member: Callable[[], Any], shape: tuple[int, ...]) -> Any:
    """Return what a member gives for torch tensors, a finite tensor of that shape."""
    import torch

    found = _asked(name, f"{call} of torch tensors", member)
    if not isinstance(found, torch.Tensor) or found.shape != shape or not found.isfinite().all():
        gives = f"{type(found).__name__} of shape {tuple(getattr(found, 'shape', ()))}"
        raise UserError(
            f"{name}: {call} of torch tensors gives {gives}; a finite tensor of {shape} is due"
        )
    return found


def _asked(name: str, call: str, member: Callable[[], Any]) -> Any:
    try:
        return member()
    except Exception as error:  # whatever the user's code raises is theirs to mend
        raise UserError(f"{name}: {call} raised {type(error).__name__}: {error}") from error
