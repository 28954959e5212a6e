"""Sample and wall-clock efficiency: the IQM of all games against frames and against hours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rigor.report.data import scores
from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord
from rigor.report.data.score_scale import score_scale
from rigor.report.figures.agent_curves import AgentStyles
from rigor.report.figures.style import dress, engineering_ticks, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

AXES = {"frames": "frames", "seconds": "hours of wall-clock time"}
"""The label of each column of the metrics that an efficiency is drawn against."""

_POINTS = 20
_RESAMPLES = 500

Curves = dict[str, list[list["pd.DataFrame"]]]
"""By agent and game, the evaluations of each run."""


def game_curves(agents: Sequence[AgentGroup], axis: str) -> tuple[Curves, list[str]]:
    """Return the normalised curves by agent on the games that all learning agents have.

    Args:
      axis: a column of the metrics, `frames` or `seconds`.

    Returns:
      The curves, with the columns `axis` and `eval_score`, and the games.
    """
    found: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for agent in agents:
        games = {}
        for name, runs in agent.runs.items():
            curves = [_normalised(run) for run in runs if axis in run.curve and len(run.curve) > 1]
            if curves and score_scale(runs[0]):
                games[name] = curves
        if games:
            found[agent.label] = games
    shared = sorted(set.intersection(*map(set, found.values()))) if found else []
    return {label: [own[game] for game in shared] for label, own in found.items()}, shared


def efficiency_panel(curves: Curves, axis: str, styles: AgentStyles) -> "Figure":
    """Draw the IQM of all runs on all games against frames or hours, with its 95 % interval.

    Each agent's line ends where the first of its runs ends, so that no point mixes fewer runs.

    Args:
      curves: of `game_curves`, with at least one game. axis: a key of `AXES`.
    """
    figure = new_figure(4.2, 3.0, "")
    axes = figure.subplots()
    for label, games in curves.items():
        points, values = _at_common_points(games, axis)
        found = [
            scores.estimate(scores.interquartile_mean, [game[i] for game in values], _RESAMPLES)
            for i in range(len(points))
        ]
        low, high = [one.low for one in found], [one.high for one in found]
        shown = points / 3600.0 if axis == "seconds" else points
        style = styles[label]
        axes.fill_between(shown, low, high, color=style["color"], alpha=0.18, lw=0)
        axes.plot(shown, [one.value for one in found], linewidth=1.8, **style)
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel("IQM of normalised scores")
    engineering_ticks(axes.xaxis)
    engineering_ticks(axes.yaxis)
    axes.set_xlim(left=0)
    dress(axes)
    return figure


def _normalised(run: RunRecord) -> "pd.DataFrame":
    scale = score_scale(run)
    if scale is None:
        return run.curve
    score = scores.normalised(run.curve["eval_score"], scale.random, scale.reference)
    return run.curve.assign(eval_score=score)


def _at_common_points(
    games: list[list["pd.DataFrame"]], axis: str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return points [n] that all runs reach, and by game the values of its runs [n, k] there."""
    runs = [curve for game in games for curve in game]
    first = max(float(curve[axis].iloc[0]) for curve in runs)
    last = min(float(curve[axis].iloc[-1]) for curve in runs)
    points = np.linspace(first, max(first, last), _POINTS)
    values = [
        np.stack([np.interp(points, curve[axis], curve["eval_score"]) for curve in game], axis=-1)
        for game in games
    ]
    return points, values
