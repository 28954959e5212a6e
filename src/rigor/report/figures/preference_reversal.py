"""The paper's figure 3: which of two goals is reached, by discount and risk measure.

The curves are exact: they need no training. Learned runs and the paper's numbers are points.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rigor.report.data import published
from rigor.report.figures.goal_probabilities import (
    EQUIVALENT,
    GAMMAS,
    RATES,
    SETTINGS,
    GoalProbabilities,
)
from rigor.report.figures.style import COLOURS, dress, left_legend, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {"mean": "mean (figure 3a)", "cvar": "CVaR₀.₁ (figure 3b)"}
_LABELS = {"gamma=1": "γ = 1", "gamma=0.99": "γ = .99", "k=0.05": "k = .05"}
_COLOURS = {"gamma=1": COLOURS[6], "gamma=0.99": COLOURS[0], "k=0.05": COLOURS[1]}
_MARKERS = dict(zip(SETTINGS, "o^sD", strict=True))
_BAND: dict[str, Any] = {"color": COLOURS[4], "linewidth": 5.0, "alpha": 0.55}
_HYPERBOLIC: dict[str, Any] = {"color": COLOURS[1], "linewidth": 1.4}
_HOLLOW: dict[str, Any] = {"markerfacecolor": "none"}
_LEARNED: dict[str, Any] = {"markerfacecolor": "0.85"}


def reversal_figure(
    exact: Mapping[tuple[str, int, int], GoalProbabilities],
    learned: Sequence[Mapping[str, Any]],
    title: str,
) -> "Figure":
    """Draw P₂ against P₁ for the mean and for CVaR, and P₁ of two horizons against each other.

    Args:
      exact: the result of `solve`. learned: the result of `learned_rows`. title: of the figure.
    """
    figure = new_figure(14.0, 6.6, title)
    *panels, pair = figure.subplots(1, 3)
    for axes, (risk, name) in zip(panels, _TITLES.items(), strict=True):
        for setting in SETTINGS:
            _draw_exact(axes, exact[risk, *setting], setting)
        _draw_published(axes, risk)
        for row in learned:
            if row["risk"] == risk:
                _draw_learned(axes, row)
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("$P_1$: the early goal is reached")
        axes.set_ylabel("$P_2$: the late goal is reached")
        dress(axes)
    _draw_pair(pair, exact["mean", 10, 2000], exact["mean", 30, 2000])
    left_legend(figure, _handles(bool(learned)), 4)
    return figure


def _draw_exact(axes: "Axes", exact: GoalProbabilities, setting: tuple[int, int]) -> None:
    """Draw both curves of a problem, and the points of the paper's discounts on them."""
    axes.plot(*exact.exponential.T, zorder=2, **_BAND)
    axes.plot(*exact.hyperbolic.T, zorder=3, **_HYPERBOLIC)
    for discount, colour in _COLOURS.items():
        axes.plot(*exact.of(discount), _MARKERS[setting], color=colour, markersize=8, zorder=5)


def _draw_published(axes: "Axes", risk: str) -> None:
    table = published.wealth_table()
    for row in table[table["risk"] == risk].to_dict("records"):
        marker = _MARKERS[row["periods"], row["late_utility"]]
        style: dict[str, Any] = {"color": _COLOURS[row["discount"]], "markersize": 8, "zorder": 4}
        axes.plot(row["p_early"], row["p_late"], marker, **style, **_HOLLOW)


def _draw_learned(axes: "Axes", row: Mapping[str, Any]) -> None:
    (x, *x_ends), (y, *y_ends) = row["p_early"], row["p_late"]
    colour = _COLOURS.get(row["discount"], COLOURS[3])
    if row["n"] > 1:
        axes.plot(x_ends, [y, y], color=colour, linewidth=1.0, zorder=5)
        axes.plot([x, x], y_ends, color=colour, linewidth=1.0, zorder=5)
    marker = _MARKERS[row["periods"], row["late_utility"]]
    axes.plot(x, y, marker, color=colour, markersize=6, zorder=6, **_LEARNED)


def _draw_pair(axes: "Axes", short: GoalProbabilities, long: GoalProbabilities) -> None:
    """Draw P₁ at T = 30 against P₁ at T = 10: only this pair tells the discounts apart."""
    x, y = short.exponential[:, 0], long.exponential[:, 0]
    axes.plot(x, y, zorder=2, **_BAND)
    axes.plot(x, y, ".", color=COLOURS[0])
    axes.plot(short.hyperbolic[:, 0], long.hyperbolic[:, 0], ".-", **_HYPERBOLIC)
    for discount, colour in _COLOURS.items():
        point = short.of(discount)[0], long.of(discount)[0]
        axes.plot(*point, "P", color=colour, markersize=9, zorder=5)
    hyperbolic = short.of("k=0.05")[0], long.of("k=0.05")[0]
    for periods, height in ((10, 0.3), (30, 0.12)):
        i = GAMMAS.index(EQUIVALENT[periods])
        axes.plot([hyperbolic[0], x[i]], [hyperbolic[1], y[i]], ":", color="0.4", linewidth=1.4)
        axes.annotate(
            f"γ = {GAMMAS[i]:.6f}: at T = {periods}\nthe same policy as k = .05",
            (x[i], y[i]),
            (0.42, height),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "->", "color": "0.3", "shrinkB": 3},
        )
    axes.set_title("mean, $u_T$ = 2000: two horizons together", fontsize="medium")
    axes.set_xlabel("$P_1$ at T = 10")
    axes.set_ylabel("$P_1$ at T = 30")
    dress(axes)


def _handles(has_learned: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    def handle(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    point: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "0.3"}
    handles = [
        handle(f"exact, {label}", color=_COLOURS[discount], marker="P", linestyle="")
        for discount, label in _LABELS.items()
    ]
    handles += [
        handle(f"exact, γ = {GAMMAS[0]:g} to 1", **_BAND),
        handle(f"exact, k = {RATES[0]:g} to {RATES[-1]:g}", **_HYPERBOLIC),
        handle("hollow: the paper's tables", **point, **_HOLLOW),
    ]
    handles += [
        handle(f"T = {periods}, $u_T$ = {late_utility}", **point | {"marker": marker})
        for (periods, late_utility), marker in _MARKERS.items()
    ]
    if has_learned:
        label = "grey inside: learned, mean and 95 % interval over seeds"
        handles.append(handle(label, **point, **_LEARNED))
    return handles
