"""The W&B dashboard of a sweep, as code: what stands in it, and what that looks like as text.

Panels of a workspace show metrics of all its runs, grouped; what compares runs, such as improvement
over a baseline, is counted here and stands in it as a table, as of the time it was made.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from rigor.errors import UserError
from rigor.report.agents import BASELINES, Agent, agents_of, baseline_of
from rigor.report.improvement import improvement
from rigor.report.runs import NAMED, Run
from rigor.tracking.rundir import RunDirectory

_EXACT = ("rigor.schemas.BackwardInduction", "rigor.schemas.InfiniteHorizon")  # have no curves
_WIDE = wr.Layout(0, 0, 24, 10)  # W&B's grid has 24 columns
_COLUMNS = 3  # of panels
_SHOWN = 8  # panels of a section in the outline
_BAR = 20  # characters of the longest bar
_MAX_RUNS = 1000  # a line plot shows the first ten runs if not told otherwise


def workspace_of(name: str, runs: Sequence[Run], entity: str) -> ws.Workspace:
    """Return the workspace of a sweep.

    Args:
      name: the sweep's, which is the group of its runs in W&B.
      runs: those of its manifest. entity: whose it will be in W&B.

    Raises:
      UserError: the runs were mirrored into several projects, or none of them was.
    """
    agents = agents_of(runs)
    keys = _telling(agents)
    games = sorted({run.choices["env"] for run in runs})
    learned = any(run.settings.get("agent._target_") not in _EXACT for run in runs)
    curves = [_curve(f"score/{one}", one) for one in games]
    sections = [
        _section("Scores by game", curves if learned else []),
        _section("Final", _finals(games, runs, keys)),
        _section("Improvement", [_table(_improvements(agents))]),
        _section("Training", _training() if learned else []),
        _section("Throughput", _throughput(keys)),
        _section("Failures", [_table(_failures(runs))]),
    ]
    return ws.Workspace(
        entity=entity,
        project=_project(runs),
        name=name,
        sections=[section for section in sections if section.panels],
        settings=ws.WorkspaceSettings(x_axis="steps", max_runs=_MAX_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=_filter(name, runs),
            groupby=[ws.Config(key) for key in keys],
            pinned_columns=["run:displayName", "run:state", "summary:return_mean"],
        ),
    )


def outline(workspace: ws.Workspace, runs: int) -> str:
    """Return what stands in a workspace, a line a panel; of many alike the first few."""
    grouped = ", ".join(key.name for key in workspace.runset_settings.groupby)
    lines = [
        f"{workspace.name}",
        f"project {workspace.project}, {runs} runs, by {grouped}",
    ]
    for section in workspace.sections:
        lines += ["", section.name]
        few = section.panels if len(section.panels) <= _SHOWN else section.panels[: _SHOWN - 1]
        for panel in few:
            if isinstance(panel, wr.MarkdownPanel):
                lines += [f"  {line}".rstrip() for line in _plain(panel.markdown)]
            elif isinstance(panel, wr.BarPlot):
                lines.append(f"  bars   {panel.title}: {', '.join(map(str, panel.metrics))}")
            else:
                lines.append(f"  curve  {panel.title}: {', '.join(map(str, panel.y))}")
        if len(few) < len(section.panels):
            lines.append(f"  and {len(section.panels) - len(few)} more")
    return "\n".join(lines)


def _plain(markdown: str) -> Iterator[str]:
    """Yield the lines of a table's panel as they read on a terminal."""
    for line in markdown.splitlines():
        if not line.startswith("|"):
            yield line.replace("**", "")
        elif not line.startswith(("| | %", "|---")):
            name, percent, rest = (cell.strip() for cell in line[1:-1].split("|"))
            yield f"  {name:<24} {percent:>8}  {rest}"


def _section(name: str, panels: list[Any]) -> ws.Section:
    """Return an open section that shows up to 24 panels at once."""
    rows = min(math.ceil(len(panels) / _COLUMNS), 8)
    layout = ws.SectionLayoutSettings(columns=_COLUMNS, rows=max(rows, 1))
    return ws.Section(name=name, panels=panels, is_open=True, layout_settings=layout)


def _telling(agents: Sequence[Agent]) -> list[str]:
    """Return the keys in W&B's config that tell the agents apart, `choices.variant` at least."""
    facts = {key: None for one in agents for key in one.facts}
    differing = [key for key in facts if len({one.facts.get(key) for one in agents}) > 1]
    return [f"choices.{key}" if key in NAMED else key for key in differing or ["variant"]]


