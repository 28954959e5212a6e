"""Distributions of the discounted return, of one run of an exact agent and of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.american_put import AmericanPut
from rigor.envs.wealth import Wealth
from rigor.errors import UserError
from rigor.report.data.labels import shorten
from rigor.report.figures.learning_curves import without_seed
from rigor.report.figures.style import (
    COLOURS,
    DASHES,
    dress,
    left_legend,
    legend,
    legend_room,
    new_figure,
    number,
    save_png,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_FEW = 25  # atoms; so many stems are still distinct
_LABELLED = 12  # stems that have room for a number each
_HEAVY = 0.02  # probability of an atom that is a stem of its own beside a histogram
_BINS = 60
_SHOWN = 0.999  # of the probability; tails of 1e-16 would stretch the axis
_BAR = "#8CBFE0"
_MARKS = tuple(zip((COLOURS[i] for i in (1, 6, 3, 2)), DASHES, strict=True))

Distribution = tuple[np.ndarray, np.ndarray]  # returns, ascending, and probabilities, [k] each
Ends = tuple[float, float]


def reward_unit(env: object) -> str:
    """Return the unit of an environment's rewards."""
    units = ((Wealth, "utility"), (AmericanPut, "currency"))
    return next((unit for kind, unit in units if isinstance(env, kind)), "reward")


