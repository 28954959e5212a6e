"""Pictures of discounts and utilities, and of what the exact agents found.

Every function takes numbers and returns a matplotlib Figure; `save` writes one as PNG and SVG.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rigor.maths.discount import Discount
from rigor.maths.utility import Utility
from rigor.report.figures import _COLOURS, _DASHES
from rigor.tracking.disk import disk_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

DPI = 160
EXERCISE = 1  # of the put's two actions

_LETTERS = 9  # of a title per inch
_FEW = 25  # atoms that can be told apart as stems
_LABELLED = 12  # stems that have room for a number each
_HEAVY = 0.02  # an atom among many that is a stem of its own beside the histogram
_BINS = 60
_SHOWN = 0.999  # of the probability: tails of 1e-16 would make the axis meaningless


def discount_curves(discounts: Mapping[str, Discount], steps: int) -> "Figure":
    """Draw d_t and d_{t+1}/d_t over t = 0 ... steps, one panel each (figure discounts).

    Args:
      discounts: by the name to show; colours follow their order, the legend that of d at the end.
      steps: the last t, agent steps.
    """
    t = np.arange(steps + 1)
    figure = _figure(11.0, 5.6, "Discounts and their one-step factors")
    left, right = figure.subplots(1, 2)
    lines = {}
    for i, (name, discount) in enumerate(discounts.items()):
        # those after the paper's three are dashed: where they coincide with one, both show
        dashes = "-" if i < 3 else _DASHES[1 + (i - 3) // len(_COLOURS) % (len(_DASHES) - 1)]
        style = {
            "color": _COLOURS[i % len(_COLOURS)],
            "linestyle": dashes,
            "linewidth": 2.0,
            "label": name,
        }
        (lines[name],) = left.plot(t, discount.factor(t), **style)
        right.plot(t, discount.step_factor(t), **style)
    for axes, label in ((left, "discount $d_t$"), (right, "one-step factor $d_{t+1}/d_t$")):
        _grid(axes)
        axes.set_xlabel("t (agent steps)")
        axes.set_ylabel(label)
        axes.set_xlim(0, steps)
    left.set_ylim(0.0, 1.03)
    _frame_factors(right, {name: one.step_factor(t) for name, one in discounts.items()})
    order = sorted(discounts, key=lambda name: -float(discounts[name].factor(steps)))
    _legend(figure, [lines[name] for name in order], order, 2)
    return figure


def utility_curves(
    utilities: Mapping[str, Utility], low: float = -2.0, high: float = 2.0
) -> "Figure":
    """Draw the utilities f(x) of OCE risk measures (figure utilities).

    Args:
      utilities: by the name to show.
      low, high: the ends of x, reward units, around 0.
    """
    x = np.linspace(low, high, 401)
    x = np.unique(np.append(x, 0.0))  # where the kinks are
    figure = _figure(7.0, 5.8, "Utilities f of OCE risk measures")
    axes = figure.subplots()
    lines = []
    for i, (name, utility) in enumerate(utilities.items()):
        colour, dashes = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        lines += axes.plot(
            x, utility.f(x), color=colour, linestyle=dashes, linewidth=2.2, label=name
        )
    _grid(axes)
    axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=1)
    axes.axvline(0.0, color="0.6", linewidth=0.8, zorder=1)
    axes.axline((0.0, 0.0), slope=1.0, color="black", linestyle=":", linewidth=1.2, zorder=4)
    axes.plot([0.0], [0.0], "o", color="black", markersize=6, zorder=5)
    ends = [utility.f(np.array([low, high])) for utility in utilities.values()]
    # the steepest losses leave the picture, so that the others can be told apart
    bottom = 1.15 * min(float(np.median([end[0] for end in ends])), low)
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, 1.15 * max(high, *(float(end[1]) for end in ends)))
    axes.annotate(
        "f(0) = 0, and the line of slope 1\n(dotted) touches every f there",
        (0.0, 0.0),
        (0.22 * high, 0.45 * bottom),
        arrowprops={"arrowstyle": "->", "color": "0.3", "shrinkB": 5},
    )
    axes.set_xlabel("x (reward units)")
    axes.set_ylabel("utility f(x)")
    _legend(figure, lines, list(utilities), 2)
    return figure


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
    from matplotlib.colors import BoundaryNorm

    kept = (wealth >= limits[0]) & (wealth <= limits[1])
    if not kept.any():
        raise ValueError(f"limits={limits}: hold no point of wealth")
    wealth = wealth[kept]
    two = max(map(len, offsets)) > 1
    figure = _figure(12.0 if two else 7.8, 5.6, title)
    panels = figure.subplots(1, 2 if two else 1, sharey=True, squeeze=False)[0]
    norm = BoundaryNorm(np.arange(n_portfolios + 1) + 0.5, n_portfolios)
    cmap = _portfolio_colours(n_portfolios)
    for axes, level in zip(panels, (0, -1), strict=False):
        rows = [
            None if level and len(offset) < 2 else row[level, kept]
            for row, offset in zip(actions, offsets, strict=True)
        ]
        portfolios = _portfolios(rows, n_portfolios, len(wealth))
        mesh = axes.pcolormesh(
            np.arange(len(rows) + 1) - 0.5,
            _edges(wealth),
            portfolios,
            cmap=cmap,
            norm=norm,
            rasterized=True,
        )
        for t, cost in costs.items():
            row = rows[t]
            if row is not None:
                _mark_goal(axes, t, cost, wealth, (row >= n_portfolios) & (wealth >= cost))
        axes.set_xlabel("t (periods)")
        _wealth_axes(axes, (float(wealth[0]), float(wealth[-1])), len(rows))
        if two:
            axes.set_title(_earned(offsets, level), fontsize="medium")
    panels[0].set_ylabel("wealth (currency, log scale)")
    panels[0].plot([0], [start], ">", color="white", markeredgecolor="black", markersize=9)
    bar = figure.colorbar(mesh, ax=panels, ticks=_whole(1, n_portfolios, 15), pad=0.02)
    bar.set_label("portfolio number")
    bar.ax.tick_params(which="both", length=0)
    _policy_legend(figure, 4 if two else 2)
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
    figure = _figure(8.0, 5.4, title)
    axes = figure.subplots()
    t = np.arange(len(actions))
    low, high = _boundary_limits(boundary, strike, start)
    kept = (prices >= low) & (prices <= high)
    if kept.any():
        region = [*(rows[0] == EXERCISE for rows in before), prices < strike]
        _shade(axes, _middles(prices[kept]), np.stack(region, axis=1)[kept])
    axes.axhline(strike, color="0.25", linestyle="--", label=f"strike {_number(strike)}")
    axes.plot(
        t,
        boundary,
        color=_COLOURS[0],
        marker="o",
        markersize=4,
        linewidth=1.8,
        label="highest price at which it exercises",
    )
    axes.plot(
        [0],
        [start],
        ">",
        color=_COLOURS[1],
        markersize=10,
        clip_on=False,
        label=f"start {_number(start)}",
    )
    if np.isnan(boundary[:-1]).all():
        text = "never exercises before maturity"
        axes.text(0.5, 0.15, text, transform=axes.transAxes, ha="center", color="0.3")
    _grid(axes)
    axes.set_xlim(-0.5, len(actions) - 0.5)
    axes.set_xticks(_whole(0, len(actions) - 1, 11))
    axes.set_ylim(low, high)
    axes.set_xlabel(f"t (steps of {_number(step_years)} years)")
    axes.set_ylabel("price (currency)")
    _legend(figure, *axes.get_legend_handles_labels(), 2)
    return figure


def outcome_law(
    returns: np.ndarray,
    probabilities: np.ndarray,
    marks: Mapping[str, float],
    unit: str = "reward",
    title: str = "Outcomes",
) -> "Figure":
    """Draw the law of the discounted return, with some of its numbers marked.

    A few atoms are stems. Many are a histogram, with stems for those that are heavy by themselves,
    above the cumulative distribution; it then shows the middle 99.9 % and the marks.

    Args:
      returns: distinct values, [k], ascending, in `unit`.
      probabilities: of each, [k], summing to one.
      marks: values to mark by name, such as the mean; those that are equal share a line.
      unit: of the returns.
      title: of the figure.
    """
    few = len(returns) <= _FEW
    figure = _figure(8.0, 5.2 if few else 7.0, title)
    if few:
        axes = figure.subplots()
        _stems(axes, returns, probabilities, len(returns) <= _LABELLED)
        panels, ends = [axes], (float(returns[0]), float(returns[-1]))
    else:
        panels = list(figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
        ends = _middle(returns, probabilities)
        _histogram(panels[0], returns, probabilities, ends)
        cumulative = np.concatenate([[0.0], np.cumsum(probabilities)])
        panels[1].step(
            np.append(returns[0], returns),
            cumulative,
            where="post",
            color=_COLOURS[0],
            linewidth=2.0,
        )
        panels[1].set_ylabel("probability of at most x")
        panels[1].set_ylim(0.0, 1.03)
    low, high = min([ends[0], *marks.values()]), max([ends[1], *marks.values()])
    margin = (0.08 if few else 0.05) * (high - low) or 0.1 * abs(high) or 1.0
    for axes in panels:
        _grid(axes)
        _draw_marks(axes, marks, (low, high))
    panels[0].set_xlim(low - margin, high + margin)
    panels[0].set_ylabel("probability" if few else "probability (of a bin or an atom)")
    shown = "" if few else f"; {100 * _SHOWN:g} % of the probability shown"
    panels[-1].set_xlabel(f"x = discounted return ({unit}{shown})")
    panels[-1].xaxis.set_major_formatter("{x:,g}")
    _legend(figure, *panels[0].get_legend_handles_labels(), 3)
    return figure


def save(figure: "Figure", directory: Path | str, name: str) -> tuple[Path, Path]:
    """Write `name`.png and `name`.svg into a directory, made if need be, and return both paths.

    The same picture gives the same bytes.

    Raises:
      UserError: the place is full or not writable.
    """
    from matplotlib import rc_context

    directory = Path(directory)
    png, svg = directory / f"{name}.png", directory / f"{name}.svg"
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": "rigor"}):
        for path, metadata in ((png, {}), (svg, {"Date": None})):
            with disk_errors(path):
                figure.savefig(path, dpi=DPI, facecolor="white", metadata=metadata)
    return png, svg


def _figure(width: float, height: float, title: str) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(textwrap.fill(title, int(width * _LETTERS)), fontsize="large")
    return figure


def _grid(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def _legend(figure: "Figure", handles: list, labels: list[str], columns: int) -> None:
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _number(value: float) -> str:
    """Return a number as a label: 1,234 and 95.5 and 0.05."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _whole(first: int, last: int, most: int) -> np.ndarray:
    """Return at most `most` whole numbers from `first` on, equally spaced by a round step."""
    steps = (step * scale for scale in (1, 10, 100, 1000, 10_000) for step in (1, 2, 5))
    step = next((one for one in steps if (last - first) // one < most), last - first)
    return np.arange(first, last + 1, step)


def _frame_factors(axes: "Axes", factors: Mapping[str, np.ndarray]) -> None:
    """Set the range by what lies beyond t = 0, and say what lies below it at t = 0."""
    lowest = min(float(one[1:].min(initial=one[-1])) for one in factors.values())
    bottom = lowest - 0.1 * (1.0 - lowest) - 1e-3
    axes.set_ylim(bottom, 1.0 + 0.05 * (1.0 - bottom))
    below = [
        f"{name.partition(' (')[0]} starts at {one[0]:.3g}"
        for name, one in factors.items()
        if one[0] < bottom
    ]
    axes.text(0.03, 0.03, "\n".join(below), transform=axes.transAxes, color="0.3")


def _edges(wealth: np.ndarray) -> np.ndarray:
    """Return the cells' edges on a log scale, [n + 1], of points [n]."""
    return np.exp(_middles(np.log(wealth)))


def _middles(points: np.ndarray) -> np.ndarray:
    """Return the middles between points [n], and an edge beyond either end, [n + 1]."""
    if len(points) == 1:
        return np.array([points[0] - 0.5, points[0] + 0.5])
    inner = (points[1:] + points[:-1]) / 2
    return np.concatenate([[2 * points[0] - inner[0]], inner, [2 * points[-1] - inner[-1]]])


def _portfolio_colours(n_portfolios: int) -> "Colormap":
    """Return viridis without its dark end, on which a black hatch would not show."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0.3, 1.0, n_portfolios)))


def _portfolios(
    rows: Sequence[np.ndarray | None], n_portfolios: int, n_points: int
) -> np.ma.MaskedArray:
    """Return portfolio numbers from 1, [n, T + 1]; masked where nothing is invested."""
    numbers = np.ma.masked_all((n_points, len(rows)))
    for t, row in enumerate(rows[:-1]):
        if row is not None:
            numbers[:, t] = row % n_portfolios + 1
    return numbers


def _mark_goal(axes: "Axes", t: int, cost: float, wealth: np.ndarray, taken: np.ndarray) -> None:
    """Hatch the wealth at which the goal of t is taken, and draw its cost."""
    from matplotlib.patches import Rectangle

    edges = _edges(wealth)
    for first, last in _stretches(taken):
        low, high = edges[first], edges[last]
        axes.add_patch(
            Rectangle(
                (t - 0.5, low),
                1.0,
                high - low,
                fill=False,
                hatch="////",
                edgecolor="black",
                linewidth=1.6,
                zorder=4,
            )
        )
        axes.annotate(
            _number(float(f"{low:.3g}")),
            (t, low),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
            zorder=6,
        )
    axes.plot([t - 0.5, t + 0.5], [cost, cost], color=_COLOURS[1], linewidth=3.0, zorder=5)


def _stretches(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the [first, last) of every stretch of true flags."""
    changes = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True)


def _wealth_axes(axes: "Axes", limits: tuple[float, float], n_times: int) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.set_ylim(limits)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_xlim(-0.5, n_times - 0.5)
    axes.set_xticks(_whole(0, n_times - 1, 12))
    axes.set_facecolor("0.93")


def _earned(offsets: Sequence[np.ndarray], level: int) -> str:
    """Return what has been earned on a panel's branch."""
    if not level:
        return "nothing earned yet"
    earned = next(float(one[-1]) for one in offsets if len(one) > 1)
    return f"early goal taken: {_number(earned)} of discounted utility earned"


def _policy_legend(figure: "Figure", columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(
            facecolor="none", edgecolor="black", hatch="////", label="goal taken (lowest wealth)"
        ),
        Line2D([], [], color=_COLOURS[1], linewidth=3.0, label="cost of the goal"),
        Line2D(
            [],
            [],
            color="white",
            markeredgecolor="black",
            marker=">",
            markersize=9,
            linestyle="none",
            label="initial wealth",
        ),
        Patch(facecolor="0.93", label="nothing invested or not reached"),
    ]
    _legend(figure, handles, [str(handle.get_label()) for handle in handles], columns)


def _boundary_limits(boundary: np.ndarray, strike: float, start: float) -> tuple[float, float]:
    known = [strike, start, *boundary[np.isfinite(boundary)]]
    low, high = float(min(known)), float(max(known))
    margin = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _shade(axes: "Axes", edges: np.ndarray, region: np.ndarray) -> None:
    """Shade the cells [n, N + 1] in which a policy exercises, of edges [n + 1]."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    axes.pcolormesh(
        np.arange(region.shape[1] + 1) - 0.5,
        edges,
        np.ma.masked_equal(region, False),
        cmap=ListedColormap(["#BBD9EE"]),
        rasterized=True,
    )
    # of no size: the legend has no entry for a mesh
    axes.add_patch(Rectangle((0.0, edges[0]), 0.0, 0.0, color="#BBD9EE", label="exercises"))


def _stems(
    axes: "Axes", values: np.ndarray, probabilities: np.ndarray, labelled: bool, label: str = ""
) -> None:
    axes.vlines(values, 0.0, probabilities, color=_COLOURS[0], linewidth=3.0)
    axes.plot(
        values, probabilities, "o", color=_COLOURS[0], markersize=7, label=label or "_probability"
    )
    axes.set_ylim(0.0, max(1.12 * float(probabilities.max()), axes.get_ylim()[1]))
    if not labelled:
        return
    room = 0.06 * float(np.ptp(values))
    placed: list[float] = []
    for i in np.argsort(-probabilities):  # the heavier of two neighbours gets its number
        if all(abs(values[i] - other) >= room for other in placed):
            placed.append(float(values[i]))
            axes.annotate(
                f"{100 * probabilities[i]:.3g} %",
                (values[i], probabilities[i]),
                (0, 6),
                textcoords="offset points",
                ha="center",
                va="bottom",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                zorder=6,
            )


def _middle(returns: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    """Return the ends of what lies in the middle of the probability."""
    cumulative = np.cumsum(probabilities)
    places = np.searchsorted(cumulative, [(1 - _SHOWN) / 2, (1 + _SHOWN) / 2])
    low, high = returns[np.minimum(places, len(returns) - 1)]
    return float(low), float(high)


def _histogram(
    axes: "Axes", returns: np.ndarray, probabilities: np.ndarray, ends: tuple[float, float]
) -> None:
    heavy = probabilities >= _HEAVY
    edges = np.linspace(*ends, _BINS + 1)
    mass, _ = np.histogram(returns[~heavy], edges, weights=probabilities[~heavy])
    axes.stairs(mass, edges, fill=True, color="#8CBFE0", label="probability of a bin")
    axes.set_ylim(0.0, 1.12 * float(mass.max()) or 1e-9)
    if heavy.any():
        few = heavy.sum() <= _LABELLED
        _stems(axes, returns[heavy], probabilities[heavy], few, "probability of one value")


def _draw_marks(axes: "Axes", marks: Mapping[str, float], ends: tuple[float, float]) -> None:
    """Draw the marks as lines; those closer than can be seen share one."""
    same = 1e-6 * max(ends[1] - ends[0], abs(ends[1]), abs(ends[0]))
    shared: list[tuple[str, float]] = []
    for name, value in marks.items():
        for i, (names, other) in enumerate(shared):
            if abs(value - other) <= same:
                shared[i] = f"{names} = {name}", other
                break
        else:
            shared.append((name, value))
    for i, (names, value) in enumerate(shared):
        axes.axvline(
            value,
            color=("#D55E00", "#000000", "#CC79A7", "#009E73")[i % 4],
            linestyle=("-", "--", ":", "-.")[i % 4],
            linewidth=2.0,
            label=f"{names} = {_number(value)}",
        )
