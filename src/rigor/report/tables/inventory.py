"""Tables of the runs: agents, coverage, unfinished runs, versions and cost."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord, with_parameters
from rigor.report.tables.sheet import Sheet, counted
from rigor.runs.directory import shown

GOING_ON = ("queued", "running", "preempted")
"""The states of runs that may still change without a new command."""

_STATES = ("done", "running", "queued", "preempted", "failed", "lost")  # in the order of a summary
_SETUP = {  # settings that the head of a report shows, with their names
    "env.protocol": "Atari protocol",
    "env.life_loss": "lost life",
    "env.sticky": "sticky actions",
    "train.schedule_steps": "agent steps",
    "evaluate.final_episodes": "episodes of the final evaluation",
    "evaluate.epsilon": "ε in evaluation",
}


def agent_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the agents, with their runs, their cost and their differences."""
    rows: list[dict[str, Any]] = []
    for agent in agents:
        key = "steps_per_second"
        rates = [run.result[key] for run in agent.members if key in run.result]
        rows.append(
            {
                "agent": agent.label,
                "environments": len(agent.runs),
                "done": sum(run.state == "done" for run in agent.members),
                "runs": len(agent.members),
                "hours": round(sum(run.seconds or 0.0 for run in agent.members) / 3600, 2),
                "steps_per_second": statistics.median(rates) if rates else None,
                "other_differences": ", ".join(agent.other_differences),
            }
        )
    return Sheet(
        name="agents",
        title="Agents",
        caption="Runs that differ only in environment and seed belong to one agent. Hours: "
        "wall-clock time of all its runs. Steps/s: agent steps per second, median over runs. Other "
        "differences: settings that differ between the agents and are not in their names.",
        rows=rows,
        shown={
            "agent": "agent",
            "done": "finished runs",
            "runs": "runs",
            "environments": "environments",
            "hours": "hours",
            "steps_per_second": "steps/s",
            "other_differences": "other differences",
        },
    )


