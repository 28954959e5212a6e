"""Learning curves of runs as one PNG."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.report.data.labels import shorten
from rigor.report.figures.style import (
    dress,
    engineering_ticks,
    left_legend,
    legend_room,
    line_style,
    new_figure,
    save_png,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

_SEED = re.compile(r"[-_ /,]*\b(s|seed)[ =]?\d+(-[0-9a-f]{8})?$")

STOPPED = "×: a seed that ended early, and with it the mean"
"""How to read the crosses of `mark_stopped`."""

_ENDED = 0.95  # of the steps of the longest seed

Seeds = list["pd.DataFrame"]
"""The metrics of the runs that differ only in their seed."""


def learning_curves(
    runs: Sequence[tuple[str, "pd.DataFrame"]],
    path: Path | str,
    title: str = "Learning curves",
    objective: bool = True,
) -> Path:
    """Draw evaluation scores against agent steps into one PNG, and return its path.

    Runs whose labels differ only in the seed (`...-s0-1a2b3c4d`, `... seed 0`) share a colour and
    an entry in the legend: a thin line for each seed and a thick line for their mean.

    Args:
      runs: (label, metrics) pairs. The columns `steps`, `eval_score`, `eval_score_low` and
        `eval_score_high` are drawn, and those of `eval_objective` if there are any.
      path: the PNG to write.
      title: of the figure.
      objective: False leaves out the panel of the objective.

    Raises:
      UserError: the disk is full or the path is not writable.
    """
    panels = [("eval_score", "score")]
    if objective and any(len(_points(metrics, "eval_objective")) for _, metrics in runs):
        panels.append(("eval_objective", "objective (of the discounted return)"))
    groups = _groups(runs)
    pattern, names = shorten(list(groups))
    if pattern:
        title = f"{title} of {pattern}"
    labels = [_label(name, seeds) for name, seeds in zip(names, groups.values(), strict=True)]
    width, columns, below = legend_room(labels, 7.0 if len(panels) == 1 else 12.0)
    figure = new_figure(width, 4.6 + below, title)
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (column, label) in zip(row, panels, strict=True):
        _panel(axes, dict(zip(labels, groups.values(), strict=True)), column)
        axes.set_xlabel("agent steps")
        axes.set_ylabel(label)
    if groups:
        handles, _ = row[0].get_legend_handles_labels()
        left_legend(figure, handles, columns, _explanation(groups))
    return save_png(figure, path, dpi=150)


def without_seed(label: str) -> str:
    """Return a run's label without its seed and hash, or a label of nothing else unchanged."""
    return _SEED.sub("", label) or label


def mean_curve(curves: "Sequence[pd.DataFrame]", column: str) -> "pd.DataFrame":
    """Return the mean over seeds at the steps that all seeds reach, interpolated linearly."""
    import pandas as pd

    steps, values = shared_points(curves, column)
    return pd.DataFrame({"steps": steps, column: values.mean(axis=0)})


def shared_points(curves: "Sequence[pd.DataFrame]", column: str) -> "tuple[np.ndarray, np.ndarray]":
    """Return the steps [n] that all k seeds reach and their interpolated values there [k, n]."""
    import numpy as np

    first = max(points["steps"].iloc[0] for points in curves)
    last = min(points["steps"].iloc[-1] for points in curves)
    steps = np.unique(np.concatenate([points["steps"].to_numpy() for points in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = [np.interp(steps, points["steps"], points[column]) for points in curves]
    return steps, np.array(values)


def mark_stopped(axes: "Axes", curves: "Sequence[pd.DataFrame]", column: str, colour: str) -> None:
    """Mark with a cross where a seed ends before the longest one: the mean goes no further."""
    last = max((curve["steps"].iloc[-1] for curve in curves), default=0)
    for curve in curves:
        if curve["steps"].iloc[-1] < _ENDED * last:
            axes.plot(
                curve["steps"].iloc[-1:], curve[column].iloc[-1:], "x", color=colour, zorder=4
            )


def marker(n_points: int) -> str:
    """Return the marker of a curve: one or two points would be invisible as a line."""
    return "o" if n_points < 3 else ""


def _groups(runs: Sequence[tuple[str, "pd.DataFrame"]]) -> dict[str, Seeds]:
    groups: dict[str, Seeds] = {}
    for label, metrics in runs:
        groups.setdefault(without_seed(label), []).append(metrics)
    return groups


def _label(name: str, seeds: Seeds) -> str:
    label = name if len(seeds) == 1 else f"{name} ({len(seeds)} seeds)"
    evaluated = any(len(_points(metrics, "eval_score")) for metrics in seeds)
    return label if evaluated else f"{label}: no evaluation yet"


def _explanation(groups: dict[str, Seeds]) -> str:
    shaded = "shaded: 95 % interval over evaluation episodes"
    if all(len(seeds) == 1 for seeds in groups.values()):
        return shaded
    return f"thick: mean over seeds; thin: one seed; {STOPPED}; {shaded}"


def _points(metrics: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Return the rows with a value in `column`; the other rows log only training."""
    if not {"steps", column} <= set(metrics.columns):
        return metrics.iloc[:0]
    return metrics[metrics[column].notna()]


def _panel(axes: "Axes", groups: dict[str, Seeds], column: str) -> None:
    dress(axes)
    is_empty = True
    for index, (label, seeds) in enumerate(groups.items()):
        style = line_style(index)
        curves = [points for metrics in seeds if len(points := _points(metrics, column))]
        if curves:
            is_empty = False
            _draw_seeds(axes, curves, column, label, style)
        else:
            axes.plot([], [], label=label, **style)
    if is_empty:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no evaluation yet", transform=axes.transAxes, ha="center", color="0.4")
        return
    engineering_ticks(axes.xaxis)
    engineering_ticks(axes.yaxis)
    axes.set_xlim(left=0)


def _draw_seeds(
    axes: "Axes", curves: Seeds, column: str, label: str, style: dict[str, Any]
) -> None:
    """Draw the mean of some seeds, and each seed if there are several."""
    is_alone = len(curves) == 1
    for points in curves:
        _draw_interval(axes, points, column, style["color"], 0.22 if is_alone else 0.08)
        if not is_alone:
            _draw_curve(axes, points, column, linewidth=0.8, alpha=0.5, **style)
    mark_stopped(axes, curves, column, style["color"])
    mean = curves[0] if is_alone else mean_curve(curves, column)
    _draw_curve(axes, mean, column, linewidth=2.0 if is_alone else 2.4, label=label, **style)


def _draw_curve(axes: "Axes", points: "pd.DataFrame", column: str, **style: Any) -> None:
    axes.plot(points["steps"], points[column], marker=marker(len(points)), markersize=4, **style)


def _draw_interval(
    axes: "Axes", points: "pd.DataFrame", column: str, colour: str, alpha: float
) -> None:
    low, high = f"{column}_low", f"{column}_high"
    if not {low, high} <= set(points.columns):
        return
    if len(points) == 1:  # a band would have no width
        axes.vlines(points["steps"], points[low], points[high], color=colour, alpha=0.5)
    else:
        axes.fill_between(
            points["steps"], points[low], points[high], color=colour, alpha=alpha, lw=0
        )
