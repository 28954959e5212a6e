"""The policy of an exact agent on `env=gbwm`: portfolios and goals by wealth and time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.figures.style import COLOURS, legend, new_figure, number, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

_NO_PORTFOLIO = "0.93"  # grey
_COST: dict[str, Any] = {"color": COLOURS[1], "linewidth": 3.0}
_GOAL: dict[str, Any] = {"edgecolor": "black", "hatch": "////"}


def policy_map(
    wealth: np.ndarray,
    actions: Sequence[np.ndarray],
    offsets: Sequence[np.ndarray],
    n_portfolios: int,
    costs: Mapping[int, float],
    start: float,
    limits: tuple[float, float],
    title: str = "Policy",
) -> "Figure":
    """Draw the portfolio at every wealth and time, and the wealth at which a goal is taken.

    The first panel is for the lowest stock. A second panel is for the highest stock, if there are
    several. Nothing is invested at the last t, which shows the goal only.

    Args:
      wealth: of every grid point, currency, ascending, [n].
      actions: goal · n_portfolios + portfolio at t = 0 ... T, each int [L_t, n].
      offsets: stock less its initial value, that is discounted utility earned so far, at
        t = 0 ... T, ascending, each [L_t].
      n_portfolios: number of portfolios; the figure counts them from 1.
      costs: of the goal on offer, currency, by its t. A goal that costs more than the wealth is
        not taken, whatever the action.
      start: initial wealth, currency.
      limits: of the wealth axis, currency.
      title: of the figure.
    """
    shown = (wealth >= limits[0]) & (wealth <= limits[1])
    if not shown.any():
        raise ValueError(f"limits={limits}: hold no grid point of wealth")
    wealth = wealth[shown]
    has_two = max(map(len, offsets)) > 1
    figure = new_figure(12.0 if has_two else 7.8, 5.6, title)
    panels = figure.subplots(1, 2 if has_two else 1, sharey=True, squeeze=False)[0]
    for axes, index in zip(panels, (0, -1), strict=False):
        rows = [
            None if index and len(offset) < 2 else action[index, shown]
            for action, offset in zip(actions, offsets, strict=True)
        ]
        mesh = _draw_portfolios(axes, wealth, rows, n_portfolios)
        for t, cost in costs.items():
            row = rows[t]
            if row is not None:
                _draw_goal(axes, wealth, (row >= n_portfolios) & (wealth >= cost), t, cost)
        _dress(axes, wealth, len(rows))
    if has_two:
        earned = number(next(float(offset[-1]) for offset in offsets if len(offset) > 1))
        panels[0].set_title("nothing earned yet", fontsize="medium")
        panels[1].set_title(
            f"early goal taken: {earned} of discounted utility earned", fontsize="medium"
        )
    panels[0].set_ylabel("wealth (currency, log scale)")
    panels[0].plot([0], [start], ">", color="white", markeredgecolor="black", markersize=9)
    bar = figure.colorbar(mesh, ax=panels, ticks=round_ticks(1, n_portfolios, 15), pad=0.02)
    bar.set_label("portfolio number")
    bar.ax.tick_params(which="both", length=0)
    legend(figure, _handles(), 4 if has_two else 2)
    return figure


def _draw_portfolios(
    axes: "Axes", wealth: np.ndarray, rows: Sequence[np.ndarray | None], n_portfolios: int
) -> "QuadMesh":
    """Colour each cell by its portfolio, except at the last t and where there is no row."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    numbers = np.ma.masked_all((len(wealth), len(rows)))  # [n, T + 1]
    for t, row in enumerate(rows[:-1]):
        if row is not None:
            numbers[:, t] = row % n_portfolios + 1
    # A black hatch would be invisible on the dark end of viridis.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.3, 1.0, n_portfolios)))
    return axes.pcolormesh(
        np.arange(len(rows) + 1) - 0.5,
        _edges(wealth),
        numbers,
        cmap=colours,
        norm=BoundaryNorm(np.arange(n_portfolios + 1) + 0.5, n_portfolios),
        rasterized=True,
    )


def _draw_goal(axes: "Axes", wealth: np.ndarray, is_taken: np.ndarray, t: int, cost: float) -> None:
    """Hatch the wealth at which a goal is taken, label its lower end, and draw the cost."""
    from matplotlib.patches import Rectangle

    edges = _edges(wealth)
    for first, last in _stretches(is_taken):
        low, high = edges[first], edges[last]
        axes.add_patch(
            Rectangle((t - 0.5, low), 1.0, high - low, fill=False, lw=1.6, zorder=4, **_GOAL)
        )
        axes.annotate(
            number(float(f"{low:.3g}")),
            (t, low),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
            zorder=6,
        )
    axes.plot([t - 0.5, t + 0.5], [cost, cost], zorder=5, **_COST)


def _edges(wealth: np.ndarray) -> np.ndarray:
    """Return the edges [n + 1] of the cells around the grid points [n], midway in log wealth."""
    points = np.log(wealth)
    if len(points) == 1:
        return np.exp([points[0] - 0.5, points[0] + 0.5])
    inner = (points[1:] + points[:-1]) / 2
    return np.exp([2 * points[0] - inner[0], *inner, 2 * points[-1] - inner[-1]])


def _stretches(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield [first, last) of every stretch of true flags."""
    changes = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True)


def _dress(axes: "Axes", wealth: np.ndarray, n_times: int) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xlabel("t (periods)")
    axes.set_yscale("log")
    axes.set_ylim(float(wealth[0]), float(wealth[-1]))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlim(-0.5, n_times - 0.5)
    axes.set_xticks(round_ticks(0, n_times - 1, 12))
    axes.set_facecolor(_NO_PORTFOLIO)


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    start: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "linestyle": "none"}
    return [
        Patch(facecolor="none", label="goal taken (number: lowest wealth)", **_GOAL),
        Line2D([], [], label="cost of the goal", **_COST),
        Line2D([], [], marker=">", markersize=9, label="initial wealth", **start),
        Patch(facecolor=_NO_PORTFOLIO, label="nothing invested, or not reachable"),
    ]
