"""The W&B dashboard of a sweep, built in code, and its outline as text.

W&B's panels show metrics of all runs, grouped. It cannot compare runs, so the comparison of agents
is computed here, from the runs at the time when the dashboard is made.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws

from rigor.errors import UserError
from rigor.report.data.agents import AgentGroup, agents_of
from rigor.report.data.runs import NAMED, RunRecord
from rigor.report.tables.improvement import percent, shown_comparisons
from rigor.report.tables.inventory import states
from rigor.runs.directory import RunDirectory

_WIDE = wr.Layout(0, 0, 24, 10)  # W&B's grid has 24 columns
_COLUMNS = 3  # of panels
_SHOWN = 8  # panels of a section in the outline
_BAR = 15  # characters of the longest bar
_MAX_RUNS = 1000  # by default, a line plot shows only the first ten runs


def workspace_of(name: str, runs: Sequence[RunRecord], entity: str) -> ws.Workspace:
    """Return the workspace of a sweep.

    Args:
      name: of the sweep; it is the group of its runs in W&B.
      runs: of the sweep's manifest. entity: the owner of the workspace in W&B.

    Raises:
      UserError: no run was mirrored to W&B, or runs were mirrored to several projects.
    """
    agents = agents_of(runs)
    keys = _group_keys(agents)
    environments = sorted({run.choices["env"] for run in runs})
    learning = not all(run.is_exact for run in runs)
    curves = [_curve(f"score/{environment}", environment) for environment in environments]
    sections = [
        _section("Scores by environment", curves if learning else []),
        _section("Final", _final(environments, runs, keys)),
        _section("Improvement", [_table(_improvements(agents))]),
        _section("Training", _training() if learning else []),
        _section("Throughput", _throughput(keys)),
        _section("Failures", [_table(failures)] if (failures := _failures(runs)) else []),
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
            pinned_columns=["run:displayName", "run:state", "summary:score"],
        ),
    )


def outline(workspace: ws.Workspace, runs: int) -> str:
    """Return the contents of a workspace, one line per panel; long sections are cut."""
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
    """Yield the lines of a Markdown table as plain text for a terminal."""
    for line in markdown.splitlines():
        if not line.startswith("|"):
            yield from textwrap.wrap(line.replace("**", ""), 100) or [""]
        elif not line.startswith(("| | loss", "|---")):
            name, loss, size, gain = (cell.strip() for cell in line[1:-1].split("|"))
            yield f"  {name:<24} {loss:>{_BAR}} {size:>9} {gain}"


def _section(name: str, panels: list[Any]) -> ws.Section:
    """Return an open section that shows up to 24 panels at once."""
    rows = min(math.ceil(len(panels) / _COLUMNS), 8)
    layout = ws.SectionLayoutSettings(columns=_COLUMNS, rows=max(rows, 1))
    return ws.Section(name=name, panels=panels, is_open=True, layout_settings=layout)


def _group_keys(agents: Sequence[AgentGroup]) -> list[str]:
    """Return the keys of W&B's config that distinguish agents, at least the variant."""
    keys = {key: None for agent in agents for key in agent.facts}
    differing = [key for key in keys if len({agent.facts.get(key) for agent in agents}) > 1]
    return [f"choices.{key}" if key in NAMED else key for key in differing or ["variant"]]


def _project(runs: Sequence[RunRecord]) -> str:
    """Return the W&B project of the runs; it is outside the hash, so it may differ."""
    trackers = [_config(run.path).get("tracker") or {} for run in runs]
    found = sorted(
        {own["project"] for own in trackers if "wandb" in str(own.get("name")).split("+")}
    )
    if len(found) != 1:
        which = f"in the projects {', '.join(found)}" if found else "not mirrored (tracker=none)"
        raise UserError(f"the runs are {which}; a dashboard shows the runs of one W&B project")
    return str(found[0])


def _filter(name: str, runs: Sequence[RunRecord]) -> Any:
    """Return the filter for the group's runs and for runs of earlier sweeps."""
    others = [run.path for run in runs if _config(run.path).get("sweep", name) != name]
    ids = [path / "wandb" / "id" for path in others]
    joined = [path.read_text().strip() for path in ids if path.exists()]
    group = ws.Metric("Group") == name
    return ws.Or(group, ws.Metric("ID").isin(joined)) if joined else ws.And(group)


def _config(path: Path) -> dict[str, Any]:
    try:
        return RunDirectory(path).config()
    except UserError:
        return {}  # the run has not begun, or its config is broken; the failures show it


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
    """Return bars of the mean over runs with standard error, by the first key."""
    return wr.BarPlot(
        title=title,
        metrics=[metric],
        groupby=wr.Config(keys[0]),
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=_MAX_RUNS,
    )


def _final(
    environments: Sequence[str], runs: Sequence[RunRecord], keys: Sequence[str]
) -> list[wr.BarPlot]:
    panels = [_bars(f"score/{name}", f"{name}, final score", keys) for name in environments]
    panels += [_bars("objective", "objective", keys)] if len(environments) == 1 else []
    has_regret = any("regret" in run.result for run in runs)
    return panels + ([_bars("regret", "regret", keys)] if has_regret else [])


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


def _improvements(agents: Sequence[AgentGroup]) -> str:
    """Return the comparisons of agents in Markdown: losses as bars to the left, gains right."""
    blocks = []
    for pair in shown_comparisons(agents)[0]:
        longest = max((abs(row["percent"]) for row in pair.drawn), default=0.0) or 1.0
        lines = [f"**{pair.headline}**", "", "| | loss | % | gain |", "|---|---:|---:|---|"]
        for row in pair.rows:
            if row["percent"] is None:
                lines.append(f"| {row['environment']} | | | {row['note']} |")
                continue
            bar = "█" * round(_BAR * abs(row["percent"]) / longest)
            loss, gain = ("", bar) if row["percent"] > 0 else (bar, "")
            lines.append(
                f"| {row['environment']} | {loss} | {percent(row['percent'], 1)} | {gain} |"
            )
        blocks.append("\n".join(lines))
    nothing = "Nothing to compare yet: no two agents have finished the same environment."
    return "\n\n".join(blocks) or nothing


def _failures(runs: Sequence[RunRecord]) -> str:
    """Return the states of the runs and why each failed or lost run stopped; empty without any."""
    bad = [run for run in runs if run.state in ("failed", "lost")]
    reasons = [f"- {run.path.name}: {run.problem}" for run in bad]
    return "\n".join([states(runs), "", *reasons]) if bad else ""
