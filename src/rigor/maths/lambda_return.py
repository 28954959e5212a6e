"""Targets of one step, of n steps, and λ-returns, for any discount.

A target is affine in what follows its step: G_k = start_k + slope_k · G_{k+1}. For quantiles of
horizon i, start is the reward and slope is (1 − terminated) · step_factors_i(t); for the normalised
expected utility see `rigor.maths.expected_utility.recursion`. Targets of several steps are
compositions of such maps.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def one_step(
    reward: np.ndarray, terminated: np.ndarray, step_factors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return start = r and slope = (1 − terminated) · step_factors_i(t), [B, M] each (erratum E22).

    Args:
      reward: r, [B]. terminated: bool [B]; a truncated transition bootstraps.
      step_factors: γ_i, or d̂_t for one horizon, [B, M].
    """
    assert reward.shape == terminated.shape == step_factors.shape[:1], (
        reward.shape,
        step_factors.shape,
    )
    start = np.broadcast_to(reward[:, None], step_factors.shape)
    return start, ~terminated[:, None] * step_factors


def n_step(start: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return start and slope of n steps in one, [...] each, from those of the steps, [n, ...].

    A step with start 0 and slope 1 is skipped. Where start is nan, the target is not defined; in a
    later step that counts as 0.
    """
    total, factor = start[-1], slope[-1]
    for first, multiple in zip(start[-2::-1], slope[-2::-1], strict=True):
        total, factor = first + multiple * np.nan_to_num(total), multiple * factor
    return total, factor


def target(start: "Tensor", slope: "Tensor", after: "Tensor") -> "Tensor":
    """Return y_ij = start_i + slope_i · after_ij, [B, M, N].

    Args:
      start, slope: of a step, or of n steps in one, [B, M].
      after: what follows, [B, M, N]; for quantiles ξ⁻_ij(s′, t + n, S′, a′) of the target network.
    """
    assert start.shape == slope.shape == after.shape[:2], (start.shape, after.shape)
    return start[..., None] + slope[..., None] * after


def lambda_returns(
    start: "Tensor", slope: "Tensor", bootstrap: "Tensor", continues: "Tensor"
) -> "Tensor":
    """Return G_k = start_k + slope_k · (go_k G_{k+1} + (1 − go_k) bootstrap_{k+1}), [T, E, M, N].

    With go = λ this is the λ-return. With go drawn from Bernoulli(λ) it is the return of a random
    number of steps, distributed like the λ-return's mixture; one draw a row serves all starts.

    Args:
      start, slope: of T rows of E environments, [T, E, M].
      bootstrap: predictions of what follows, at T + 1 rows, [T + 1, E, M, N].
      continues: go in [0, 1], [T, E, M]; 0 where row k + 1 is the last one, or an autoreset.
    """
    assert start.shape == slope.shape == continues.shape, (start.shape, continues.shape)
    assert bootstrap.shape[:-1] == (len(start) + 1, *start.shape[1:]), bootstrap.shape
    returns = bootstrap[1:].clone()
    following = bootstrap[-1]
    for k in reversed(range(len(start))):
        after = bootstrap[k + 1].lerp(following, continues[k, ..., None])
        returns[k] = start[k, ..., None] + slope[k, ..., None] * after
        following = returns[k]
    return returns
