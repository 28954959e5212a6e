"""Pictures of exact policies: portfolios and goals by wealth, and when a put is exercised."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report.style import COLOURS, dress, legend, new_figure, number, round_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

EXERCISE = 1  # of the put's two actions

_NOTHING = "0.93"  # the grey of no portfolio
_SHADE = "#BBD9EE"


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
    """Draw which portfolio is held at every wealth and time, and where a goal is taken.

    One panel for the lowest stock; a second one for the highest where there are several. At the
    last t nothing is invested any more, so only the goal is shown.

    Args:
      wealth: of every point, currency, [n], ascending.
      actions: of t = 0 ... T, each int [L_t, n]: goal · n_portfolios + portfolio.
      offsets: of t = 0 ... T, each [L_t]: discounted utility earned so far, ascending.
      n_portfolios: portfolios, numbered from 1 in the picture.
      costs: of the goal on offer, currency, by its t; a goal that wealth does not reach is not
        taken, whatever the action says.
      start: initial wealth, currency.
      limits: the ends of the wealth axis, currency.
      title: of the figure.
    """
    kept = (wealth >= limits[0]) & (wealth <= limits[1])
    if not kept.any():
        raise ValueError(f"limits={limits}: hold no point of wealth")
    wealth = wealth[kept]
    two = max(map(len, offsets)) > 1
    figure = new_figure(12.0 if two else 7.8, 5.6, title)
    panels = figure.subplots(1, 2 if two else 1, sharey=True, squeeze=False)[0]
    for axes, level in zip(panels, (0, -1), strict=False):
        rows = [
            None if level and len(offset) < 2 else row[level, kept]
            for row, offset in zip(actions, offsets, strict=True)
        ]
        mesh = _draw_portfolios(axes, wealth, rows, n_portfolios)
        _draw_goals(axes, wealth, rows, n_portfolios, costs)
        _wealth_axes(axes, (float(wealth[0]), float(wealth[-1])), len(rows))
        if two:
            axes.set_title(_earned(offsets, level), fontsize="medium")
    panels[0].set_ylabel("wealth (currency, log scale)")
    panels[0].plot([0], [start], ">", color="white", markeredgecolor="black", markersize=9)
    bar = figure.colorbar(mesh, ax=panels, ticks=round_ticks(1, n_portfolios, 15), pad=0.02)
    bar.set_label("portfolio number")
    bar.ax.tick_params(which="both", length=0)
    legend(figure, _policy_handles(), 4 if two else 2)
    return figure


def exercise_boundary(prices: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
    """Return the highest price at which a policy exercises, currency, float64 [T]; NaN for none.

    Args:
      prices: of every point, currency, [n].
      actions: of each of T decisions, int [L_t, n], 1 exercises; the lowest stock counts.
    """
    exercised = np.stack([rows[0] for rows in actions]) == EXERCISE  # [T, n]
    highest = np.where(exercised, prices, -np.inf).max(axis=1)
    return np.where(exercised.any(axis=1), highest, np.nan)


def boundary_curve(
    prices: np.ndarray,
    actions: Sequence[np.ndarray],
    strike: float,
    start: float,
    step_years: float,
    title: str = "Exercise boundary",
) -> "Figure":
    """Draw where a policy exercises a put: the region, and the highest price of it at every t.

    Args:
      prices: of every point, currency, [n], ascending.
      actions: of t = 0 ... N, each int [L_t, n], 1 exercises. At N every action does.
      strike: K, currency.
      start: P_0, currency.
      step_years: years between two decisions.
      title: of the figure.
    """
    before = actions[:-1]
    # at maturity all that is in the money is paid
    boundary = np.append(exercise_boundary(prices, before), strike)
    region = np.stack([*(rows[0] == EXERCISE for rows in before), prices < strike], axis=1)
    low, high = _boundary_limits(boundary, strike, start)
    kept = (prices >= low) & (prices <= high)
    figure = new_figure(8.0, 5.4, title)
    axes = figure.subplots()
    if kept.any():
        _shade(axes, _middles(prices[kept]), region[kept])
    _draw_boundary(axes, boundary, strike, start)
    dress(axes)
    axes.set_xlim(-0.5, len(actions) - 0.5)
    axes.set_xticks(round_ticks(0, len(actions) - 1, 11))
    axes.set_ylim(low, high)
    axes.set_xlabel(f"t (steps of {number(step_years)} years)")
    axes.set_ylabel("price (currency)")
    legend(figure, axes.get_legend_handles_labels()[0], 2)
    return figure


def _draw_portfolios(
    axes: "Axes", wealth: np.ndarray, rows: Sequence[np.ndarray | None], n_portfolios: int
) -> "QuadMesh":
    """Draw portfolio numbers from 1; nothing where there is no row, nor at the last t."""
    from matplotlib.colors import BoundaryNorm

    numbers = np.ma.masked_all((len(wealth), len(rows)))  # [n, T + 1]
    for t, row in enumerate(rows[:-1]):
        if row is not None:
            numbers[:, t] = row % n_portfolios + 1
    return axes.pcolormesh(
        np.arange(len(rows) + 1) - 0.5,
        _edges(wealth),
        numbers,
        cmap=_portfolio_colours(n_portfolios),
        norm=BoundaryNorm(np.arange(n_portfolios + 1) + 0.5, n_portfolios),
        rasterized=True,
    )


def _portfolio_colours(n_portfolios: int) -> "Colormap":
    """Return viridis without its dark end, on which a black hatch would not show."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0.3, 1.0, n_portfolios)))


