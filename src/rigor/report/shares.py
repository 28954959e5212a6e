"""Wealth management as a picture: which part of the optimum is reached, row by row of the table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rigor.report.style import dress, key, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
"""A row of the sheet `wealth`."""

NEAR = 95.0  # percent of the optimum, from which on a panel of its own looks closely
OURS, PAPER = "#0072B2", "#D55E00"


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have a percentage: those whose optimum is above zero."""
    return [row for row in rows if row.get("percent") is not None]


def shares_figure(rows: Sequence[Row]) -> "Figure":
    """Draw the objective of every row as a percentage of its optimum, the paper's beside it.

    The paper's stands where its numbers belong to that problem; for CVaR its probabilities bound
    what it reached, which an arrow to the left says.

    Args:
      rows: of the sheet `wealth`, at least one that `drawn_rows` keeps.
    """
    from matplotlib.lines import Line2D

    rows = drawn_rows(rows)[::-1]  # the first is drawn on top
    figure = new_figure(9.0, 1.4 + 0.24 * len(rows), "Wealth management: part of the optimum")
    whole, near = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for axes, least in ((whole, 0.0), (near, NEAR)):
        for y, row in enumerate(rows):
            _draw(axes, y, row, least)
        axes.set_xlabel("of the optimum (%)")
        axes.set_ylim(-0.7, len(rows) - 0.3)
        dress(axes)
    whole.set_yticks(range(len(rows)), _labels(rows), fontsize="small")
    whole.set_xlim(0, 103)
    near.set_xlim(NEAR, 100.2)
    near.tick_params(left=False)

    def handle(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="", label=label, **style)

    handles = [
        handle("ours, exact value of the policy", marker="o", color=OURS),
        handle("paper", marker="D", color=PAPER, markerfacecolor="none"),
        handle("paper, at most", marker="<", color=PAPER, markerfacecolor="none"),
    ]
    key(figure, handles, 3, "bar: 95 % interval of the mean over seeds")
    return figure


def _draw(axes: "Axes", y: int, row: Row, least: float) -> None:
    """Draw a row; of marks just below `least` a half would show, so none does."""
    scale = 100.0 / row["optimal"]
    ends = [scale * row["objective_low"], scale * row["objective_high"]]  # nan for one seed
    axes.plot(ends, [y, y], color=OURS, linewidth=1.6)
    if row["percent"] >= least:
        axes.plot(row["percent"], y, marker="o", color=OURS, markersize=4.5)
    paper = row.get("paper_objective")
    if not paper or row.get("note"):
        return
    at_most = paper.startswith("≤")
    percent = scale * float(paper.removeprefix("≤"))
    if percent >= least:
        marker = "<" if at_most else "D"
        axes.plot(percent, y, marker=marker, color=PAPER, markerfacecolor="none", markersize=4.5)


def _labels(rows: Sequence[Row]) -> list[str]:
    """Return such as `T=30 u=2000 covariance, cvar tau=0.1, hyperbolic k=0.05`.

    Where several rows are of one problem, what else tells them apart stands behind.
    """
    labels = []
    for row in rows:
        scaling = f" {row['scaling']}" if row["periods"] != 10 else ""
        problem = f"T={row['periods']} u={row['late_utility']:g}{scaling}"
        labels.append(f"{problem}, {row['risk']}, {row['discount']}")
    return [
        f"{label}, {row['environment']} {row['agent']}" if labels.count(label) > 1 else label
        for label, row in zip(labels, rows, strict=True)
    ]
