"""The report: one HTML page with everything in it, and every table and figure as files beside."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from rigor.report import inventory, panels
from rigor.report.agents import BASELINES, agents_of, refuse_no_baseline
from rigor.report.runs import Run, find, load
from rigor.report.sections import Section, sections_of
from rigor.report.sheet import TABLE, several
from rigor.report.style import COLOURS, FIGURE
from rigor.tracking.disk import atomic_write, disk_errors

_FEW = 15  # rows; a longer table is folded
_OWN = re.compile(r"(tables|figures)/[\w-]+\.\w+")  # what a report calls its files


@dataclass
class Report:
    """What was written. going_on: whether a run may still change by itself."""

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
      directories: of sweeps, of runs, or that hold runs.
      out: made if need be; files of the same name are replaced, and tables and figures of an
        earlier report that this one has not are removed, but nothing else.
      baselines: (key, value) pairs that agents are compared with; none is the paper's two.
      refresh: after how many seconds a browser reads the page again; None for never.

    Raises:
      UserError: a directory holds no runs, no agent has a baseline's value, or the disk refuses.
    """
    runs = [load(path) for path in find(directories)]
    agents = agents_of(runs)
    for key, value in baselines:
        refuse_no_baseline(agents, key, value)
    for folder in (out / "tables", out / "figures"):
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    look = panels.styles(agents)
    gallery = out / "figures"
    with panels.plain_text():
        sections = sections_of(runs, agents, baselines or BASELINES, look, gallery)
    for section in sections:
        for sheet in section.sheets:
            sheet.save(out / "tables")
    page = out / "report.html"
    atomic_write(page, _html(runs, look, sections, directories, refresh))
    _forget_earlier(out, sections)
    going_on = any(run.state in inventory.GOING_ON for run in runs)
    return Report(page, inventory.states(runs), going_on)


def _forget_earlier(out: Path, sections: Sequence[Section]) -> None:
    """Remove the tables and figures that the last report left here and this one has not."""
    sheets = [sheet for one in sections for sheet in one.sheets]
    pictures = [picture for one in sections for picture in one.pictures]
    written = {f"tables/{sheet.name}{end}" for sheet in sheets for end in TABLE}
    written |= {f"figures/{picture.name}{end}" for picture in pictures for end in FIGURE}
    listed = out / ".rigor-report"
    earlier = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    for name in earlier:
        if _OWN.fullmatch(name) and name not in written:
            with disk_errors(out / name):
                (out / name).unlink(missing_ok=True)
    atomic_write(listed, "".join(f"{name}\n" for name in sorted(written)))


def _html(
    runs: Sequence[Run],
    look: panels.Styles,
    sections: Sequence[Section],
    directories: Sequence[Path],
    refresh: int | None,
) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = (files("rigor.report") / "page.html.jinja").read_text(encoding="utf-8")
    unfinished = [run for run in runs if run.state != "done"]
    values: dict[str, Any] = {
        "title": "rigor: " + several([path.resolve().name for path in directories], 3),
        "made": datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        "refresh": refresh,
        "states": inventory.states(runs),
        "n_runs": len(runs),
        "unfinished": len(unfinished),
        "setup": inventory.setup(runs),
        "headlines": [line for section in sections for line in section.headlines],
        "swatches": {label: _swatch(style) for label, style in look.items()},
        "sections": sections,
        "few": _FEW,
        "zip": zip,
    }
    render: Callable[..., str] = environment.from_string(source).render
    return render(**values)


def _swatch(style: dict[str, Any]) -> dict[str, str]:
    """Return a line's colour as the page's style sheet calls it, and its dashes as SVG does."""
    dashes = {"-": "", "--": "6 3", ":": "2 2", "-.": "6 2 2 2"}
    return {
        "colour": f"var(--c{COLOURS.index(style['color'])})",
        "dash": dashes[style["linestyle"]],
    }
