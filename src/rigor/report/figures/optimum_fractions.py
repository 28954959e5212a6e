"""Wealth management: the fraction of the optimum that each row of the table reaches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rigor.report.figures.style import COLOURS, dress, left_legend, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
"""A row of the sheet `wealth`."""

NEAR = 95.0
"""Percent of the optimum at which the axis of the second panel starts."""

_RIGOR, _PAPER = COLOURS[0], COLOURS[1]


def drawn_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that have a percentage, those with an optimum above zero."""
    return [row for row in rows if row.get("percent") is not None]


def optimum_fractions_figure(rows: Sequence[Row]) -> "Figure":
    """Draw the objective of every row as a percentage of its optimum, with the paper's beside it.

    The paper's objective is drawn only if it belongs to the row's problem. The paper's numbers
    bound the objective for CVaR from above, which an arrow to the left marks.

    Args:
      rows: of the sheet `wealth`, at least one of which `drawn_rows` keeps.
    """
    from matplotlib.lines import Line2D

    rows = drawn_rows(rows)[::-1]  # the first row is drawn at the top
    figure = new_figure(9.0, 1.4 + 0.24 * len(rows), "Wealth management: fraction of the optimum")
    whole, near = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for axes, low in ((whole, 0.0), (near, NEAR)):
        for y, row in enumerate(rows):
            _draw(axes, y, row, low)
        axes.set_xlabel("percent of the optimum")
        axes.set_ylim(-0.7, len(rows) - 0.3)
        dress(axes)
    whole.set_yticks(range(len(rows)), _labels(rows), fontsize="small")
    whole.set_xlim(0, 103)
    near.set_xlim(NEAR, 100.2)
    near.tick_params(left=False)

    def handle(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="", label=label, **style)

    handles = [
        handle("rigor, exact value of the policy", marker="o", color=_RIGOR),
        handle("paper", marker="D", color=_PAPER, markerfacecolor="none"),
        handle("paper, upper bound", marker="<", color=_PAPER, markerfacecolor="none"),
    ]
    left_legend(figure, handles, 3, "bar: 95 % interval of the mean over seeds")
    return figure


def _draw(axes: "Axes", y: int, row: Row, low: float) -> None:
    """Draw a row without the marks below `low`, half of which would show at the edge."""
    scale = 100.0 / row["optimal"]
    ends = [scale * row["objective_low"], scale * row["objective_high"]]  # NaN for one seed
    axes.plot(ends, [y, y], color=_RIGOR, linewidth=1.6)
    if row["percent"] >= low:
        axes.plot(row["percent"], y, marker="o", color=_RIGOR, markersize=4.5)
    paper = row.get("paper_objective")
    if not paper or row.get("note"):
        return
    percent = scale * float(paper.removeprefix("≤"))
    if percent >= low:
        marker = "<" if paper.startswith("≤") else "D"
        axes.plot(percent, y, marker=marker, color=_PAPER, markerfacecolor="none", markersize=4.5)


def _labels(rows: Sequence[Row]) -> list[str]:
    """Return labels such as `T=30 u=2000 covariance, cvar tau=0.1, hyperbolic k=0.05`.

    If several rows have the same problem, their environments and agents are appended.
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
