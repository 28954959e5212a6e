"""Learning curves of agents, one panel for each environment, and the line style of each agent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rigor.report.data.agents import AgentGroup
from rigor.report.figures.learning_curves import STOPPED, mark_stopped, marker, mean_curve
from rigor.report.figures.style import (
    dress,
    engineering_ticks,
    left_legend,
    legend_room,
    line_style,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AgentStyles = Mapping[str, dict[str, Any]]
"""The colour and dashes of each agent's label, the same in all figures of a report."""

_COLUMNS = 5  # of panels in one figure


def agent_styles(agents: Sequence[AgentGroup]) -> AgentStyles:
    """Return the line style of each agent; agents with learning curves get the first styles."""
    ordered = sorted(agents, key=lambda agent: not environments_with_curves([agent]))
    return {agent.label: line_style(i) for i, agent in enumerate(ordered)}


def environments_with_curves(agents: Sequence[AgentGroup]) -> list[str]:
    """Return the environments in which a learning agent has been evaluated."""
    return sorted(
        {
            name
            for agent in agents
            for name, runs in agent.runs.items()
            if any(len(run.curve) and run.curve["steps"].max() > 0 for run in runs)
        }
    )


def curve_panel(agents: Sequence[AgentGroup], environment: str, styles: AgentStyles) -> "Figure":
    """Draw the learning curves of one environment as a small figure of one panel."""
    figure = new_figure(2.5, 2.0, "")
    _draw_curves(figure.subplots(), agents, environment, styles)
    return figure


def wide_curve_panel(
    agents: Sequence[AgentGroup], environment: str, styles: AgentStyles
) -> "Figure":
    """Draw the learning curves of the only environment as a wide figure with axis labels."""
    figure = new_figure(9.0, 4.0, "")
    axes = figure.subplots()
    _draw_curves(axes, agents, environment, styles)
    _label_axes(axes)
    return figure


def wall_clock_panel(
    agents: Sequence[AgentGroup], environment: str, styles: AgentStyles
) -> "Figure":
    """Draw the learning curves of one environment against hours of wall-clock time."""
    figure = new_figure(4.2, 3.0, "")
    axes = figure.subplots()
    _draw_curves(axes, agents, environment, styles, by_hours=True)
    axes.set_xlabel("hours of wall-clock time")
    axes.set_ylabel("score of the evaluation")
    return figure


def curve_grid(
    agents: Sequence[AgentGroup], environments: Sequence[str], styles: AgentStyles
) -> "Figure":
    """Draw the learning curves of all environments as one figure with a legend."""
    from matplotlib.lines import Line2D

    columns = min(_COLUMNS, len(environments))
    rows = -(-len(environments) // columns)
    labels = [agent.label for agent in agents if environments_with_curves([agent])]
    alone = len(environments) == 1
    width, legend_columns, below = legend_room(labels, 8.0 if alone else max(2.4 * columns, 4.8))
    height = 4.0 if alone else 1.9 * rows
    figure = new_figure(width, height + 0.9 + below, "Evaluation score against agent steps")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(grid, environments, strict=False):
        _draw_curves(axes, agents, name, styles)
    if alone:
        _label_axes(grid[0])
    for axes in grid[len(environments) :]:
        axes.remove()
    handles = [Line2D([], [], linewidth=2, label=label, **styles[label]) for label in labels]
    explanation = f"thick: mean over seeds; thin: one seed; {STOPPED}"
    left_legend(figure, handles, legend_columns, explanation)
    return figure


def _draw_curves(
    axes: "Axes",
    agents: Sequence[AgentGroup],
    environment: str,
    styles: AgentStyles,
    by_hours: bool = False,
) -> None:
    for agent in agents:
        style = styles[agent.label]
        curves = [run.curve for run in agent.runs.get(environment, []) if len(run.curve)]
        if by_hours:
            curves = [curve.assign(steps=curve["seconds"] / 3600) for curve in curves]
        for curve in curves if len(curves) > 1 else ():
            axes.plot(curve["steps"], curve["eval_score"], linewidth=0.6, alpha=0.4, **style)
        if not by_hours:  # seeds of different speed have different hours
            mark_stopped(axes, curves, "eval_score", style["color"])
        if curves:
            mean = mean_curve(curves, "eval_score")
            axes.plot(
                mean["steps"],
                mean["eval_score"],
                marker=marker(len(mean)),
                markersize=3,
                linewidth=1.7,
                **style,
            )
    axes.set_title(environment, fontsize="medium")
    axes.tick_params(labelsize="small")
    axes.locator_params(nbins=4)
    engineering_ticks(axes.xaxis)
    engineering_ticks(axes.yaxis)
    axes.set_xlim(left=0)
    dress(axes)


def _label_axes(axes: "Axes") -> None:
    axes.set_xlabel("agent steps")
    axes.set_ylabel("score of the evaluation")
