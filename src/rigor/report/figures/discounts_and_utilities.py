"""The discounts and the utilities that a user can choose, as curves."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rigor.maths.discount import Discount
from rigor.maths.utility import Utility
from rigor.report.figures.style import COLOURS, DASHES, dress, legend, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def discount_curves(discounts: Mapping[str, Discount], steps: int) -> "Figure":
    """Draw d_t and d_{t+1}/d_t for t = 0 ... steps, in a panel each (figure 5 of the paper).

    Args:
      discounts: by label. Colours follow their order; the legend is sorted by d_t at the end.
      steps: the last t, agent steps.
    """
    t = np.arange(steps + 1)
    figure = new_figure(11.0, 5.6, "Discounts and their one-step factors")
    left, right = figure.subplots(1, 2)
    lines = {}
    for i, (label, discount) in enumerate(discounts.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": _dashes(i), "linewidth": 2.0}
        (lines[label],) = left.plot(t, discount.factor(t), label=label, **style)
        right.plot(t, discount.step_factor(t), label=label, **style)
    for axes, name in ((left, "discount $d_t$"), (right, "one-step factor $d_{t+1}/d_t$")):
        dress(axes)
        axes.set_xlabel("t (agent steps)")
        axes.set_ylabel(name)
        axes.set_xlim(0, steps)
    left.set_ylim(0.0, 1.03)
    _limit_factors(right, {label: d.step_factor(t) for label, d in discounts.items()})
    order = sorted(discounts, key=lambda label: -float(discounts[label].factor(steps)))
    legend(figure, [lines[label] for label in order], 2)
    return figure


def utility_curves(
    utilities: Mapping[str, Utility], low: float = -2.0, high: float = 2.0
) -> "Figure":
    """Draw the utilities f(x) of OCE risk measures (figure 2 of the paper).

    Args:
      utilities: by label.
      low, high: the ends of x, reward units, around 0.
    """
    x = np.unique(np.append(np.linspace(low, high, 401), 0.0))  # with the kinks at 0
    figure = new_figure(7.0, 5.8, "Utilities f of OCE risk measures")
    axes = figure.subplots()
    lines = []
    for i, (label, utility) in enumerate(utilities.items()):
        lines += axes.plot(x, utility.f(x), linewidth=2.2, label=label, **line_style(i))
    dress(axes)
    ends = [utility.f(np.array([low, high])) for utility in utilities.values()]
    # The axis cuts off the steepest losses, so that the other curves remain distinct.
    bottom = 1.15 * min(float(np.median([end[0] for end in ends])), low)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, 1.15 * max(high, *(float(end[1]) for end in ends)))
    _mark_origin(axes, (0.22 * high, 0.45 * bottom))
    axes.set_xlabel("x (reward units)")
    axes.set_ylabel("utility f(x)")
    legend(figure, lines, 2)
    return figure


def _dashes(index: int) -> str:
    """Return solid for the paper's three discounts, and dashes for all others.

    A dashed line on top of an equal solid line leaves both visible.
    """
    return "-" if index < 3 else DASHES[1 + (index - 3) // len(COLOURS) % (len(DASHES) - 1)]


def _limit_factors(axes: "Axes", factors: Mapping[str, np.ndarray]) -> None:
    """Set the limits by the factors after t = 0, and write down lower factors at t = 0."""
    lowest = min(float(factor[1:].min(initial=factor[-1])) for factor in factors.values())
    bottom = lowest - 0.1 * (1.0 - lowest) - 1e-3
    axes.set_ylim(bottom, 1.0 + 0.05 * (1.0 - bottom))
    below = [
        f"{label.partition(' (')[0]} starts at {factor[0]:.3g}"
        for label, factor in factors.items()
        if factor[0] < bottom
    ]
    axes.text(0.03, 0.03, "\n".join(below), transform=axes.transAxes, color="0.3")


def _mark_origin(axes: "Axes", text_at: tuple[float, float]) -> None:
    """Draw the common properties of utilities: f(0) = 0 and a tangent of slope 1."""
    axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=1)
    axes.axvline(0.0, color="0.6", linewidth=0.8, zorder=1)
    axes.axline((0.0, 0.0), slope=1.0, color="black", linestyle=":", linewidth=1.2, zorder=4)
    axes.plot([0.0], [0.0], "o", color="black", markersize=6, zorder=5)
    axes.annotate(
        "f(0) = 0, and the line of slope 1\n(dotted) touches every f there",
        (0.0, 0.0),
        text_at,
        arrowprops={"arrowstyle": "->", "color": "0.3", "shrinkB": 5},
    )
