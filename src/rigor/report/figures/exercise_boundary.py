"""The policy of an exact agent on `env=american_put`: the prices at which it exercises."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.figures.style import COLOURS, dress, legend, new_figure, number, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXERCISE = 1
"""The action that exercises the put; the other action holds it."""

_SHADE = "#BBD9EE"


def exercise_boundary(prices: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
    """Return the highest price at which a policy exercises, currency, float64 [T].

    NaN stands for a decision that exercises at no price.

    Args:
      prices: of every grid point, currency, [n].
      actions: of each of T decisions, int [L_t, n]; only the lowest stock counts.
    """
    exercises = np.stack([rows[0] for rows in actions]) == EXERCISE  # [T, n]
    highest = np.where(exercises, prices, -np.inf).max(axis=1)
    return np.where(exercises.any(axis=1), highest, np.nan)


def boundary_figure(
    prices: np.ndarray,
    actions: Sequence[np.ndarray],
    strike: float,
    start: float,
    step_years: float,
    title: str = "Exercise boundary",
) -> "Figure":
    """Draw the prices at which a policy exercises a put, and the highest of them at every t.

    Args:
      prices: of every grid point, currency, ascending, [n].
      actions: at t = 0 ... N, each int [L_t, n]. At N, the maturity, every action exercises.
      strike: K, currency.
      start: P_0, currency.
      step_years: years between two decisions.
      title: of the figure.
    """
    before = actions[:-1]
    # At maturity the put pays at every price below the strike.
    boundary = np.append(exercise_boundary(prices, before), strike)
    region = np.stack([*(rows[0] == EXERCISE for rows in before), prices < strike], axis=1)
    low, high = _limits(boundary, strike, start)
    shown = (prices >= low) & (prices <= high)
    figure = new_figure(8.0, 5.4, title)
    axes = figure.subplots()
    if shown.any():
        _shade(axes, prices[shown], region[shown])
    axes.axhline(strike, color="0.25", linestyle="--", label=f"strike {number(strike)}")
    line: dict[str, Any] = {"color": COLOURS[0], "marker": "o", "markersize": 4, "linewidth": 1.8}
    axes.plot(boundary, label="highest price at which it exercises", **line)
    mark: dict[str, Any] = {"color": COLOURS[1], "markersize": 10, "clip_on": False}
    axes.plot([0], [start], ">", label=f"start {number(start)}", **mark)
    if np.isnan(boundary[:-1]).all():
        text = "never exercises before maturity"
        axes.text(0.5, 0.15, text, transform=axes.transAxes, ha="center", color="0.3")
    dress(axes)
    axes.set_xlim(-0.5, len(actions) - 0.5)
    axes.set_xticks(round_ticks(0, len(actions) - 1, 11))
    axes.set_ylim(low, high)
    axes.set_xlabel(f"t (steps of {number(step_years)} years)")
    axes.set_ylabel("price (currency)")
    legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def _limits(boundary: np.ndarray, strike: float, start: float) -> tuple[float, float]:
    known = [strike, start, *boundary[np.isfinite(boundary)]]
    low, high = float(min(known)), float(max(known))
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _shade(axes: "Axes", prices: np.ndarray, region: np.ndarray) -> None:
    """Shade the cells [n, N + 1] in which a policy exercises."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    axes.pcolormesh(
        np.arange(region.shape[1]),
        prices,
        np.ma.masked_equal(region, False),
        shading="nearest",
        cmap=ListedColormap([_SHADE]),
        rasterized=True,
    )
    # A mesh has no entry in a legend, so an empty rectangle carries its label.
    axes.add_patch(Rectangle((0.0, prices[0]), 0.0, 0.0, color=_SHADE, label="exercises"))
