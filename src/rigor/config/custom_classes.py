"""Checks of a user's own environment, discount and risk measure, made once before a run starts.

rigor's own classes keep these promises by their tests. A broken promise would give wrong numbers
without an error: for example a discount that increases, or a `value` that ranks other than `f`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from rigor.errors import UserError
from rigor.maths.utility import facts_of

ENVIRONMENT = ("problem",)
DISCOUNT = ("factor", "step_factor", "mixture", "atoms", "tail_factor")
COPIES = (
    "n_envs",
    "n_actions",
    "observation_shape",
    "observation_dtype",
    "max_time",
    "time_scale",
    "frame_stack",
    "frames_per_step",
    "problem",
    "reset",
    "step",
    "learner_reward",
    "state",
    "restore",
    "close",
)
"""Required members of what an environment's `make` returns; see `rigor.envs.vector.VectorEnv`."""

RISK = ("f", "value", "oce", "needs_stock", "lipschitz")
"""Required members; see `rigor.envs.problem`, `Discount` and `Utility` in `rigor.maths`."""

STEPS = 1000  # agent steps over which a discount is checked
ROUNDING = 1e-6  # relative difference allowed between two ways to compute a number


def check_environment(name: str, env: Any, learns: bool) -> None:
    """Refuse an environment without the attribute `problem`, which may be None.

    Args:
      name: the choice as the user typed it, such as `env=mine`.
      env: the environment's schema.
      learns: whether a learner plays the environment, and so needs `num_envs` and `make`.

    Raises:
      UserError: naming the environment and the missing member.
    """
    _check_members(name, env, (*ENVIRONMENT, "num_envs", "make") if learns else ENVIRONMENT)


def check_copies(name: str, copies: Any) -> None:
    """Refuse copies of an environment that lack a member, or whose stacks have another length.

    Args:
      name: the choice as the user typed it, such as `env=mine`.
      copies: the result of `make`.

    Raises:
      UserError: naming the environment and the member.
    """
    what = f"{name}: the result of make()"
    _check_members(what, copies, COPIES)
    stack, shape = copies.frame_stack, tuple(copies.observation_shape)
    if stack > 1 and shape[0] != stack:
        raise UserError(
            f"{what}: frame_stack is {stack}, but observations have the shape {shape}; a stack has "
            "its frames along the first axis; an observation that is no stack has frame_stack=1"
        )


def check_discount(name: str, discount: Any) -> None:
    """Refuse a discount that increases, does not start at 1 or contradicts its own factors.

    Args:
      name: the choice as the user typed it, such as `discount=mine`.

    Raises:
      UserError: naming the choice, the member and its value.
    """
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
    _check_mixture(name, discount, d)


def _check_mixture(name: str, discount: Any, d: np.ndarray) -> None:
    """Refuse a mixture or atoms that do not give the discount, and a limit out of range."""
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


def check_risk(name: str, risk: Any, learns: bool) -> None:
    """Refuse a risk measure whose f is no OCE utility, or whose members contradict f.

    Args:
      name: the choice as the user typed it, such as `risk=mine`.
      learns: whether a network is trained, so that `f` and `value` are given torch tensors.

    Raises:
      UserError: naming the choice, the member and its value.
    """
    _check_members(name, risk, RISK)
    grid = np.array([-1.0, -0.3, -0.1, -0.01, 0.0, 0.01, 0.1, 0.3, 1.0])
    f = _array(name, "f(x)", lambda: risk.f(grid.reshape(3, 3)), (3, 3)).ravel()
    slopes = np.diff(f) / np.diff(grid)
    if abs(f[4]) > ROUNDING or (f > grid + ROUNDING).any():
        raise UserError(
            f"{name}: f(0) is {f[4]:.6g} and f(1) is {f[-1]:.6g}; a utility has f(0) = 0 and "
            "f(x) <= x, so that a certain reward is worth itself"
        )
    if slopes.min() < -ROUNDING or np.diff(slopes).max() > ROUNDING * max(1.0, slopes[0]):
        raise UserError(
            f"{name}: f does not increase concavely between -1 and 1, as a utility must"
        )
    _check_facts(name, risk)
    returns = np.array([-1.0, 0.5, 2.0, 2.5])
    pair = _array(name, "oce(outcomes)", lambda: np.array(risk.oce(returns)), (2,))
    reached = float(np.mean(risk.f(pair[1] + returns)) - pair[1])
    if abs(reached - pair[0]) > 1e-4 * max(1.0, abs(pair[0])):
        raise UserError(
            f"{name}: oce returns {pair[0]:.6g} with c={pair[1]:.6g}, where -c + mean f(c + x) is "
            f"{reached:.6g}; it must return this number and its c"
        )
    if learns:
        _check_tensors(name, risk)


