"""What a frozen clock costs, what the quadrature and what learning: figure 1 and its table.

A learned agent is worth less than the optimum for three reasons: its clock stands still, its rule
of quadrature is poor, and it has learned from samples. An exact agent of the same variant, rule and
bootstrap, `agent=backward_induction`, has the first two only.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.report import scores
from rigor.report.agents import Agent
from rigor.report.comparison import yardstick
from rigor.report.figures import shared_points
from rigor.report.runs import Run
from rigor.report.sheet import Sheet, with_interval
from rigor.report.style import dress, key, key_room, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rigor.report.panels import Styles

EXACT = ("backward_induction", "infinite_horizon")
COLUMNS = {"eval_objective": "objective", "eval_score": "undiscounted score"}
RELEASED, ACCURATE = "lower", "gauss_legendre"  # rules of quadrature

Group = tuple[Agent, str, list[Run]]
"""An agent, the label of an environment, and the runs that are solved there."""


def is_put(run: Run) -> bool:
    """Tell whether a run's environment is the American put."""
    return str(run.settings.get("env._target_", "")).endswith(".Put")


def is_lander(run: Run) -> bool:
    """Tell whether a run's environment is a lunar lander, by its name."""
    return "lander" in run.choices["env"].replace("_", "").lower()


def method_of(run: Run) -> dict[str, Any]:
    """Return what an exact agent shares with a learned one: variant, horizons, bootstrap."""
    several = str(run.settings.get("horizons._target_", "")).endswith(".Multi")
    return {
        "variant": run.choices["variant"],
        "quadrature": run.settings.get("horizons.quadrature") if several else "single",
        "m": run.settings.get("horizons.m") if several else 1,
        "gamma_max": run.settings.get("horizons.gamma_max") if several else None,
        "bootstrap": run.settings.get("agent.bootstrap"),
    }


def split_sheet(groups: Sequence[Group]) -> Sheet:
    """Return the loss of each agent on the put, parted into the method's and learning's.

    Args:
      groups: learned agents and exact ones.
    """
    groups = [group for group in groups if all("objective_exact" in r.result for r in group[2])]
    exact = [(_problem(group), method_of(group[2][0]), group) for group in groups if _exact(group)]
    rows, told = [], []
    for group in groups:
        if _exact(group):
            continue
        one, name, runs = group
        ours = np.array([run.result["objective_exact"] for run in runs])
        found = scores.estimate(scores.mean, [ours])
        optimal, method = runs[0].result["objective_optimal"], method_of(runs[0])
        row = {"environment": name, **method, "agent": one.label, "n": len(runs)}
        row |= with_interval("learned", found.value, found.low, found.high)
        for problem, other, (_, _, members) in exact:
            if (problem, other) == (_problem(group), method):
                worth = members[0].result["objective_exact"]
                told.append((problem, method))
                row["exact"] = worth
                row["lost_method"] = _percent(optimal, worth, optimal)
                row["lost_learning"] = _percent(worth, float(ours.mean()), optimal)
        rows.append(row | {"optimal": optimal})
    for problem, method, (one, name, runs) in exact:
        if (problem, method) in told:
            continue
        worth, optimal = (runs[0].result[f"objective_{one}"] for one in ("exact", "optimal"))
        lost = _percent(optimal, worth, optimal)
        row = {"environment": name, **method, "agent": one.label, "exact": worth}
        rows.append(row | {"optimal": optimal, "lost_method": lost})
    rows.sort(key=lambda row: [str(row[name]) for name in ("environment", *method_keys())])
    return Sheet(
        name="put_consistency",
        title="American put: what the method loses, and what learning",
        caption="Learned: the exact value of the final policies, mean over seeds. Exact agent: "
        "what the same variant, quadrature and bootstrap come to without learning, from a run of "
        "agent=backward_induction in this report; – where there is none. Lost, in percent of the "
        "optimum: by the method, optimum less exact agent; in learning, exact agent less learned.",
        rows=rows,
        shown={
            "environment": "problem",
            "variant": "variant",
            "quadrature": "quadrature",
            "m": "m",
            "bootstrap": "bootstrap",
            "n": "n",
            "learned": "learned",
            "exact": "exact agent",
            "optimal": "optimum",
            "lost_method": "lost by the method",
            "lost_learning": "lost in learning",
        },
        units={"lost_method": " %", "lost_learning": " %"},
    )


def method_keys() -> tuple[str, ...]:
    """Return the columns that tell a method."""
    return ("variant", "quadrature", "m", "gamma_max", "bootstrap")


