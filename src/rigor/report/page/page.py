"""The report: one self-contained HTML page, and files of its tables and figures."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from rigor.report.data.agents import agents_of, refuse_no_baseline
from rigor.report.data.runs import RunRecord, find, load
from rigor.report.figures.agent_curves import AgentStyles, agent_styles
from rigor.report.figures.style import COLOURS, SUFFIXES, plain_text
from rigor.report.page.section import Gallery, Section
from rigor.report.page.sections import sections_of
from rigor.report.tables import inventory
from rigor.report.tables.sheet import TABLE, several
from rigor.runs.disk import atomic_write, disk_errors

_FEW = 15  # rows; a longer table is folded
_OWN = re.compile(r"(tables|figures)/[\w-]+\.\w+")  # the files of a report


@dataclass
class Report:
    """A written report.

    page: its HTML file. states: the number of runs in each state. going_on: whether a run may
    still change without a new command.
    """

    page: Path
    states: str
    going_on: bool


def write_report(
    directories: Sequence[Path],
    out: Path,
    baselines: Sequence[tuple[str, str]] = (),
    refresh: int | None = None,
) -> Report:
    """Write `report.html`, `tables/` and `figures/` into a directory.

    Args:
      directories: of sweeps, of runs, or that contain runs.
      out: created if needed. Files of equal names are replaced. Tables and figures of an earlier
        report that this report lacks are removed; all other files are kept.
      baselines: (key, value) pairs to compare agents with; if empty, every two agents are
        compared.
      refresh: seconds until a browser reloads the page; None for never.

    Raises:
      UserError: a directory contains no runs, no agent has a baseline's value, or a file cannot
        be written.
    """
    runs = [load(path) for path in find(directories)]
    agents = agents_of(runs)
    for key, value in baselines:
        refuse_no_baseline(agents, key, value)
    for folder in (out / "tables", out / "figures"):
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    gallery = Gallery(out / "figures", agent_styles(agents))
    with plain_text():
        sections = sections_of(runs, agents, baselines, gallery)
    for section in sections:
        for sheet in section.sheets:
            sheet.save(out / "tables")
    page = out / "report.html"
    atomic_write(page, _html(runs, gallery.styles, sections, directories, refresh))
    _remove_earlier(out, sections)
    going_on = any(run.state in inventory.GOING_ON for run in runs)
    return Report(page, inventory.states(runs), going_on)


def _remove_earlier(out: Path, sections: Sequence[Section]) -> None:
    """Remove the files of the last report in `out` that this report lacks."""
    sheets = [sheet for section in sections for sheet in section.sheets]
    pictures = [picture for section in sections for picture in section.pictures]
    written = {f"tables/{sheet.name}{end}" for sheet in sheets for end in TABLE}
    written |= {f"figures/{picture.name}{end}" for picture in pictures for end in SUFFIXES}
    listed = out / ".rigor-report"
    earlier = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    for name in earlier:
        if _OWN.fullmatch(name) and name not in written:
            with disk_errors(out / name):
                (out / name).unlink(missing_ok=True)
    atomic_write(listed, "".join(f"{name}\n" for name in sorted(written)))


def _html(
    runs: Sequence[RunRecord],
    styles: AgentStyles,
    sections: Sequence[Section],
    directories: Sequence[Path],
    refresh: int | None,
) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = (files("rigor.report.page") / "page.html.jinja").read_text(encoding="utf-8")
    values: dict[str, Any] = {
        "title": "rigor: " + several([path.resolve().name for path in directories], 3),
        "made": datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        "refresh": refresh,
        "states": inventory.states(runs),
        "n_runs": len(runs),
        "unfinished": sum(run.state != "done" for run in runs),
        "setup": inventory.setup(runs),
        "headlines": [line for section in sections for line in section.headlines],
        "swatches": {label: _swatch(style) for label, style in styles.items()},
        "sections": [section for section in sections if section],
        "left_out": [section for section in sections if not section],
        "few": _FEW,
        "zip": zip,
    }
    render: Callable[..., str] = environment.from_string(source).render
    return render(**values)


def _swatch(style: dict[str, Any]) -> dict[str, str]:
    """Return a line's colour and dashes for the page's style sheet."""
    dashes = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 2 2 2"}
    return {
        "colour": f"var(--c{COLOURS.index(style['color'])})",
        "dash": dashes[style["linestyle"]],
    }
