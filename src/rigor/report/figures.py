"""Learning curves as one PNG."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rigor.tracking.disk import disk_errors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by colour-blind readers too (yellow left out: too faint).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", "--", ":", "-.")
_SEED = re.compile(r"[-_ /,]*\b(s|seed)[ =]?\d+(-[0-9a-f]{8})?$")
_LEGEND_ROWS = 8  # more entries than that stand side by side, where their names are short enough
_LETTERS = 13  # of the legend per inch

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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [("eval_score", "undiscounted score")]
    if objective and any(len(_points(metrics, "eval_objective")) for _, metrics in runs):
        panels.append(("eval_objective", "objective (discounted reward)"))
    groups = _groups(runs)
    width = 7.0 if len(panels) == 1 else 12.0
    columns = _legend_columns(list(groups), width)
    height = 4.6 + 0.24 * -(-len(groups) // columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (column, label) in zip(all_axes, panels, strict=True):
        _panel(axes, groups, column)
        axes.set_xlabel("agent steps")
        axes.set_ylabel(label)
    handles, labels = all_axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(
            handles,
            labels,
            title=_key(groups),
            alignment="left",
            title_fontsize="small",
            loc="outside lower left",
            ncols=columns,
            frameon=False,
        )
    path = Path(path)
    with disk_errors(path):
        figure.savefig(path, dpi=150)
    return path


def _legend_columns(names: list[str], width: float) -> int:
    wanted = -(-len(names) // _LEGEND_ROWS)
    room = int(width * _LETTERS) // (max(map(len, names), default=0) + 16)
    return max(1, min(wanted, room))


def _key(groups: "dict[str, list[pd.DataFrame]]") -> str:
    shaded = "shaded: 95 % interval over evaluation episodes"
    if all(len(seeds) == 1 for seeds in groups.values()):
        return shaded
    return f"thick: mean over seeds; thin: one seed; {shaded}"


def _panel(axes: "Axes", groups: "dict[str, list[pd.DataFrame]]", column: str) -> None:
    drawn = 0
    for index, (name, seeds) in enumerate(groups.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        dashes = _DASHES[index // len(_COLOURS) % len(_DASHES)]
        curves = [_points(metrics, column) for metrics in seeds]
        curves = [points for points in curves if len(points)]
        drawn += len(curves)
        label = name if len(seeds) == 1 else f"{name} ({len(seeds)} seeds)"
        if not curves:
            axes.plot([], [], color=colour, linestyle=dashes, label=f"{label}: no evaluation yet")
            continue
        alone = len(curves) == 1
        for points in curves:
            _interval(axes, points, column, colour, 0.22 if alone else 0.08)
            axes.plot(
                points["steps"],
                points[column],
                color=colour,
                linestyle=dashes,
                linewidth=2.0 if alone else 0.8,
                alpha=1.0 if alone else 0.5,
                marker="o" if len(points) < 3 else "",
                markersize=4,
                label=label if alone else None,
            )
        if not alone:
            mean = _mean(curves, column)
            axes.plot(
                mean["steps"],
                mean[column],
                color=colour,
                linestyle=dashes,
                linewidth=2.4,
                marker="o" if len(mean) < 3 else "",
                label=label,
            )
    _dress(axes, drawn)


def _dress(axes: "Axes", drawn: int) -> None:
    from matplotlib.ticker import EngFormatter

    axes.spines[["top", "right"]].set_visible(False)
    if not drawn:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no evaluation yet", transform=axes.transAxes, ha="center", color="0.4")
        return
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
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
        groups.setdefault(_SEED.sub("", label) or label, []).append(metrics)
    return groups


def _points(metrics: "pd.DataFrame", column: str) -> "pd.DataFrame":
    """Return the rows that have a value in `column`; other rows log training only."""
    if not {"steps", column} <= set(metrics.columns):
        return metrics.iloc[:0]
    return metrics[metrics[column].notna()]


def _mean(curves: "list[pd.DataFrame]", column: str) -> "pd.DataFrame":
    """Average over seeds where all have values, between their points along straight lines."""
    import numpy as np
    import pandas as pd

    first = max(points["steps"].iloc[0] for points in curves)
    last = min(points["steps"].iloc[-1] for points in curves)
    steps = np.unique(np.concatenate([points["steps"].to_numpy() for points in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = [np.interp(steps, points["steps"], points[column]) for points in curves]
    return pd.DataFrame({"steps": steps, column: np.mean(values, axis=0)})
