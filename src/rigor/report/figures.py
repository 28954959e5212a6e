"""Learning curves as one PNG."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.report.style import dress, key, key_room, line_style, new_figure, save_png
from rigor.report.tables import shorten

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

_SEED = re.compile(r"[-_ /,]*\b(s|seed)[ =]?\d+(-[0-9a-f]{8})?$")

Runs = Sequence[tuple[str, "pd.DataFrame"]]


def learning_curves(
    runs: Runs, path: Path | str, title: str = "Learning curves", objective: bool = True
) -> Path:
    """Draw evaluation scores against agent steps into one PNG, and return its path.

    Runs whose labels differ only in the seed (`...-s0-1a2b3c4d`, `... seed 0`) share a colour and
    an entry in the legend: thin lines for the seeds, a thick one for their mean.

    Args:
      runs: (label, metrics) pairs; of the metrics `steps`, `eval_score`, `eval_score_low` and
        `eval_score_high` are drawn, and `eval_objective` with its ends where there are any.
      path: the PNG to write.
      title: what the figure is about.
      objective: False leaves out the second panel.

    Raises:
      UserError: the place is full or not writable.
    """
    panels = [("eval_score", "undiscounted score")]
    if objective and any(len(_points(metrics, "eval_objective")) for _, metrics in runs):
        panels.append(("eval_objective", "objective (discounted reward)"))
    groups = _groups(runs)
    shared, names = shorten(list(groups))
    if shared:
        title = f"{title} of {shared}"
    labels = [_label(name, seeds) for name, seeds in zip(names, groups.values(), strict=True)]
    width, columns, below = key_room(labels, 7.0 if len(panels) == 1 else 12.0)
    figure = new_figure(width, 4.6 + below, title)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (column, label) in zip(all_axes, panels, strict=True):
        _panel(axes, groups, labels, column)
        axes.set_xlabel("agent steps")
        axes.set_ylabel(label)
    handles, _ = all_axes[0].get_legend_handles_labels()
    if handles:
        key(figure, handles, columns, _reading(groups))
    return save_png(figure, path, dpi=150)


def without_seed(label: str) -> str:
    """Return a run's label without its seed and hash; a label that is nothing else stays."""
    return _SEED.sub("", label) or label


def _reading(groups: "dict[str, list[pd.DataFrame]]") -> str:
    shaded = "shaded: 95 % interval over evaluation episodes"
    if all(len(seeds) == 1 for seeds in groups.values()):
        return shaded
    return f"thick: mean over seeds; thin: one seed; {shaded}"


def _label(name: str, seeds: "list[pd.DataFrame]") -> str:
    label = name if len(seeds) == 1 else f"{name} ({len(seeds)} seeds)"
    evaluated = any(len(_points(metrics, "eval_score")) for metrics in seeds)
    return label if evaluated else f"{label}: no evaluation yet"


def _panel(
    axes: "Axes", groups: "dict[str, list[pd.DataFrame]]", labels: Sequence[str], column: str
) -> None:
    drawn = 0
    for index, (label, seeds) in enumerate(zip(labels, groups.values(), strict=True)):
        style = line_style(index)
        curves = [_points(metrics, column) for metrics in seeds]
        curves = [points for points in curves if len(points)]
        drawn += len(curves)
        if not curves:
            axes.plot([], [], label=label, **style)
            continue
        alone = len(curves) == 1
        for points in curves:
            _interval(axes, points, column, style["color"], 0.22 if alone else 0.08)
            if not alone:
                _curve(axes, points, column, linewidth=0.8, alpha=0.5, markersize=4, **style)
        mean, width = (curves[0], 2.0) if alone else (mean_curve(curves, column), 2.4)
        _curve(axes, mean, column, linewidth=width, markersize=4, label=label, **style)
    _dress(axes, drawn)


def _curve(axes: "Axes", points: "pd.DataFrame", column: str, **style: Any) -> None:
    marker = "o" if len(points) < 3 else ""
    axes.plot(points["steps"], points[column], marker=marker, **style)


def _dress(axes: "Axes", drawn: int) -> None:
    from matplotlib.ticker import EngFormatter

    dress(axes)
    if not drawn:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no evaluation yet", transform=axes.transAxes, ha="center", color="0.4")
        return
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)


def _interval(axes: "Axes", points: "pd.DataFrame", column: str, colour: str, alpha: float) -> None:
    low, high = f"{column}_low", f"{column}_high"
    if not {low, high} <= set(points.columns):
        return
    if len(points) == 1:  # a band has no width there
        axes.vlines(points["steps"], points[low], points[high], color=colour, alpha=0.5)
    else:
        axes.fill_between(
            points["steps"], points[low], points[high], color=colour, alpha=alpha, linewidth=0
        )


def _groups(runs: Runs) -> "dict[str, list[pd.DataFrame]]":
    groups: dict[str, list[pd.DataFrame]] = {}
    for label, metrics in runs:
        groups.setdefault(without_seed(label), []).append(metrics)
    return groups


def _points(metrics: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Return the rows that have a value in `column`; other rows log training only."""
    if not {"steps", column} <= set(metrics.columns):
        return metrics.iloc[:0]
    return metrics[metrics[column].notna()]


def mean_curve(curves: "Sequence[pd.DataFrame]", column: str) -> "pd.DataFrame":
    """Average over seeds where all have values, between their points along straight lines."""
    import pandas as pd

    steps, values = shared_points(curves, column)
    return pd.DataFrame({"steps": steps, column: values.mean(axis=0)})


def shared_points(curves: "Sequence[pd.DataFrame]", column: str) -> "tuple[np.ndarray, np.ndarray]":
    """Return the steps [n] that all seeds reach and their values there [k, n], interpolated."""
    import numpy as np

    first = max(points["steps"].iloc[0] for points in curves)
    last = min(points["steps"].iloc[-1] for points in curves)
    steps = np.unique(np.concatenate([points["steps"].to_numpy() for points in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = [np.interp(steps, points["steps"], points[column]) for points in curves]
    return steps, np.array(values)