def split_lines(sheet: Sheet) -> list[str]:
    """Say how much of the exact time-inconsistent agents' loss is the released quadrature's."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in sheet.rows:
        if row["variant"] == "time_inconsistent" and row.get("lost_method") is not None:
            of_rule = found.setdefault((row["environment"], row["bootstrap"]), {})
            of_rule[row["quadrature"]] = row["lost_method"]
    return [
        f"{environment}, {bootstrap} bootstrap: the exact time-inconsistent agent loses "
        f"{lost[RELEASED]:.2f} % of the optimum under the released rule ({RELEASED}) and "
        f"{lost[ACCURATE]:.2f} % under an accurate one ({ACCURATE}): the latter is the price of "
        "inconsistency, the rest that of the quadrature."
        for (environment, bootstrap), lost in found.items()
        if {RELEASED, ACCURATE} <= lost.keys()
    ]


def consistency_figure(
    agents: Sequence[Agent], environments: Sequence[str], look: "Styles", title: str = ""
) -> "Figure":
    """Draw learning curves with intervals over seeds, and what exact agents come to.

    Two panels an environment: the objective, which agents maximise, and the undiscounted score.

    Args:
      agents: learned and exact. environments: labels of those to draw. look: the agents' lines.
    """
    names = [
        one.label for one in agents if not _is_exact(one) and set(environments) & one.runs.keys()
    ]
    width, columns, below = key_room(names, 9.0)
    figure = new_figure(width, 3.3 * len(environments) + 0.7 + below, title)
    grid = figure.subplots(len(environments), 2, squeeze=False)
    for row, environment in zip(grid, environments, strict=True):
        for axes, column in zip(row, COLUMNS, strict=True):
            _panel(axes, agents, environment, column, look)
    drawn = [run for one in agents for name in environments for run in one.runs.get(name, [])]
    solved = any("objective_optimal" in run.result for run in drawn)
    key(
        figure,
        _handles(names, look, solved),
        columns,
        "line: mean over seeds; band: 95 % interval of it",
    )
    return figure


def consistency_panel(
    agents: Sequence[Agent], environment: str, column: str, look: "Styles"
) -> "Figure":
    """Draw one of the panels of `consistency_figure` by itself; column: one of `COLUMNS`."""
    figure = new_figure(4.2, 3.0, "")
    _panel(figure.subplots(), agents, environment, column, look)
    return figure


def _panel(
    axes: "Axes", agents: Sequence[Agent], environment: str, column: str, look: "Styles"
) -> None:
    for one in agents:
        if not _is_exact(one):
            _curve(axes, one.runs.get(environment, []), column, look[one.label])
    _exact_lines(axes, agents, environment, column, look)
    _dress(axes, environment, COLUMNS[column])


def _percent(best: float, worth: float, optimal: float) -> float | None:
    return round(100.0 * (best - worth) / optimal, 3) if optimal > 0 else None


def _is_exact(agent: Agent) -> bool:
    return all(run.choices["agent"] in EXACT for run in agent.members)


def _exact(group: Group) -> bool:
    return group[2][0].choices["agent"] in EXACT


def _problem(group: Group) -> tuple[Any, ...]:
    """Return the environment and what is to be maximised in it."""
    return group[1], *yardstick(group[2][0])


def _curve(axes: "Axes", runs: Sequence[Run], column: str, style: dict[str, Any]) -> None:
    curves = [run.curve.dropna(subset=column) for run in runs if column in run.curve]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return
    steps, values = shared_points(curves, column)
    if not len(steps):
        return  # seeds that have no step in common
    found = scores.estimate(_each_mean, list(values.T))
    if len(curves) > 1:
        axes.fill_between(steps, found.low, found.high, color=style["color"], alpha=0.18, lw=0)
    marker = "o" if len(steps) < 3 else ""
    axes.plot(steps, found.value, linewidth=1.8, marker=marker, markersize=3, **style)


def _each_mean(seeds: scores.Scores) -> np.ndarray:
    """Return the mean at every point, [n, ...], each an array of its seeds' values [..., k]."""
    return np.stack([np.mean(values, axis=-1) for values in seeds])


def _exact_lines(
    axes: "Axes", agents: Sequence[Agent], environment: str, column: str, look: "Styles"
) -> None:
    """Draw the optimum, and the exact agent of each learned one in its colour."""
    learned = [
        (one, method_of(runs[0]), yardstick(runs[0]))
        for one in agents
        if not _is_exact(one) and (runs := one.runs.get(environment))
    ]
    optima = set()
    for one in agents:
        for run in one.runs.get(environment, []):
            if "objective_optimal" in run.result:
                optima.add(run.result["objective_optimal"])
            if run.choices["agent"] not in EXACT:
                continue
            worth = run.result.get(
                "objective_exact" if column == "eval_objective" else "return_mean"
            )
            for other, method, aim in learned:
                if worth is not None and (method, aim) == (method_of(run), yardstick(run)):
                    colour = look[other.label]["color"]
                    axes.axhline(worth, color=colour, linestyle="--", linewidth=1.2)
    for optimal in sorted(optima) if column == "eval_objective" else ():
        axes.axhline(optimal, color="#000000", linestyle=":", linewidth=1.4)


def _dress(axes: "Axes", environment: str, name: str) -> None:
    from matplotlib.ticker import EngFormatter

    axes.set_title(environment, fontsize="medium")
    axes.set_xlabel("agent steps")
    axes.set_ylabel(name)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    dress(axes)


def _handles(names: Sequence[str], look: "Styles", solved: bool) -> list[Any]:
    from matplotlib.lines import Line2D

    nothing: tuple[list[float], list[float]] = ([], [])
    found = [Line2D(*nothing, linewidth=1.8, label=name, **look[name]) for name in names]
    if not solved:
        return found
    label = "dashed: what that agent is worth without learning (exact)"
    found.append(Line2D(*nothing, color="0.4", linestyle="--", linewidth=1.2, label=label))
    found.append(Line2D(*nothing, color="#000000", linestyle=":", linewidth=1.4, label="optimum"))
    return found