def coverage_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the numbers of finished seeds on every incomplete environment."""
    names = sorted({name for agent in agents for name in agent.runs})
    most = max((len(runs) for agent in agents for runs in agent.runs.values()), default=0)
    rows = []
    for name in names:
        groups = [agent.runs.get(name, []) for agent in agents]
        done = [sum(run.state == "done" for run in runs) for runs in groups]
        if all(count == most for count in done):
            continue
        cells = [
            f"{count} of {len(runs)}" if runs else ""
            for count, runs in zip(done, groups, strict=True)
        ]
        labels = [agent.label for agent in agents]
        rows.append({"environment": name} | dict(zip(labels, cells, strict=True)))
    return Sheet(
        name="coverage",
        title="Incomplete environments",
        caption="Finished runs, of all runs that were started or planned; empty for none."
        + (
            f" The other {len(names) - len(rows)} of {counted(len(names), 'environment')} have "
            f"{counted(most, 'finished run')} of every agent."
            if len(rows) < len(names)
            else ""
        ),
        rows=rows,
        shown={"environment": "environment"} | {agent.label: agent.label for agent in agents},
    )


def unfinished_sheet(runs: Sequence[RunRecord]) -> Sheet:
    """Return every run that is not done or has an unreadable file, with the reason."""
    order = {"failed": 0, "lost": 1, "done": 2}
    listed = [run for run in runs if run.state != "done" or run.problem]
    listed.sort(key=lambda run: (order.get(run.state, 3), run.path.name))
    return Sheet(
        name="unfinished",
        title="Unfinished runs",
        caption="A run is lost if its status is running but no process runs it, or if its "
        "directory is missing. To continue a run, repeat the command that started it.",
        rows=[
            {
                "run": run.path.name,
                "state": shown(run.state),
                "step": run.step,
                "steps_total": run.steps_total,
                "reason": run.problem,
            }
            for run in listed
        ],
        shown={
            "run": "run",
            "state": "state",
            "reason": "reason",
            "step": "steps",
            "steps_total": "total steps",
        },
    )


def provenance_sheet(runs: Sequence[RunRecord]) -> Sheet:
    """Return the commits and versions of the results, with their numbers of runs."""
    counts = Counter(tuple(run.made_by.items()) for run in runs if run.made_by)
    return Sheet(
        name="provenance",
        title="Commits and versions",
        caption="More than one row means that the report compares results of different code or "
        "libraries; +dirty means that the source differed from its commit.",
        rows=[dict[str, Any](made_by) | {"runs": count} for made_by, count in counts.most_common()],
        shown={"commit": "commit", "device": "device", "versions": "versions", "runs": "runs"},
    )


def run_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return all runs, one per row."""
    rows: list[dict[str, Any]] = [
        {
            "environment": name,
            "agent": agent.label,
            "seed": run.seed,
            "state": shown(run.state),
            "score": run.result.get("score"),
            "score_low": run.result.get("score_low"),
            "score_high": run.result.get("score_high"),
            "objective": run.result.get("objective"),
            "objective_low": run.result.get("objective_low"),
            "objective_high": run.result.get("objective_high"),
            "objective_exact": run.result.get("objective_exact"),
            "episodes_cut": _cut(run),
            "steps": run.step,
            "steps_per_second": run.result.get("steps_per_second"),
            "hours": None if run.seconds is None else round(run.seconds / 3600, 2),
            "commit": run.made_by.get("commit", ""),
            "directory": run.path.name,
        }
        for agent in agents
        for name, group in agent.runs.items()
        for run in group
    ]
    rows.sort(key=lambda row: (row["environment"], row["agent"], row["seed"] or 0))
    has_exact = any(row["objective_exact"] is not None for row in rows)
    return Sheet(
        name="runs",
        title="All runs",
        caption="Score: mean over the episodes of the final evaluation, with its 95 % "
        "interval over episodes. Objective: the risk measure of the discounted return in the same "
        "episodes; exact: computed from the problem's model. Cut: the final episodes that reached "
        "their limit of steps; a game that waits for ever for a serve is one of them.",
        rows=rows,
        shown={
            "environment": "environment",
            "agent": "agent",
            "seed": "seed",
            "state": "state",
            "score": "score",
            "objective": "objective",
            **({"objective_exact": "exact"} if has_exact else {}),
            "episodes_cut": "cut",
            "steps": "steps",
            "steps_per_second": "steps/s",
            "hours": "hours",
            "commit": "commit",
        },
    )


def _cut(run: RunRecord) -> str | None:
    """Return how many final episodes were cut at their limit, such as `3 of 30`."""
    cut, episodes = run.result.get("episodes_cut"), run.result.get("episodes")
    return f"{cut:.0f} of {episodes:.0f}" if cut is not None and episodes else None


def setup(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return pairs of a setting's name and its values in all runs."""
    found = []
    for group in ("discount", "risk"):
        values = [with_parameters(run, group) for run in runs if run.settings]
        found.append((group, " or ".join(dict.fromkeys(values))))
    learned = [run for run in runs if not run.is_exact]
    for key, name in _SETUP.items():
        numbers = {value for run in learned if (value := _setting(run, key)) is not None}
        ordered = sorted(numbers, key=lambda value: (isinstance(value, str), value))
        texts = [f"{value:,}" if isinstance(value, int) else str(value) for value in ordered]
        if texts:
            found.append((name, " or ".join(texts)))
    return [(name, text) for name, text in found if text]


def _setting(run: RunRecord, key: str) -> Any:
    if key == "evaluate.final_episodes" and "episodes" in run.result:
        return int(run.result["episodes"])  # null in the config: as many as the risk needs
    return run.settings.get(key)


def states(runs: Sequence[RunRecord]) -> str:
    """Return `447 done, 2 failed, 1 lost`."""
    counts = Counter(run.state for run in runs)
    return ", ".join(f"{counts[state]} {shown(state)}" for state in sorted(counts, key=_order))


def _order(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)
