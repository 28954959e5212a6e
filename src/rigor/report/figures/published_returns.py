"""Training returns of Atari runs beside Dopamine's published ones, one panel for each game."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rigor.report.data import published
from rigor.report.data.runs import RunRecord
from rigor.report.data.training_returns import by_million
from rigor.report.figures.agent_curves import AgentStyles
from rigor.report.figures.style import dress, left_legend, legend_room, new_figure
from rigor.report.tables.published_returns import PEERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4  # of panels
_PEERS = dict(zip(PEERS, (":", "--", "-."), strict=True))  # and their dashes
_BEYOND = 1  # millions of frames that the published curves show beyond the runs' own
_MOST = 20  # millions; later ones are published at 50, 100 and 200 only


def published_returns_figure(
    games: Mapping[str, Mapping[str, Sequence[RunRecord]]], styles: AgentStyles
) -> "Figure":
    """Draw each seed of the runs and the published means with their standard deviation.

    Args:
      games: runs with a whole million of frames, by game and by the agent's label.
      styles: the line style of each agent.
    """
    from matplotlib.lines import Line2D

    columns = min(_COLUMNS, len(games))
    n_rows = -(-len(games) // columns)
    labels = list(dict.fromkeys(label for own in games.values() for label in own))
    width, legend_columns, below = legend_room([*labels, *_PEERS], max(3.2 * columns, 5.0))
    figure = new_figure(width, 2.5 * n_rows + 0.5 + below, "")
    grid = figure.subplots(n_rows, columns, squeeze=False).ravel()
    curves = published.dopamine_curves()
    for axes, (game, own) in zip(grid, games.items(), strict=False):
        last = 0
        for label, runs in own.items():
            for run in runs:
                means = by_million(run.training)
                last = max(last, int(means.index.max()))
                axes.plot(means.index, means, marker="o", markersize=3, **styles[label])
        until = min(max(last + _BEYOND, 2), _MOST)
        for peer, dashes in _PEERS.items():
            rows = curves[
                (curves["game"] == game) & (curves["agent"] == peer) & (curves["million"] <= until)
            ]
            axes.plot(rows["million"], rows["mean"], color="0.4", linestyle=dashes, linewidth=1.3)
            axes.fill_between(
                rows["million"],
                rows["mean"] - rows["sd"],
                rows["mean"] + rows["sd"],
                color="0.4",
                alpha=0.12,
                linewidth=0,
            )
        axes.set_title(game, fontsize="medium")
        axes.locator_params(axis="x", integer=True, nbins=6)
        dress(axes)
    for axes in grid[len(games) :]:
        axes.remove()
    for place, axes in enumerate(grid[: len(games)]):
        if place + columns >= len(games):  # nothing below
            axes.set_xlabel("million frames")
        if place % columns == 0:
            axes.set_ylabel("training return")
    handles = [Line2D([], [], linewidth=2, label=label, **styles[label]) for label in labels]
    handles += [
        Line2D([], [], color="0.4", linestyle=dashes, label=f"{peer} (Dopamine)")
        for peer, dashes in _PEERS.items()
    ]
    left_legend(figure, handles, legend_columns)
    return figure
