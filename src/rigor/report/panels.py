"""The figures of a report: small panels that a page lays side by side, and their files."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.agents import Agent
from rigor.report.figures import mean_curve
from rigor.report.improvement import Improvement
from rigor.report.scores import Estimate
from rigor.report.style import COLOURS, dress, key, key_room, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Styles = Mapping[str, dict[str, Any]]
"""The colour and dashes of each agent's label, the same in all figures."""

_LINEAR = 100.0  # percent; beyond that the axis of an improvement is logarithmic
_GRID_COLUMNS = 5
_SYMLOG_TICKS = (-1000, -100, -50, 0, 50, 100, 300, 1000, 10_000, 100_000)


def styles(agents: Sequence[Agent]) -> Styles:
    """Give each agent its line, those that have learning curves first."""
    ordered = sorted(agents, key=lambda one: not environments_with_curves([one]))
    return {one.label: line_style(i) for i, one in enumerate(ordered)}


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw names as they are: a dollar sign in one is no mathematics."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False, "font.size": 9}):
        yield


def environments_with_curves(agents: Sequence[Agent]) -> list[str]:
    """Return the environments that have an evaluation of a learner to show."""
    return sorted(
        {
            name
            for one in agents
            for name, runs in one.runs.items()
            if any(len(run.curve) and run.curve["steps"].max() > 0 for run in runs)
        }
    )


def curve_panel(agents: Sequence[Agent], environment: str, look: Styles) -> "Figure":
    """Draw the learning curves of one environment, a panel by itself."""
    figure = new_figure(2.5, 2.0, "")
    _curves(figure.subplots(), agents, environment, look)
    return figure