def _project(runs: Sequence[Run]) -> str:
    """Return the project that the runs' configs name; they may differ in what they do not hash."""
    trackers = [_told(run.path).get("tracker") or {} for run in runs]
    found = sorted({one["project"] for one in trackers if one.get("name") == "wandb"})
    if len(found) != 1:
        which = f"in the projects {', '.join(found)}" if found else "not mirrored (tracker=none)"
        raise UserError(f"the runs are {which}; a dashboard shows those of one W&B project")
    return str(found[0])


def _filter(name: str, runs: Sequence[Run]) -> Any:
    """Return which runs of the project to show: the group's, and runs that joined from another."""
    others = [run.path for run in runs if _told(run.path).get("sweep", name) != name]
    ids = [path / "wandb" / "id" for path in others]
    joined = [path.read_text().strip() for path in ids if path.exists()]
    group = ws.Metric("Group") == name
    return ws.Or(group, ws.Metric("ID").isin(joined)) if joined else ws.And(group)


def _told(path: Path) -> dict[str, Any]:
    try:
        return RunDirectory(path).config()
    except UserError:
        return {}  # a run that has not begun, or a broken one, which the failures show


def _curve(metric: str, title: str, log: bool = False) -> wr.LinePlot:
    return wr.LinePlot(
        title=title,
        x="steps",
        y=[metric],
        title_x="agent steps",
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=_MAX_RUNS,
        log_y=log or None,
    )


def _bars(metric: str, title: str, keys: Sequence[str]) -> wr.BarPlot:
    """Return bars of the mean over runs with its standard error, by the first of the keys."""
    return wr.BarPlot(
        title=title,
        metrics=[metric],
        groupby=wr.Config(keys[0]),
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=_MAX_RUNS,
    )


def _finals(games: Sequence[str], runs: Sequence[Run], keys: Sequence[str]) -> list[wr.BarPlot]:
    panels = [_bars(f"score/{one}", f"{one}, final score", keys) for one in games]
    panels += [_bars("objective", "objective", keys)] if len(games) == 1 else []
    regret = any("regret" in run.result for run in runs)
    return panels + ([_bars("regret", "regret", keys)] if regret else [])


def _training() -> list[wr.LinePlot]:
    return [
        _curve("train_score", "training score"),
        _curve("loss", "loss", log=True),
        _curve("initial_stock", "initial stock"),
    ]


def _throughput(keys: Sequence[str]) -> list[Any]:
    return [
        _curve("steps_per_second", "agent steps / second"),
        _bars("seconds", "seconds", keys),
    ]


def _table(markdown: str) -> wr.MarkdownPanel:
    return wr.MarkdownPanel(markdown=markdown, layout=_WIDE)


def _improvements(agents: Sequence[Agent]) -> str:
    """Return bars of each agent's improvement over the paper's baselines, of finished runs."""
    blocks, seen = [], set()
    for key, value in BASELINES:
        for one in agents:
            other = baseline_of(one, agents, key, value)
            if other is None or (one.label, other.label) in seen:
                continue
            seen |= {(one.label, other.label), (other.label, one.label)}
            found = improvement(one, other)
            if not found.rows:
                continue
            longest = max((abs(row["percent"]) for row in found.drawn), default=0.0) or 1.0
            lines = [f"**{one.label}** over {other.label}", "", "| | % | |", "|---|---:|---|"]
            for row in found.rows:
                if row["percent"] is None:
                    lines.append(f"| {row['game']} | | {row['note']} |")
                    continue
                bar = "█" * round(_BAR * abs(row["percent"]) / longest)
                lines.append(f"| {row['game']} | {row['percent']:+.1f} | {bar} |")
            blocks.append("\n".join(lines))
    nothing = "Nothing to compare yet: no two agents have finished the same game."
    return "\n\n".join(blocks) or nothing


def _failures(runs: Sequence[Run]) -> str:
    """Return how the runs stand here, and the reason of each that failed or got lost."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.state] = counts.get(run.state, 0) + 1
    lines = [", ".join(f"{count} {state}" for state, count in sorted(counts.items()))]
    bad = [run for run in runs if run.state in ("failed", "lost")]
    lines += [""] if bad else []
    return "\n".join(lines + [f"- {run.path.name}: {run.problem}" for run in bad])