def _edges(wealth: np.ndarray) -> np.ndarray:
    """Return the cells' edges on a log scale, [n + 1], of points [n]."""
    return np.exp(_middles(np.log(wealth)))


def _middles(points: np.ndarray) -> np.ndarray:
    """Return the middles between points [n], and an edge beyond either end, [n + 1]."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    inner = (points[1:] + points[:-1]) / 2
    return np.concatenate([[2 * points[0] - inner[0]], inner, [2 * points[-1] - inner[-1]]])


def _draw_goals(
    axes: "Axes",
    wealth: np.ndarray,
    rows: Sequence[np.ndarray | None],
    n_portfolios: int,
    costs: Mapping[int, float],
) -> None:
    """Hatch the wealth at which each goal is taken, and draw its cost."""
    from matplotlib.patches import Rectangle

    edges = _edges(wealth)
    style: dict[str, Any] = {"edgecolor": "black", "hatch": "////", "fill": False, "linewidth": 1.6}
    for t, cost in costs.items():
        row = rows[t]
        if row is None:
            continue
        for first, last in _stretches((row >= n_portfolios) & (wealth >= cost)):
            low, high = edges[first], edges[last]
            axes.add_patch(Rectangle((t - 0.5, low), 1.0, high - low, zorder=4, **style))
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
        axes.plot([t - 0.5, t + 0.5], [cost, cost], color=COLOURS[1], linewidth=3.0, zorder=5)


def _stretches(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the [first, last) of every stretch of true flags."""
    changes = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True)


def _wealth_axes(axes: "Axes", limits: tuple[float, float], n_times: int) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xlabel("t (periods)")
    axes.set_yscale("log")
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlim(-0.5, n_times - 0.5)
    axes.set_xticks(round_ticks(0, n_times - 1, 12))
    axes.set_facecolor(_NOTHING)


def _earned(offsets: Sequence[np.ndarray], level: int) -> str:
    """Return what has been earned on a panel's branch."""
    if not level:
        return "nothing earned yet"
    earned = next(float(one[-1]) for one in offsets if len(one) > 1)
    return f"early goal taken: {number(earned)} of discounted utility earned"


def _policy_handles() -> list:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    goal: dict[str, Any] = {"facecolor": "none", "edgecolor": "black", "hatch": "////"}
    wealth: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "linestyle": "none"}
    return [
        Patch(label="goal taken (lowest wealth)", **goal),
        Line2D([], [], color=COLOURS[1], linewidth=3.0, label="cost of the goal"),
        Line2D([], [], marker=">", markersize=9, label="initial wealth", **wealth),
        Patch(facecolor=_NOTHING, label="nothing invested or not reached"),
    ]


def _boundary_limits(boundary: np.ndarray, strike: float, start: float) -> tuple[float, float]:
    known = [strike, start, *boundary[np.isfinite(boundary)]]
    low, high = float(min(known)), float(max(known))
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _draw_boundary(axes: "Axes", boundary: np.ndarray, strike: float, start: float) -> None:
    axes.axhline(strike, color="0.25", linestyle="--", label=f"strike {number(strike)}")
    line: dict[str, Any] = {"color": COLOURS[0], "marker": "o", "markersize": 4, "linewidth": 1.8}
    axes.plot(boundary, label="highest price at which it exercises", **line)
    mark: dict[str, Any] = {"color": COLOURS[1], "markersize": 10, "clip_on": False}
    axes.plot([0], [start], ">", label=f"start {number(start)}", **mark)
    if np.isnan(boundary[:-1]).all():
        text = "never exercises before maturity"
        axes.text(0.5, 0.15, text, transform=axes.transAxes, ha="center", color="0.3")


def _shade(axes: "Axes", edges: np.ndarray, region: np.ndarray) -> None:
    """Shade the cells [n, N + 1] in which a policy exercises, of edges [n + 1]."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    axes.pcolormesh(
        np.arange(region.shape[1] + 1) - 0.5,
        edges,
        np.ma.masked_equal(region, False),
        cmap=ListedColormap([_SHADE]),
        rasterized=True,
    )
    # of no size: the legend has no entry for a mesh
    axes.add_patch(Rectangle((0.0, edges[0]), 0.0, 0.0, color=_SHADE, label="exercises"))
