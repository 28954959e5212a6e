"""What was run: agents, coverage, what did not finish, versions, commits and cost."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rigor.report.agents import Agent
from rigor.report.runs import Run
from rigor.report.sheet import Sheet, counted

GOING_ON = ("queued", "running", "preempted")
"""States that may still change by themselves."""


def agent_sheet(agents: Sequence[Agent]) -> Sheet:
    """Return the agents: how much they have run, and what differs between them."""
    rows: list[dict[str, Any]] = []
    for one in agents:
        members = one.members
        key = "steps_per_second"
        rates = [run.result[key] for run in members if key in run.result]
        rows.append(
            {
                "agent": one.label,
                "environments": len(one.runs),
                "done": sum(run.state == "done" for run in members),
                "runs": len(members),
                "hours": round(sum(run.seconds or 0.0 for run in members) / 3600, 2),
                "steps_per_second": statistics.median(rates) if rates else None,
                "also": ", ".join(one.also),
            }
        )
    return Sheet(
        name="agents",
        title="Agents",
        caption="One agent is all runs that differ in nothing but environment and seed. Hours: "
        "wall-clock of all its runs; agent steps/s: median over runs. The last column is what "
        "differs between the agents besides their names.",
        rows=rows,
        shown={
            "agent": "agent",
            "done": "done",
            "runs": "runs",
            "environments": "environments",
            "hours": "hours",
            "steps_per_second": "steps/s",
            "also": "differs also in",
        },
    )


def coverage_sheet(agents: Sequence[Agent]) -> Sheet:
    """Return how many seeds of each agent are done on each environment, where some are not."""
    names = sorted({name for one in agents for name in one.runs})
    most = max((len(runs) for one in agents for runs in one.runs.values()), default=0)
    rows = []
    for name in names:
        groups = [one.runs.get(name, []) for one in agents]
        done = [sum(run.state == "done" for run in runs) for runs in groups]
        if all(count == most for count in done):
            continue
        cells = [f"{count} of {len(runs)}" for count, runs in zip(done, groups, strict=True)]
        labels = [one.label for one in agents]
        rows.append({"environment": name} | dict(zip(labels, cells, strict=True)))
    return Sheet(
        name="coverage",
        title="Environments that are not complete",
        caption=f"Runs done, of those that were started or planned. {len(names) - len(rows)} of "
        f"{counted(len(names), 'environment')} have {counted(most, 'run')} of every agent done, "
        "and are not listed.",
        rows=rows,
        shown={"environment": "environment"} | {one.label: one.label for one in agents},
    )


def unfinished_sheet(runs: Sequence[Run]) -> Sheet:
    """Return every run that is not done, or of which something could not be read, with why."""
    order = {"failed": 0, "lost": 1, "done": 2}
    left = [run for run in runs if run.state != "done" or run.problem]
    left.sort(key=lambda run: (order.get(run.state, 3), run.path.name))
    return Sheet(
        name="unfinished",
        title="Runs that are not done",
        caption="Lost: it says that it runs and nobody does, or its directory is gone. The same "
        "command that started a run goes on with it.",
        rows=[
            {
                "run": run.path.name,
                "state": run.state,
                "step": run.step,
                "steps_total": run.steps_total,
                "reason": run.problem,
            }
            for run in left
        ],
        shown={
            "run": "run",
            "state": "state",
            "reason": "reason",
            "step": "steps",
            "steps_total": "of",
        },
    )


def provenance_sheet(runs: Sequence[Run]) -> Sheet:
    """Return the commits and versions that results came from, with how many runs each."""
    counts = Counter(tuple(run.made_by.items()) for run in runs if run.made_by)
    return Sheet(
        name="provenance",
        title="Commits and versions",
        caption="More than one row means that results of different code or libraries stand side "
        "by side; +dirty means that the source differed from its commit.",
        rows=[dict[str, Any](made_by) | {"runs": count} for made_by, count in counts.most_common()],
        shown={"commit": "commit", "device": "device", "versions": "versions", "runs": "runs"},
    )


def run_sheet(agents: Sequence[Agent]) -> Sheet:
    """Return every run, a row each."""
    rows: list[dict[str, Any]] = []
    for one in agents:
        for name, group in one.runs.items():
            for run in group:
                rows.append(
                    {
                        "environment": name,
                        "agent": one.label,
                        "seed": run.seed,
                        "state": run.state,
                        "score": run.result.get("return_mean"),
                        "score_low": run.result.get("return_low"),
                        "score_high": run.result.get("return_high"),
                        "steps": run.step,
                        "steps_per_second": run.result.get("steps_per_second"),
                        "hours": None if run.seconds is None else round(run.seconds / 3600, 2),
                        "commit": run.made_by.get("commit", ""),
                        "directory": run.path.name,
                    }
                )
    rows.sort(key=lambda row: (row["environment"], row["agent"], row["seed"] or 0))
    return Sheet(
        name="runs",
        title="All runs",
        caption="Score: mean over the games of the final evaluation, with its 95 % bootstrap "
        "interval over games.",
        rows=rows,
        shown={
            "environment": "environment",
            "agent": "agent",
            "seed": "seed",
            "state": "state",
            "score": "score",
            "steps": "steps",
            "steps_per_second": "steps/s",
            "hours": "hours",
            "commit": "commit",
        },
    )


def setup(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return how runs were trained and evaluated: a name and the values there are, a pair each."""
    keys = {
        "env.protocol": "Atari protocol",
        "env.life_loss": "lost life",
        "env.sticky": "sticky actions",
        "train.schedule_steps": "agent steps",
        "evaluate.final_episodes": "games of the final evaluation",
        "evaluate.epsilon": "ε in evaluation",
    }
    found = []
    for key, name in keys.items():
        values = [run.settings[key] for run in runs if key in run.settings]
        shown = {f"{one:,}" if isinstance(one, int) else str(one) for one in values}
        if shown:
            found.append((name, " or ".join(sorted(shown))))
    return found


def states(runs: Sequence[Run]) -> str:
    """Return `447 done, 2 failed, 1 lost`."""
    counts = Counter(run.state for run in runs)
    return ", ".join(f"{counts[state]} {state}" for state in sorted(counts, key=_order))


def _order(state: str) -> int:
    order = ("done", "running", "queued", "preempted", "failed", "lost")
    return order.index(state) if state in order else len(order)
