"""Panels that compare the final scores of agents: improvements, aggregates and profiles."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.data.scores import BootstrapInterval
from rigor.report.data.text import signed
from rigor.report.figures.agent_curves import AgentStyles
from rigor.report.figures.style import COLOURS, dress, left_legend, line_style, new_figure
from rigor.report.tables.improvement import Improvement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AGGREGATES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "opt. gap"}
_LINEAR = 100.0  # percent; beyond it the axis of an improvement is logarithmic
_SYMLOG_TICKS = (-1000, -100, -50, 0, 50, 100, 300, 1000, 10_000, 100_000)


def improvement_panel(compared: Improvement, styles: AgentStyles) -> "Figure":
    """Draw the percentage improvement of each game, best first, in the colour of the winner."""
    figure = new_figure(4.2, 1.0 + 0.19 * len(compared.drawn), "")
    _bars(figure.subplots(), compared, styles)
    return figure


def improvement_figure(comparisons: Sequence[Improvement], titles: Sequence[str]) -> "Figure":
    """Draw comparisons side by side as one figure.

    Args:
      comparisons: each with at least one percentage. titles: one for each panel.
    """
    longest = max(len(compared.drawn) for compared in comparisons)
    figure = new_figure(6.0 * len(comparisons), 1.6 + 0.19 * longest, "")
    grid = figure.subplots(1, len(comparisons), squeeze=False)[0]
    for axes, compared, title in zip(grid, comparisons, titles, strict=True):
        _bars(axes, compared, {compared.agent: line_style(0), compared.baseline: line_style(1)})
        axes.set_title(textwrap.fill(title, 60), fontsize="medium")
    return figure


def aggregate_panel(rows: Sequence[Mapping[str, Any]], styles: AgentStyles) -> "Figure":
    """Draw the interquartile mean, median, mean and optimality gap of each agent."""
    labels = [_folded(row["agent"]) for row in reversed(rows)]
    lines = sum(max(2, label.count("\n") + 1) for label in labels)
    figure = new_figure(5.2, 0.9 + 0.21 * lines, "")
    grid = figure.subplots(1, len(_AGGREGATES), sharey=True)
    for axes, (name, title) in zip(grid, _AGGREGATES.items(), strict=True):
        for place, row in enumerate(reversed(rows)):
            _interval(axes, place, row, name, styles[row["agent"]]["color"])
        axes.set_title(title, fontsize="medium")
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.locator_params(axis="x", nbins=1)
        axes.tick_params(axis="x", labelsize="small")
        dress(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.supxlabel("normalised score", fontsize="medium")
    return figure


def probability_of_improvement_panel(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the probability that agent X scores higher than agent Y, with its interval."""
    sides = [[textwrap.fill(row[side], 36) for row in reversed(rows)] for side in ("x", "y")]
    lines = sum(max(x.count("\n"), y.count("\n")) + 2 for x, y in zip(*sides, strict=True))
    figure = new_figure(7.2, 1.0 + 0.17 * lines, "")
    axes = figure.subplots()
    opposite = axes.twinx()
    for place, row in enumerate(reversed(rows)):
        _interval(axes, place, row, "probability", COLOURS[0])
    for side, labels in zip((axes, opposite), sides, strict=True):
        side.set_yticks(range(len(rows)), labels, fontsize="small")
        side.set_ylim(-0.6, len(rows) - 0.4)
        side.tick_params(axis="y", length=0)
        dress(side)
        side.grid(False, axis="y")
    axes.axvline(0.5, color="0.4", linestyle=":", linewidth=1.2)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("P(X > Y)")
    axes.set_title("X", loc="left", fontsize="medium")
    axes.set_title("Y", loc="right", fontsize="medium")
    return figure


def profile_panel(
    thresholds: np.ndarray,
    profiles: Mapping[str, BootstrapInterval],
    styles: AgentStyles,
    player: str,
) -> "Figure":
    """Draw the fraction of runs above each normalised score.

    Args:
      thresholds: scores τ, ascending, [n]. profiles: by agent, with values and ends [n].
      player: whose score is 1.
    """
    names = {label: textwrap.fill(label, 48) for label in profiles}
    lines = sum(name.count("\n") + 1 for name in names.values())
    figure = new_figure(4.2, 3.1 + 0.2 * lines, "")
    axes = figure.subplots()
    for label, profile in profiles.items():
        style = styles[label]
        axes.fill_between(
            thresholds, profile.low, profile.high, color=style["color"], alpha=0.18, linewidth=0
        )
        axes.plot(thresholds, profile.value, linewidth=1.8, label=names[label], **style)
    if thresholds[0] <= 1.0 <= thresholds[-1]:
        axes.axvline(1.0, color="0.4", linestyle=":", linewidth=1.2)
        axes.annotate(player, (1.0, 1.0), (3, -2), textcoords="offset points", va="top")
    axes.set_xlim(thresholds[0], thresholds[-1])
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("normalised score τ")
    axes.set_ylabel("fraction of runs above τ")
    dress(axes)
    left_legend(figure, axes.get_legend_handles_labels()[0], 1)
    return figure


def _interval(axes: "Axes", place: int, row: Mapping[str, Any], name: str, colour: str) -> None:
    """Draw an interval as a bar and its value as a tick on it."""
    axes.hlines(place, row[f"{name}_low"], row[f"{name}_high"], color=colour, lw=7, alpha=0.35)
    axes.plot(row[name], place, "|", color=colour, markersize=13, markeredgewidth=2)


def _bars(axes: "Axes", compared: Improvement, styles: AgentStyles) -> None:
    rows = compared.drawn[::-1]
    percent = np.array([row["percent"] for row in rows])
    ends = np.array([[row["percent_low"], row["percent_high"]] for row in rows])
    places = np.arange(len(rows))
    winners = [compared.agent if value >= 0 else compared.baseline for value in percent]
    colours = [styles[winner]["color"] for winner in winners]
    axes.barh(places, percent, color=colours, height=0.72, alpha=0.7)
    axes.hlines(places, ends[:, 0], ends[:, 1], color="0.4", linewidth=0.9)
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    axes.set_yticks(
        places, [f"{row['environment']} *" if row["note"] else row["environment"] for row in rows]
    )
    axes.set_ylim(-0.7, len(rows) - 0.3)
    _percent_axis(axes, np.concatenate([percent, ends[np.isfinite(ends)], [0.0]]))
    for place, value in zip(places, percent, strict=True):
        axes.annotate(
            signed(value, 1 if abs(value) < 10 else 0),
            (1.0, place),
            (2, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_xlabel(f"improvement over {_cut(compared.baseline)}, %")


def _percent_axis(axes: "Axes", values: np.ndarray) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(1.15 * float(values.min()), -5.0), max(1.15 * float(values.max()), 5.0)
    if max(-low, high) > _LINEAR:
        axes.set_xscale("symlog", linthresh=_LINEAR, linscale=1.0)
        axes.xaxis.set_major_locator(FixedLocator([x for x in _SYMLOG_TICKS if low <= x <= high]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.locator_params(axis="x", nbins=6)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: signed(value)))
    dress(axes)
    axes.tick_params(axis="y", length=0, labelsize="small")
    axes.grid(False, axis="y")


def _cut(label: str, most: int = 34) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _folded(label: str) -> str:
    return textwrap.fill(label, 22)
