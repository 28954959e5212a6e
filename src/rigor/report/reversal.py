"""The paper's figure 3: which of two goals is reached, under each discount and risk measure.

Nothing is trained for it: the probabilities are those of the exact optimal policies. Learned runs
and the paper's own numbers stand beside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.wealth import Wealth
from rigor.exact.optimum import optimum
from rigor.exact.wealth import WealthModel
from rigor.maths.discount import Discount, Exponential, Hyperbolic
from rigor.maths.utility import CVaR, Mean, Utility
from rigor.report import published, scores
from rigor.report.runs import Run
from rigor.report.style import COLOURS, dress, key, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# γ that gives the early and the late goal the ratio of weights of k = .05, by T (erratum E28)
EQUIVALENT = {10: (1.25 / 1.5) ** (1 / 5), 30: (1.75 / 2.5) ** (1 / 15)}
GAMMAS = (0.9, 0.92, 0.94, 0.95, 0.96, EQUIVALENT[10], 0.97, EQUIVALENT[30], 0.98, 0.99, 1.0)
RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # k
RISKS: dict[str, Utility] = {"mean": Mean(), "cvar": CVaR(0.1)}
SETTINGS = ((10, 1000), (10, 2000), (30, 1000), (30, 2000))  # T, u_T

_STEP = 0.002  # of log wealth: three times as fast as .001, and P within .001 of it
_STOCKS = 16  # two goals have four totals
_NAMED = {"gamma=1": "γ = 1", "gamma=0.99": "γ = .99", "k=0.05": "k = .05"}
_COLOURS = {"gamma=1": COLOURS[6], "gamma=0.99": COLOURS[0], "k=0.05": COLOURS[1]}
_MARKERS = dict(zip(SETTINGS, "o^sD", strict=True))


@dataclass
class Chances:
    """P₁ and P₂ of one problem and risk measure, by discount.

    exponential: for `GAMMAS`, [n, 2]. hyperbolic: for `RATES`, [k, 2].
    """

    exponential: np.ndarray
    hyperbolic: np.ndarray

    def of(self, discount: str) -> np.ndarray:
        """Return the pair [2] of a discount called as in `published.wealth_table`."""
        name, _, value = discount.partition("=")
        if name == "gamma":
            return self.exponential[GAMMAS.index(float(value))]
        return self.hyperbolic[RATES.index(float(value))]


def chances(
    problem: Wealth, risk: Utility, discounts: Sequence[Discount], step: float = _STEP
) -> np.ndarray:
    """Return P₁ and P₂, of reaching the early and the late goal, of the optimal policies, [n, 2].

    Where CVaR leaves several policies optimal the one with the largest mean counts (erratum E29).

    Args:
      problem: two goals. risk: what is maximised, of the discounted utility.
      discounts: n of them. step: width of a cell of the grid in log wealth.
    """
    model = WealthModel(problem, step)
    times = np.arange(model.n_decisions)
    found = []
    for discount in discounts:
        best = optimum(model, discount.factor(times), risk, _STOCKS)
        numbers = model.numbers(best.outcome)
        found.append((numbers["p_early"], numbers["p_late"]))
    return np.array(found)


def solve(scaling: str) -> dict[tuple[str, int, int], Chances]:
    """Return the chances of both risks and all four problems of the paper, by (risk, T, u_T)."""
    discounts: list[Discount] = [*map(Exponential, GAMMAS), *map(Hyperbolic, RATES)]
    found = {}
    for periods, late in SETTINGS:
        problem = papers_problem(periods, late, scaling)
        for name, risk in RISKS.items():
            both = chances(problem, risk, discounts)
            found[name, periods, late] = Chances(both[: len(GAMMAS)], both[len(GAMMAS) :])
    return found


def papers_problem(periods: int, late_utility: float, scaling: str) -> Wealth:
    """Return the environment of the config group with the paper's T and u_T."""
    from hydra import compose, initialize_config_module
    from hydra.utils import instantiate

    import hydra_plugins.rigor.sweeper  # noqa: F401  conf/train.yaml names it
    from rigor import config

    config.register()
    choices = [
        f"env.periods={periods}",
        f"env.late_utility={late_utility}",
        f"env.scaling={scaling}",
    ]
    with initialize_config_module("rigor.conf", version_base="1.3"):
        problem = instantiate(compose("train", ["env=gbwm", *choices])["env"], _convert_="all")
    assert isinstance(problem, Wealth)
    return problem


def learned_rows(runs: Sequence[Run], scaling: str) -> list[dict[str, Any]]:
    """Return P₁ and P₂ of learned agents on the paper's problems, with intervals over seeds.

    Args:
      runs: of them those that are done, learned, and on a problem of that scaling count; at ten
        periods every scaling is the same.
    """
    groups: dict[tuple[str, int, int, str], list[Run]] = {}
    for run in runs:
        place = published.wealth_key(run.choices, run.settings)
        if place is None or run.result.get("episodes", 0) == 0 or "p_early" not in run.result:
            continue
        if place[0] == 10 or run.settings.get("env.scaling") == scaling:
            periods, late, risk, discount = place
            groups.setdefault((risk, periods, late, discount), []).append(run)
    rows = []
    for (risk, periods, late, discount), members in groups.items():
        row: dict[str, Any] = {"risk": risk, "periods": periods, "late_utility": late}
        row |= {"discount": discount, "n": len(members)}
        for name in ("p_early", "p_late"):
            values = np.array([run.result[name] for run in members])
            found = scores.estimate(scores.mean, [values])
            row[name] = (float(found.value), float(found.low), float(found.high))
        rows.append(row)
    return rows