def read_outcomes(path: Path | str) -> Distribution:
    """Return the returns and their probabilities, float64 [k] each, of an `outcomes.npz`.

    Raises:
      UserError: the file does not hold them.
    """
    from zipfile import BadZipFile

    try:
        with np.load(path) as file:
            return file["returns"], file["probabilities"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise UserError(f"{path}: not the outcomes of a run ({error})") from error


def distribution_figure(
    returns: np.ndarray,
    probabilities: np.ndarray,
    marks: Mapping[str, float],
    unit: str = "reward",
    title: str = "Discounted return",
) -> "Figure":
    """Draw the distribution of the discounted return, and mark some values.

    A few atoms are drawn as stems. Many atoms are drawn as a histogram, with stems for the heavy
    atoms, above the cumulative distribution; the axis then covers the middle 99.9 % and the marks.

    Args:
      returns: distinct values, ascending, in `unit`, [k].
      probabilities: of the returns, with sum one, [k].
      marks: values to mark, by name, such as the mean; equal values share a line.
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
    _label_returns(panels[-1], unit, not few)
    legend(figure, panels[0].get_legend_handles_labels()[0], 3)
    return figure


@dataclass
class Outcome:
    """The distribution of the discounted return of one run.

    label: of the run. returns: ascending, reward units, [k]. probabilities: [k].
    objective: the risk measure of this distribution, which the agent maximises; None if not known.
    risk: its name.
    """

    label: str
    returns: np.ndarray
    probabilities: np.ndarray
    objective: float | None = None
    risk: str = "objective"

    @property
    def marks(self) -> dict[str, float]:
        """The values to mark: the mean, and the objective if it is known."""
        mean = {"mean": float(self.probabilities @ self.returns)}
        return mean if self.objective is None else mean | {self.risk: self.objective}


def return_distributions(runs: Sequence[Outcome], path: Path | str) -> Path:
    """Draw the cumulative distributions of the discounted returns of runs into one PNG.

    A dot marks each mean and a diamond each objective. Runs whose labels differ only in the seed
    share a colour and an entry in the legend, and the title holds the common part of all labels. A
    single run is drawn by `distribution_figure`.

    Args:
      runs: their distributions.
      path: the PNG to write.

    Raises:
      UserError: the disk is full or the path is not writable.
    """
    heading = "Discounted return"
    if len(runs) == 1:
        (run,) = runs
        title = f"{heading} of {run.label}"
        figure = distribution_figure(run.returns, run.probabilities, run.marks, title=title)
        return save_png(figure, path)
    groups: dict[str, list[Outcome]] = {}
    for run in runs:
        groups.setdefault(without_seed(run.label), []).append(run)
    pattern, names = shorten(list(groups))
    width, columns, below = legend_room(names, 8.0)
    figure = new_figure(width, 5.0 + below, f"{heading} of {pattern}" if pattern else heading)
    axes = figure.subplots()
    marks = [value for run in runs for value in run.marks.values()]
    lows, highs = zip(*(_ends(run.returns, run.probabilities) for run in runs), strict=True)
    ends = _widened((min(*lows, *marks), max(*highs, *marks)), 0.05)
    handles = [
        _draw_seeds(axes, seeds, ends, name, i)
        for i, (name, seeds) in enumerate(zip(names, groups.values(), strict=True))
    ]
    dress(axes)
    axes.set_xlim(ends)
    _label_returns(axes, "reward", any(len(run.returns) > _FEW for run in runs))
    explanation = "dot: mean; diamond: objective, which the agent maximises"
    left_legend(figure, handles, columns, explanation)
    return save_png(figure, path)


def _ends(returns: np.ndarray, probabilities: np.ndarray) -> Ends:
    """Return the ends of a few atoms, or of the middle of the probability of many atoms."""
    if len(returns) <= _FEW:
        return float(returns[0]), float(returns[-1])
    cumulative = np.cumsum(probabilities)
    places = np.searchsorted(cumulative, [(1 - _SHOWN) / 2, (1 + _SHOWN) / 2])
    low, high = returns[np.minimum(places, len(returns) - 1)]
    return float(low), float(high)


def _widened(ends: Ends, fraction: float) -> Ends:
    low, high = ends
    margin = fraction * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _label_returns(axes: "Axes", unit: str, is_cut: bool) -> None:
    shown = f"; {100 * _SHOWN:g} % of the probability shown" if is_cut else ""
    axes.set_xlabel(f"x = discounted return ({unit}{shown})")
    axes.xaxis.set_major_formatter("{x:,g}")


def _cumulative(axes: "Axes", distribution: Distribution, ends: Ends, **style: Any) -> "Line2D":
    """Draw the cumulative distribution up to both ends of the axis."""
    returns, probabilities = distribution
    low, high = min(ends[0], returns[0]), max(ends[1], returns[-1])
    x = np.concatenate([[low], returns, [high]])
    y = np.concatenate([[0.0], np.cumsum(probabilities), [1.0]])
    axes.set_ylim(0.0, 1.03)
    axes.set_ylabel("probability of at most x")
    return axes.step(x, y, where="post", linewidth=2.0, **style)[0]


def _draw_seeds(
    axes: "Axes", seeds: Sequence[Outcome], ends: Ends, name: str, index: int
) -> "Line2D":
    """Draw the distributions and means of one group, and return a line for the legend."""
    # Dashes change with every line, so that lines beneath an equal line remain visible.
    style = {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)]}
    for run in seeds:
        line = _cumulative(axes, (run.returns, run.probabilities), ends, label=name, **style)
        for value, shape in zip(run.marks.values(), "oD", strict=False):
            height = float(run.probabilities[run.returns <= value].sum())
            axes.plot([value], [height], shape, color=style["color"], markersize=7, zorder=3)
    return line


def _stems(axes: "Axes", values: np.ndarray, probabilities: np.ndarray, label: str = "") -> None:
    """Draw atoms as stems, with numbers if there are few; a heavy atom gets its number first."""
    axes.vlines(values, 0.0, probabilities, color=COLOURS[0], linewidth=3.0)
    label = label or "_probability"
    axes.plot(values, probabilities, "o", color=COLOURS[0], markersize=7, label=label)
    axes.set_ylim(0.0, max(1.12 * float(probabilities.max()), axes.get_ylim()[1]))
    if len(values) > _LABELLED:
        return
    room = 0.06 * float(np.ptp(values))
    placed: list[float] = []
    for i in np.argsort(-probabilities):
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
    bins, _ = np.histogram(returns[~heavy], edges, weights=probabilities[~heavy])
    axes.stairs(bins, edges, fill=True, color=_BAR, label="probability of a bin")
    axes.set_ylim(0.0, 1.12 * float(bins.max()) or 1e-9)
    if heavy.any():
        _stems(axes, returns[heavy], probabilities[heavy], "probability of one value")


def _draw_marks(axes: "Axes", marks: Mapping[str, float], ends: Ends) -> None:
    """Draw marks as lines; marks too close to be distinct share a line."""
    tolerance = 1e-6 * max(ends[1] - ends[0], abs(ends[1]), abs(ends[0]))
    lines: list[tuple[str, float]] = []
    for name, value in marks.items():
        for i, (names, other) in enumerate(lines):
            if abs(value - other) <= tolerance:
                lines[i] = f"{names} = {name}", other
                break
        else:
            lines.append((name, value))
    for (names, value), (colour, dashes) in zip(lines, _MARKS, strict=False):
        label = f"{names} = {number(value)}"
        axes.axvline(value, color=colour, linestyle=dashes, linewidth=2.0, label=label)
