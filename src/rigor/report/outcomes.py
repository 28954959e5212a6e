"""Pictures of the law of the discounted return: of one run of an exact agent, and of several."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.errors import UserError
from rigor.report.figures import without_seed
from rigor.report.style import (
    COLOURS,
    DASHES,
    dress,
    key,
    key_room,
    legend,
    new_figure,
    number,
    save_png,
)
from rigor.report.tables import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_FEW = 25  # atoms that can be told apart as stems
_LABELLED = 12  # stems that have room for a number each
_HEAVY = 0.02  # an atom among many that is a stem of its own beside the histogram
_BINS = 60
_SHOWN = 0.999  # of the probability: tails of 1e-16 would make the axis meaningless
_BAR = "#8CBFE0"
_MARKS = tuple(zip((COLOURS[i] for i in (1, 6, 3, 2)), DASHES, strict=True))

Law = tuple[np.ndarray, np.ndarray]  # returns, ascending, and probabilities, [k] each
Ends = tuple[float, float]


def read_outcomes(path: Path | str) -> Law:
    """Return the returns and their probabilities, float64 [k] each, of an `outcomes.npz`.

    Raises:
      UserError: the file is no such thing.
    """
    from zipfile import BadZipFile

    try:
        with np.load(path) as file:
            return file["returns"], file["probabilities"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise UserError(f"{path}: not the outcomes of a run ({error})") from error


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
    figure = new_figure(8.0, 5.2 if few else 7.0, title)
    ends = _ends(returns, probabilities)
    low, high = min([ends[0], *marks.values()]), max([ends[1], *marks.values()])
    limits = _widened((low, high), 0.08 if few else 0.05)
    if few:
        panels = [figure.subplots()]
        _stems(panels[0], returns, probabilities)
    else:
        panels = list(figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
        _histogram(panels[0], returns, probabilities, ends)
        _cumulative(panels[1], (returns, probabilities), limits, color=COLOURS[0])
    for axes in panels:
        dress(axes)
        _draw_marks(axes, marks, (low, high))
    panels[0].set_xlim(limits)
    panels[0].set_ylabel("probability" if few else "probability (of a bin or an atom)")
    _name_returns(panels[-1], unit, not few)
    legend(figure, panels[0].get_legend_handles_labels()[0], 3)
    return figure


def outcomes_of_runs(runs: Sequence[tuple[str, np.ndarray, np.ndarray]], path: Path | str) -> Path:
    """Draw the distribution functions of the discounted returns of runs, a dot at each mean.

    What the labels share is said once, in the title. Runs whose labels differ only in the seed
    share a colour and an entry in the legend. One run alone is drawn as its `outcome_law`.

    Args:
      runs: (label, returns [k], probabilities [k]) of each, returns ascending, reward units.
      path: the PNG to write.

    Raises:
      UserError: the place is full or not writable.
    """
    if len(runs) == 1:
        ((label, returns, probabilities),) = runs
        mean = {"mean": float(probabilities @ returns)}
        alone = outcome_law(returns, probabilities, mean, title=f"Outcomes of {label}")
        return save_png(alone, path)
    groups: dict[str, list[Law]] = {}
    for label, returns, probabilities in runs:
        groups.setdefault(without_seed(label), []).append((returns, probabilities))
    shared, names = shorten(list(groups))
    width, columns, below = key_room(names, 8.0)
    figure = new_figure(width, 5.0 + below, f"Outcomes of {shared}" if shared else "Outcomes")
    axes = figure.subplots()
    laws = [law for seeds in groups.values() for law in seeds]
    lows, highs = zip(*(_ends(*law) for law in laws), strict=True)
    ends = _widened((min(lows), max(highs)), 0.05)
    lines = [
        _draw_laws(axes, seeds, ends, name, i)
        for i, (name, seeds) in enumerate(zip(names, groups.values(), strict=True))
    ]
    dress(axes)
    axes.set_xlim(ends)
    _name_returns(axes, "reward", any(len(returns) > _FEW for returns, _ in laws))
    key(figure, lines, columns, "dot: the mean")
    return save_png(figure, path)


def _ends(returns: np.ndarray, probabilities: np.ndarray) -> Ends:
    """Return the ends of a few atoms, or of what lies in the middle of the probability of many."""
    if len(returns) <= _FEW:
        return float(returns[0]), float(returns[-1])
    cumulative = np.cumsum(probabilities)
    places = np.searchsorted(cumulative, [(1 - _SHOWN) / 2, (1 + _SHOWN) / 2])
    low, high = returns[np.minimum(places, len(returns) - 1)]
    return float(low), float(high)


def _widened(ends: Ends, share: float) -> Ends:
    low, high = ends
    margin = share * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _name_returns(axes: "Axes", unit: str, cut: bool) -> None:
    shown = f"; {100 * _SHOWN:g} % of the probability shown" if cut else ""
    axes.set_xlabel(f"x = discounted return ({unit}{shown})")
    axes.xaxis.set_major_formatter("{x:,g}")


def _cumulative(axes: "Axes", law: Law, ends: Ends, **style: Any) -> "Line2D":
    """Draw the distribution function, 0 and 1 beyond the returns up to the ends of the axis."""
    returns, probabilities = law
    low, high = min(ends[0], returns[0]), max(ends[1], returns[-1])
    x = np.concatenate([[low], returns, [high]])
    y = np.concatenate([[0.0], np.cumsum(probabilities), [1.0]])
    axes.set_ylim(0.0, 1.03)
    axes.set_ylabel("probability of at most x")
    return axes.step(x, y, where="post", linewidth=2.0, **style)[0]


def _draw_laws(axes: "Axes", seeds: Sequence[Law], ends: Ends, name: str, index: int) -> "Line2D":
    """Draw the distributions and means of one group, and return a line for the legend."""
    # dashes change with every line, so that of those that coincide more than the last shows
    style = {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)]}
    for law in seeds:
        returns, probabilities = law
        line = _cumulative(axes, law, ends, label=name, **style)
        mean = float(probabilities @ returns)
        reached = float(probabilities[returns <= mean].sum())
        axes.plot([mean], [reached], "o", color=style["color"], markersize=7, zorder=3)
    return line


def _stems(axes: "Axes", values: np.ndarray, probabilities: np.ndarray, label: str = "") -> None:
    axes.vlines(values, 0.0, probabilities, color=COLOURS[0], linewidth=3.0)
    label = label or "_probability"
    axes.plot(values, probabilities, "o", color=COLOURS[0], markersize=7, label=label)
    axes.set_ylim(0.0, max(1.12 * float(probabilities.max()), axes.get_ylim()[1]))
    if len(values) > _LABELLED:
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


def _histogram(axes: "Axes", returns: np.ndarray, probabilities: np.ndarray, ends: Ends) -> None:
    heavy = probabilities >= _HEAVY
    edges = np.linspace(*ends, _BINS + 1)
    mass, _ = np.histogram(returns[~heavy], edges, weights=probabilities[~heavy])
    axes.stairs(mass, edges, fill=True, color=_BAR, label="probability of a bin")
    axes.set_ylim(0.0, 1.12 * float(mass.max()) or 1e-9)
    if heavy.any():
        _stems(axes, returns[heavy], probabilities[heavy], "probability of one value")


def _draw_marks(axes: "Axes", marks: Mapping[str, float], ends: Ends) -> None:
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
        colour, dashes = _MARKS[i % len(_MARKS)]
        label = f"{names} = {number(value)}"
        axes.axvline(value, color=colour, linestyle=dashes, linewidth=2.0, label=label)