def reversal_figure(
    solved: Mapping[tuple[str, int, int], Chances], learned: Sequence[Mapping[str, Any]], title: str
) -> "Figure":
    """Draw P₂ against P₁ for the mean and for CVaR, and what two horizons say together.

    Args:
      solved: of `solve`. learned: of `learned_rows`. title: of the figure.
    """
    figure = new_figure(14.0, 6.6, title)
    panels = figure.subplots(1, 3)
    names = {"mean": "mean (figure 3a)", "cvar": "CVaR₀.₁ (figure 3b)"}
    for axes, (risk, name) in zip(panels, names.items(), strict=False):
        for periods, late in SETTINGS:
            _problem(axes, solved[risk, periods, late], (periods, late))
        _published(axes, risk)
        _learned(axes, [row for row in learned if row["risk"] == risk])
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("$P_1$: the early goal is reached")
        axes.set_ylabel("$P_2$: the late goal is reached")
        dress(axes)
    _pair(panels[2], solved["mean", 10, 2000], solved["mean", 30, 2000])
    key(figure, _handles(bool(learned)), 4, "")
    return figure


def _problem(axes: "Axes", found: Chances, setting: tuple[int, int]) -> None:
    """Draw a problem's two curves, one upon the other, and the paper's discounts on them."""
    axes.plot(*found.exponential.T, color=COLOURS[4], linewidth=5.0, alpha=0.55, zorder=2)
    axes.plot(*found.hyperbolic.T, color=COLOURS[1], linewidth=1.4, zorder=3)
    for discount, colour in _COLOURS.items():
        place = found.of(discount)
        axes.plot(*place, _MARKERS[setting], color=colour, markersize=8, zorder=5)


def _published(axes: "Axes", risk: str) -> None:
    table = published.wealth_table()
    for row in table[table["risk"] == risk].to_dict("records"):
        axes.plot(
            row["p_early"],
            row["p_late"],
            _MARKERS[row["periods"], row["late_utility"]],
            markerfacecolor="none",
            color=_COLOURS[row["discount"]],
            markersize=8,
            zorder=4,
        )


def _learned(axes: "Axes", rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        (x, *x_ends), (y, *y_ends) = row["p_early"], row["p_late"]
        colour = _COLOURS.get(row["discount"], COLOURS[3])
        if row["n"] > 1:
            axes.plot(x_ends, [y, y], color=colour, linewidth=1.0, zorder=5)
            axes.plot([x, x], y_ends, color=colour, linewidth=1.0, zorder=5)
        axes.plot(
            x,
            y,
            _MARKERS[row["periods"], row["late_utility"]],
            markerfacecolor="0.85",
            color=colour,
            markersize=6,
            zorder=6,
        )


def _pair(axes: "Axes", short: Chances, long: Chances) -> None:
    """Draw P₁ at ten periods against P₁ at thirty: the only place where discounts differ."""
    x, y = short.exponential[:, 0], long.exponential[:, 0]
    axes.plot(x, y, color=COLOURS[4], linewidth=5.0, alpha=0.55, zorder=2)
    axes.plot(x, y, ".", color=COLOURS[0])
    axes.plot(short.hyperbolic[:, 0], long.hyperbolic[:, 0], ".-", color=COLOURS[1], linewidth=1.4)
    for discount, colour in _COLOURS.items():
        place = short.of(discount)[0], long.of(discount)[0]
        axes.plot(*place, "P", color=colour, markersize=9, zorder=5)
    one = short.of("k=0.05")[0], long.of("k=0.05")[0]
    for periods, height in ((10, 0.3), (30, 0.12)):
        i = GAMMAS.index(EQUIVALENT[periods])
        axes.plot([one[0], x[i]], [one[1], y[i]], ":", color="0.4", linewidth=1.4)
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

    nothing: tuple[list[float], list[float]] = ([], [])
    band: dict[str, Any] = {"color": COLOURS[4], "linewidth": 5.0, "alpha": 0.55}
    hollow: dict[str, Any] = {"marker": "o", "linestyle": "", "color": "0.3"}
    found = [
        Line2D(*nothing, color=_COLOURS[one], marker="P", linestyle="", label=f"exact, {name}")
        for one, name in _NAMED.items()
    ]
    found += [
        Line2D(*nothing, label=f"exact, γ = {GAMMAS[0]:g} to 1", **band),
        Line2D(*nothing, label=f"exact, k = {RATES[0]:g} to {RATES[-1]:g}", color=COLOURS[1]),
        Line2D(*nothing, markerfacecolor="none", label="hollow: the paper's tables", **hollow),
    ]
    found += [
        Line2D(*nothing, color="0.3", marker=marker, linestyle="", label=f"T = {t}, $u_T$ = {late}")
        for (t, late), marker in _MARKERS.items()
    ]
    if has_learned:
        label = "grey inside: learned, mean and interval over seeds"
        found.append(Line2D(*nothing, markerfacecolor="0.85", label=label, **hollow))
    return found
