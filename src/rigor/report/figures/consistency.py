"""The paper's figure 1: learning curves beside the values of exact agents.

An exact agent (`agent=backward_induction`) of the same variant, quadrature and bootstrap shows how
much of a learned agent's distance from the optimum is due to the method rather than to learning.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rigor.report.data import seed_intervals
from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord
from rigor.report.figures.agent_curves import AgentStyles
from rigor.report.figures.learning_curves import STOPPED, mark_stopped, marker, shared_points
from rigor.report.figures.style import (
    dress,
    engineering_ticks,
    left_legend,
    legend_room,
    new_figure,
)
from rigor.report.tables.comparison import objective_settings
from rigor.report.tables.optimality_gaps import method_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = {"eval_objective": "objective", "eval_score": "score"}
"""The label of each column of the metrics that is drawn."""

_EXACT = {"eval_objective": "objective_exact", "eval_score": "score"}  # in an exact run's result
_OPTIMUM = "objective_optimal"
_EXACT_LINE: dict[str, Any] = {"linestyle": "--", "linewidth": 1.2}
_OPTIMUM_LINE: dict[str, Any] = {"color": "#000000", "linestyle": ":", "linewidth": 1.4}


def consistency_figure(
    agents: Sequence[AgentGroup],
    environments: Sequence[str],
    styles: AgentStyles,
    title: str = "",
) -> "Figure":
    """Draw learning curves with intervals over seeds, and the values of exact agents.

    Each environment has two panels: the objective, which agents maximise, and the score.

    Args:
      agents: learned and exact agents. environments: their labels. styles: the agents' lines.
    """
    labels = [
        agent.label
        for agent in agents
        if not agent.is_exact and set(environments) & agent.runs.keys()
    ]
    width, columns, below = legend_room(labels, 9.0)
    figure = new_figure(width, 3.3 * len(environments) + 0.7 + below, title)
    grid = figure.subplots(len(environments), 2, squeeze=False)
    for row, environment in zip(grid, environments, strict=True):
        for axes, column in zip(row, COLUMNS, strict=True):
            _panel(axes, agents, environment, column, styles)
    drawn = [run for agent in agents for name in environments for run in agent.runs.get(name, [])]
    has_optimum = any(_OPTIMUM in run.result for run in drawn)
    explanation = f"line: mean over seeds; band: its 95 % interval; {STOPPED}"
    left_legend(figure, _handles(labels, styles, has_optimum), columns, explanation)
    return figure


def consistency_panel(
    agents: Sequence[AgentGroup], environment: str, column: str, styles: AgentStyles
) -> "Figure":
    """Draw a panel of `consistency_figure` as a figure; `column` is a key of `COLUMNS`."""
    figure = new_figure(4.2, 3.0, "")
    _panel(figure.subplots(), agents, environment, column, styles)
    return figure


def _panel(
    axes: "Axes",
    agents: Sequence[AgentGroup],
    environment: str,
    column: str,
    styles: AgentStyles,
) -> None:
    learned = {
        agent.label: runs
        for agent in agents
        if not agent.is_exact and (runs := agent.runs.get(environment))
    }
    drawn = [run for agent in agents for run in agent.runs.get(environment, [])]
    for label, runs in learned.items():
        _draw_curve(axes, runs, column, styles[label])
    _draw_exact(axes, learned, [run for run in drawn if run.is_exact], column, styles)
    if column == "eval_objective":
        for optimum in sorted({r.result[_OPTIMUM] for r in drawn if _OPTIMUM in r.result}):
            axes.axhline(optimum, **_OPTIMUM_LINE)
    axes.set_title(environment, fontsize="medium")
    axes.set_xlabel("agent steps")
    axes.set_ylabel(COLUMNS[column])
    engineering_ticks(axes.xaxis)
    engineering_ticks(axes.yaxis)
    axes.set_xlim(left=0)
    dress(axes)


def _draw_curve(
    axes: "Axes", runs: Sequence[RunRecord], column: str, style: dict[str, Any]
) -> None:
    """Draw the mean over seeds and its interval at the steps that all seeds reach."""
    curves = [run.curve.dropna(subset=column) for run in runs if column in run.curve]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return
    mark_stopped(axes, curves, column, style["color"])
    steps, values = shared_points(curves, column)
    if not len(steps):
        return
    mean = seed_intervals.mean_interval(values.T)
    if len(curves) > 1:
        axes.fill_between(steps, mean.low, mean.high, color=style["color"], alpha=0.18, lw=0)
    axes.plot(steps, mean.value, linewidth=1.8, marker=marker(len(steps)), markersize=3, **style)


def _draw_exact(
    axes: "Axes",
    learned: dict[str, list[RunRecord]],
    exact: Sequence[RunRecord],
    column: str,
    styles: AgentStyles,
) -> None:
    """Draw the value of the exact counterpart of each learned agent in the agent's colour."""
    for run in exact:
        value = run.result.get(_EXACT[column])
        for label, (first, *_) in learned.items():
            if value is not None and _is_counterpart(first, run):
                axes.axhline(value, color=styles[label]["color"], **_EXACT_LINE)


def _is_counterpart(learned: RunRecord, exact: RunRecord) -> bool:
    """Tell whether two runs have the same method and the same objective."""
    same_objective = objective_settings(learned) == objective_settings(exact)
    return same_objective and method_of(learned) == method_of(exact)


def _handles(labels: Sequence[str], styles: AgentStyles, has_optimum: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linewidth=1.8, label=label, **styles[label]) for label in labels]
    if has_optimum:
        exact = "dashed: value of the same agent solved exactly"
        handles.append(Line2D([], [], color="0.4", label=exact, **_EXACT_LINE))
        handles.append(Line2D([], [], label="optimum", **_OPTIMUM_LINE))
    return handles