def _check_facts(name: str, risk: Any) -> None:
    """Refuse facts that f contradicts: the solvers would rely on them."""
    facts, x = facts_of(risk), np.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])
    f = np.asarray(risk.f(x))
    if (rate := facts.exponential_rate) is not None:
        stated = x if rate == 0.0 else np.expm1(rate * x) / rate
        if np.abs(f - stated).max() > ROUNDING * np.abs(stated).max():
            raise UserError(
                f"{name}: facts.exponential_rate is {rate:g}, but f is not (exp({rate:g} x) - 1) / "
                f"{rate:g} (or x, for a rate of 0); leave out facts that do not hold"
            )
    if facts.kink_slopes is not None:
        above, below = facts.kink_slopes
        stated = np.where(x > 0.0, above, below) * x
        if np.abs(f - stated).max() > ROUNDING * max(1.0, abs(below)):
            raise UserError(
                f"{name}: facts.kink_slopes are {above:g} and {below:g}, but f is not linear with "
                "these slopes above and below 0; leave out facts that do not hold"
            )
    slopes = np.diff(f) / np.diff(x)
    falls = -np.diff(slopes) / (np.diff(x)[1:] + np.diff(x)[:-1]) * 2.0
    if falls.max() > facts.curvature * (1.0 + ROUNDING) + ROUNDING:
        raise UserError(
            f"{name}: facts.curvature is {facts.curvature:g}, but the slope of f falls by "
            f"{falls.max():.4g} per unit; leave out facts that do not hold"
        )


def _check_tensors(name: str, risk: Any) -> None:
    """Refuse an `f` or `value` that a learner cannot use; [B, A, N] = [3, 4, 5]."""
    import torch

    generator = torch.Generator().manual_seed(0)
    stock = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    discount = torch.tensor([1.0, 0.5, 0.01], dtype=torch.float64)
    z = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    # Action 0 is certain and action 1 risky with a slightly larger mean: only an f that is averse
    # to risk ranks them other than the mean does.
    z[:, 0], z[:, 1] = 0.0, torch.linspace(-3.0, 3.2, 5, dtype=torch.float64)
    outcomes = stock[:, None, None] + discount[:, None, None] * z
    f = _tensor(name, "f(x)", lambda: risk.f(outcomes), (3, 4, 5)).mean(-1)
    value = _tensor(
        name, "value(stock, discount, z)", lambda: risk.value(stock, discount, z), (3, 4)
    )
    difference, ranked = (x[:, :, None] - x[:, None, :] for x in (f, value))
    if ((difference > ROUNDING) & (ranked <= 0.0)).any():
        raise UserError(
            f"{name}: value(stock, discount, z) ranks actions other than the mean of "
            "f(stock + discount * z) does; it is "
            "(mean f(stock + discount * z) - f(stock)) / discount"
        )


def _check_members(name: str, choice: Any, members: tuple[str, ...]) -> None:
    if missing := [member for member in members if not hasattr(choice, member)]:
        group = name.partition("=")[0]
        raise UserError(f"{name}: has no {', '.join(missing)}; {group} needs {', '.join(members)}")


def _array(name: str, call: str, member: Callable[[], Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return the numbers that a member gives; refuse another shape."""
    found = _call(name, call, member)
    try:
        array = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: {call} gives {found!r}, not numbers; {error}") from error
    if array.shape != shape:
        raise UserError(f"{name}: {call} gives shape {array.shape}; it must be {shape}")
    if np.isnan(array).any():
        raise UserError(f"{name}: {call} gives nan")
    return array


def _tensor(name: str, call: str, member: Callable[[], Any], shape: tuple[int, ...]) -> Any:
    """Return the tensor that a member gives for tensors; refuse another shape, nan and inf."""
    import torch

    found = _call(name, f"{call} of torch tensors", member)
    if not isinstance(found, torch.Tensor) or found.shape != shape or not found.isfinite().all():
        gives = f"{type(found).__name__} of shape {tuple(getattr(found, 'shape', ()))}"
        raise UserError(
            f"{name}: {call} of torch tensors gives {gives}; it must be a finite tensor of {shape}"
        )
    return found


def _call(name: str, call: str, member: Callable[[], Any]) -> Any:
    try:
        return member()
    except Exception as error:  # the user's code can raise anything
        raise UserError(f"{name}: {call} raised {type(error).__name__}: {error}") from error