def curve_grid(agents: Sequence[Agent], environments: Sequence[str], look: Styles) -> "Figure":
    """Draw the learning curves of all environments as one figure, for a file."""
    columns = min(_GRID_COLUMNS, len(environments))
    rows = -(-len(environments) // columns)
    drawn = [one.label for one in agents if environments_with_curves([one])]
    width, in_key, below = key_room(drawn, max(2.4 * columns, 4.8))
    figure = new_figure(width, 1.9 * rows + 0.9 + below, "Evaluation score against agent steps")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(grid, environments, strict=False):
        _curves(axes, agents, name, look)
    for axes in grid[len(environments) :]:
        axes.remove()
    _name_agents(figure, drawn, look, in_key)
    return figure


def improvement_panel(one: Improvement, look: Styles) -> "Figure":
    """Draw the percentage improvement of each game as a bar in the winner's colour, best first."""
    figure = new_figure(4.2, 1.0 + 0.19 * len(one.drawn), "")
    _bars(figure.subplots(), one, look)
    return figure


def improvement_figure(compared: Sequence[Improvement], titles: Sequence[str]) -> "Figure":
    """Draw comparisons side by side as one figure, for a file.

    Args:
      compared: that have something to draw. titles: of the panels.
    """
    longest = max(len(one.drawn) for one in compared)
    figure = new_figure(6.0 * len(compared), 1.6 + 0.19 * longest, "")
    grid = figure.subplots(1, len(compared), squeeze=False)[0]
    for axes, one, title in zip(grid, compared, titles, strict=True):
        _bars(axes, one, {one.agent: line_style(0), one.baseline: line_style(1)})
        axes.set_title(textwrap.fill(title, 60), fontsize="medium")
    return figure


def aggregate_panel(rows: Sequence[Mapping[str, Any]], look: Styles) -> "Figure":
    """Draw interquartile mean, median and mean of each agent with their intervals."""
    names = {"iqm": "IQM", "median": "median", "mean": "mean"}
    names_of_rows = [_folded(row["agent"]) for row in reversed(rows)]
    lines = sum(max(2, name.count("\n") + 1) for name in names_of_rows)
    figure = new_figure(4.2, 0.9 + 0.21 * lines, "")
    for axes, (name, title) in zip(figure.subplots(1, 3, sharey=True), names.items(), strict=True):
        for place, row in enumerate(reversed(rows)):
            colour = look[row["agent"]]["color"]
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            axes.hlines(place, low, high, color=colour, linewidth=7, alpha=0.35)
            axes.plot(row[name], place, "|", color=colour, markersize=13, markeredgewidth=2)
        axes.set_title(title, fontsize="medium")
        axes.set_yticks(range(len(rows)), names_of_rows)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.locator_params(axis="x", nbins=2)
        dress(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.supxlabel("human-normalised score", fontsize="medium")
    return figure


def duel_panel(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the probability of improvement of each pair with its interval."""
    names = [f"{_folded(row['x'])}\nover {_folded(row['y'])}" for row in reversed(rows)]
    figure = new_figure(4.2, 0.8 + 0.22 * sum(name.count("\n") + 1 for name in names), "")
    axes = figure.subplots()
    for place, row in enumerate(reversed(rows)):
        low, high = row["probability_low"], row["probability_high"]
        axes.hlines(place, low, high, color=COLOURS[0], linewidth=7, alpha=0.35)
        axes.plot(
            row["probability"], place, "|", color=COLOURS[0], markersize=13, markeredgewidth=2
        )
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.axvline(0.5, color="0.4", linestyle=":", linewidth=1.2)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("P(X > Y)")
    dress(axes)
    return figure


def profile_panel(thresholds: np.ndarray, found: Mapping[str, Estimate], look: Styles) -> "Figure":
    """Draw the share of runs above each human-normalised score."""
    names = {label: textwrap.fill(label, 48) for label in found}
    lines = sum(name.count("\n") + 1 for name in names.values())
    figure = new_figure(4.2, 3.1 + 0.2 * lines, "")
    axes = figure.subplots()
    for label, one in found.items():
        axes.fill_between(
            thresholds, one.low, one.high, color=look[label]["color"], alpha=0.18, linewidth=0
        )
        axes.plot(thresholds, one.value, linewidth=1.8, label=names[label], **look[label])
    if thresholds[0] <= 1.0 <= thresholds[-1]:
        axes.axvline(1.0, color="0.4", linestyle=":", linewidth=1.2)
        axes.annotate("human", (1.0, 1.0), (3, -2), textcoords="offset points", va="top")
    axes.set_xlim(thresholds[0], thresholds[-1])
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("human-normalised score τ")
    axes.set_ylabel("share of runs above τ")
    dress(axes)
    key(figure, axes.get_legend_handles_labels()[0], 1, "")
    return figure


def _bars(axes: "Axes", one: Improvement, look: Styles) -> None:
    rows = one.drawn[::-1]
    percent = np.array([row["percent"] for row in rows])
    places = np.arange(len(rows))
    colours = [look[one.agent if value >= 0 else one.baseline]["color"] for value in percent]
    axes.barh(places, percent, color=colours, height=0.72, alpha=0.7)
    ends = np.array([[row["percent_low"], row["percent_high"]] for row in rows])
    axes.hlines(places, ends[:, 0], ends[:, 1], color="0.4", linewidth=0.9)
    axes.axvline(0.0, color="0.4", linewidth=0.8)
    axes.set_yticks(places, [_marked(row) for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    _percent_axis(axes, np.concatenate([percent, ends[np.isfinite(ends)], [0.0]]))
    for place, value in zip(places, percent, strict=True):
        axes.annotate(
            _signed(value, 1 if abs(value) < 10 else 0),
            (1.0, place),
            (2, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_xlabel(f"improvement over {_short(one.baseline)}, %")


def _curves(axes: "Axes", agents: Sequence[Agent], environment: str, look: Styles) -> None:
    from matplotlib.ticker import EngFormatter

    for one in agents:
        style = look[one.label]
        curves = [run.curve for run in one.runs.get(environment, []) if len(run.curve)]
        for curve in curves if len(curves) > 1 else ():
            axes.plot(curve["steps"], curve["eval_score"], linewidth=0.6, alpha=0.4, **style)
        if not curves:
            continue
        mean = mean_curve(curves, "eval_score")
        marker = "o" if len(mean) < 3 else ""
        axes.plot(
            mean["steps"], mean["eval_score"], marker=marker, markersize=3, linewidth=1.7, **style
        )
    axes.set_title(environment, fontsize="medium")
    axes.tick_params(labelsize="small")
    axes.locator_params(nbins=4)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    dress(axes)


def _name_agents(figure: "Figure", labels: Sequence[str], look: Styles, columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linewidth=2, label=label, **look[label]) for label in labels]
    key(figure, handles, columns, "thick: mean over seeds; thin: one seed")


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
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value)))
    dress(axes)
    axes.tick_params(axis="y", length=0, labelsize="small")
    axes.grid(False, axis="y")


def _signed(percent: float, decimals: int = 0) -> str:
    return f"{percent:+,.{decimals}f}" if round(percent, decimals) else "0"


def _marked(row: Mapping[str, Any]) -> str:
    return f"{row['game']} *" if row["note"] else str(row["game"])


def _short(label: str, most: int = 34) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def _folded(label: str) -> str:
    return textwrap.fill(label, 22)
