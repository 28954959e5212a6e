"""Tables of exactly solved problems: learned policies, optima, published numbers."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rigor.report.data import published, seed_intervals
from rigor.report.data.agents import AgentGroup, RunGroup
from rigor.report.data.runs import RunRecord, is_put, is_wealth, with_parameters
from rigor.report.tables.comparison import objectives_of
from rigor.report.tables.optimality_gaps import gap_sheet
from rigor.report.tables.sheet import Sheet, with_interval

_HEAD = {
    "environment": "problem",
    "discount": "discount",
    "risk": "risk",
    "agent": "agent",
    "n": "n",
    "objective": "objective",
    "optimal": "optimum",
    "percent": "fraction of optimum",
}
_WEALTH_SETTINGS = {"periods": "T", "late_utility": "u_T", "scaling": "scaling"}
_WEALTH_NUMBERS = {
    "expected_utility": "E[U]",
    "p_early_affordable": "P(affordable)",
    "p_early": "P1",
    "p_late": "P2",
}


def solved_sheets(agents: Sequence[AgentGroup]) -> list[Sheet]:
    """Return the tables of wealth management, of the put (two) and of other problems."""
    groups = [
        RunGroup(agent, name, runs)
        for agent in agents
        for name, all_runs in agent.runs.items()
        if (runs := [run for run in all_runs if _is_solved(run)])
    ]
    wealth = [group for group in groups if is_wealth(group.runs[0])]
    put = [group for group in groups if is_put(group.runs[0])]
    others = [group for group in groups if group not in wealth and group not in put]
    return [_wealth(wealth), _put(put), gap_sheet(put), _others(others)]


def _wealth(groups: list[RunGroup]) -> Sheet:
    rows = [_wealth_row(row, run) for row, run in _rows(groups, tuple(_WEALTH_NUMBERS))]
    rows.sort(key=lambda row: [row[key] or 0 for key in ("periods", "late_utility")])
    return Sheet(
        name="wealth",
        title="Goal-based wealth management",
        caption="Objective: the exact value of the final policy, mean over seeds. Optimum: the "
        "exact solution of the same problem. E[U]: expected undiscounted utility. P(affordable): "
        "probability that the wealth at T/2 suffices for the early goal. P1 and P2: probabilities "
        "that the early and the late goal are reached. These four are exact values of the final "
        "policy, mean over seeds. Paper: its tables 3 and 4, for equal problem, discount and risk; "
        "its objective follows from its probabilities, which for CVaR only bound it. Its rows at "
        "30 periods fit covariance scaling. Its learned policies for the mean reach .9034 to .9495 "
        "of the optimum. Under CVaR many policies are optimal, so E[U] and the probabilities do "
        "not show how good a policy is.",
        rows=rows,
        shown={"environment": "problem"}
        | _WEALTH_SETTINGS
        | {key: name for key, name in _HEAD.items() if key != "environment"}
        | _WEALTH_NUMBERS
        | {"paper_objective": "paper: objective"}
        | {f"paper_{key}": f"paper: {name}" for key, name in _WEALTH_NUMBERS.items()}
        | {"note": "note"},
        units={"percent": " %"},
    )


def _wealth_row(row: dict[str, Any], run: RunRecord) -> dict[str, Any]:
    row |= {key: run.settings.get(f"env.{key}") for key in _WEALTH_SETTINGS}
    row["environment"] = _without_settings(row["environment"], _WEALTH_SETTINGS)
    paper = published.wealth(run.choices, run.settings)
    if paper:
        row |= {f"paper_{key}": float(paper[key]) for key in _WEALTH_NUMBERS}
        at_most = "≤ " if paper["bound"] == "at most" else ""
        row["paper_objective"] = f"{at_most}{paper['objective']}"
        fits = paper["scaling"] in ("either", row["scaling"])
        row["note"] = "" if fits else f"paper: {paper['scaling']} scaling"
    return row


def _put(groups: list[RunGroup]) -> Sheet:
    return Sheet(
        name="american_put",
        title="American put",
        caption="Objective: the exact value of the final policy, mean over seeds. Optimum: the "
        "value of the time-consistent solution. The score is not the objective: an agent that "
        "exercises late can exceed the optimal policy's score. The paper publishes no numbers for "
        "this problem.",
        rows=[row for row, _ in _rows(groups, ("score_exact", "mean_exercise_time"))],
        shown=_HEAD
        | {
            "score_exact": "expected score",
            "mean_exercise_time": "mean exercise time (steps)",
        },
        units={"percent": " %"},
    )


def _others(groups: list[RunGroup]) -> Sheet:
    return Sheet(
        name="solved",
        title="Other problems with an exact optimum",
        caption="Objective: the exact value of the final policy, mean over seeds, in raw reward.",
        rows=[row for row, _ in _rows(groups, ("regret",))],
        shown=_HEAD | {"regret": "regret"},
        units={"percent": " %"},
    )


def _rows(groups: list[RunGroup], keys: Sequence[str]) -> list[tuple[dict[str, Any], RunRecord]]:
    """Return a row for each group, with its first run.

    Args:
      keys: of result.json; their numbers are averaged over seeds.
    """
    found = []
    for agent, name, runs in sorted(groups, key=lambda group: (group[1], group[0].label)):
        values = np.array((objectives_of(runs) or [[]])[0])
        objective = seed_intervals.mean_interval(values)
        optimal = runs[0].result["objective_optimal"]
        row: dict[str, Any] = {
            "environment": name,
            "discount": with_parameters(runs[0], "discount"),
            "risk": with_parameters(runs[0], "risk"),
            "agent": _without_choices(agent, "discount", "risk"),
            "n": len(runs),
            **with_interval("objective", objective.value, objective.low, objective.high),
            "optimal": optimal,
            "percent": 100.0 * float(values.mean()) / optimal if optimal > 0 else None,
        }
        for key in keys:
            if all(key in run.result for run in runs):
                row[key] = float(np.mean([run.result[key] for run in runs]))
        found.append((row, runs[0]))
    return found


def _is_solved(run: RunRecord) -> bool:
    return "objective_optimal" in run.result and objectives_of([run]) is not None


def _without_choices(agent: AgentGroup, *groups: str) -> str:
    """Return the label of an agent without choices that have columns."""
    words = [word for word in agent.label.split() if word not in map(agent.facts.get, groups)]
    return " ".join(words) or agent.label


def _without_settings(environment: str, keys: Iterable[str]) -> str:
    """Return the label of an environment without settings that have columns."""
    return " ".join(word for word in environment.split() if word.partition("=")[0] not in keys)
