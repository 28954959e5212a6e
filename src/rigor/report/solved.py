"""Problems with a model: what our agents are worth, what the optimum is, and what was published."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rigor.report import published, scores
from rigor.report.agents import Agent
from rigor.report.comparison import objective_of
from rigor.report.consistency import Group, split_sheet
from rigor.report.runs import Run
from rigor.report.sheet import Sheet, with_interval

_HEAD = {
    "environment": "problem",
    "discount": "discount",
    "risk": "risk",
    "agent": "agent",
    "n": "n",
    "objective": "objective",
    "optimal": "optimum",
    "percent": "of optimum",
}


def solved_sheets(agents: Sequence[Agent]) -> list[Sheet]:
    """Return the tables of wealth management, of the put (two) and of the rest with a model."""
    groups = [
        (one, name, runs)
        for one in agents
        for name, all_runs in one.runs.items()
        if (runs := [run for run in all_runs if _is_solved(run)])
    ]
    kinds: dict[str, list[Group]] = {"Wealth": [], "Put": [], "": []}
    for group in groups:
        kind = str(group[2][0].settings.get("env._target_", "")).rpartition(".")[2]
        kinds[kind if kind in kinds else ""].append(group)
    put = kinds["Put"]
    return [_wealth(kinds["Wealth"]), _put(put), split_sheet(put), _other(kinds[""])]


def _wealth(groups: list[Group]) -> Sheet:
    keys = {
        "expected_utility": "E[U]",
        "p_early_affordable": "P(affordable)",
        "p_early": "P1",
        "p_late": "P2",
    }
    problem = {"periods": "T", "late_utility": "u_T", "scaling": "scaling"}
    rows = []
    for row, run in _rows(groups, tuple(keys)):
        paper = published.wealth(run.choices, run.settings)
        row |= {key: run.settings.get(f"env.{key}") for key in problem}
        row["environment"] = _rest(row["environment"], problem)
        if paper:
            row |= {f"paper_{key}": float(paper[key]) for key in keys}
            row["paper_objective"] = ("≤ " if paper["bound"] == "at most" else "") + str(
                paper["objective"]
            )
            fits = paper["scaling"] in ("either", row["scaling"])
            row["note"] = "" if fits else f"paper: {paper['scaling']} scaling"
        rows.append(row)
    rows.sort(key=lambda row: [row[key] or 0 for key in ("periods", "late_utility")])
    return Sheet(
        name="wealth",
        title="Goal-based wealth management",
        caption="Objective: the exact value of the final policy, mean over seeds; optimum: of the "
        "exact solution of the same problem. E[U]; P(affordable), that the wealth at T/2 suffices "
        "for the early goal; P1 and P2, that the early and the late goal are reached: of our "
        "policy under the model, undiscounted, mean over seeds. Paper: its tables 3 and 4, where "
        "problem, discount and risk match; "
        "its objective follows from its probabilities, and for CVaR they bound it only. Its rows "
        "at 30 periods fit covariance scaling. Under CVaR many policies are optimal, so that E[U] "
        "and the probabilities tell nothing there.",
        rows=rows,
        shown={"environment": "problem"}
        | problem
        | {key: name for key, name in _HEAD.items() if key != "environment"}
        | keys
        | {"paper_objective": "paper: objective"}
        | {f"paper_{key}": f"paper: {name}" for key, name in keys.items()}
        | {"note": "note"},
        units={"percent": " %"},
    )


def _put(groups: list[Group]) -> Sheet:
    return Sheet(
        name="american_put",
        title="American put",
        caption="Objective: the exact value of the final policy, mean over seeds; optimum: of the "
        "time-consistent solution. The undiscounted return is not the objective: an agent that "
        "merely waits longer beats the optimum on it. The paper publishes no numbers here.",
        rows=[row for row, _ in _rows(groups, ("undiscounted_return", "mean_exercise_time"))],
        shown=_HEAD
        | {
            "undiscounted_return": "undiscounted return",
            "mean_exercise_time": "mean exercise time (steps)",
        },
        units={"percent": " %"},
    )


def _other(groups: list[Group]) -> Sheet:
    return Sheet(
        name="solved",
        title="Other problems with an exact optimum",
        caption="Objective: the exact value of the final policy, mean over seeds, in raw reward.",
        rows=[row for row, _ in _rows(groups, ("regret",))],
        shown=_HEAD | {"regret": "regret"},
        units={"percent": " %"},
    )


def _rows(groups: list[Group], keys: Sequence[str]) -> list[tuple[dict[str, Any], Run]]:
    found = []
    for one, name, runs in sorted(groups, key=lambda group: (group[1], group[0].label)):
        ours = np.array([objective_of(run) for run in runs])
        objective = scores.estimate(scores.mean, [ours])
        optimal = runs[0].result["objective_optimal"]
        row: dict[str, Any] = {
            "environment": name,
            "discount": _told(runs[0], "discount"),
            "risk": _told(runs[0], "risk"),
            "agent": _without(one, "discount", "risk"),
            "n": len(runs),
            **with_interval("objective", objective.value, objective.low, objective.high),
            "optimal": optimal,
            "percent": 100.0 * float(ours.mean()) / optimal if optimal > 0 else None,
        }
        for key in keys:
            if all(key in run.result for run in runs):
                row[key] = float(np.mean([run.result[key] for run in runs]))
        found.append((row, runs[0]))
    return found


def _is_solved(run: Run) -> bool:
    return "objective_optimal" in run.result and objective_of(run) is not None


def _without(agent: Agent, *groups: str) -> str:
    """Return the label of an agent without what other columns say."""
    words = [word for word in agent.label.split() if word not in map(agent.facts.get, groups)]
    return " ".join(words) or agent.label


def _rest(environment: str, keys: Iterable[str]) -> str:
    """Return the label of an environment without the settings that have columns of their own."""
    return " ".join(word for word in environment.split() if word.partition("=")[0] not in keys)


def _told(run: Run, group: str) -> str:
    """Return a choice with its parameters, such as `exponential gamma=0.99`."""
    numbers = [
        f"{key.rpartition('.')[2]}={value}"
        for key, value in run.settings.items()
        if key.startswith(f"{group}.") and isinstance(value, int | float)
    ]
    return " ".join([run.choices[group], *numbers])
