"""The table of a sweep, for a terminal and for `table.txt`."""

import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.containers import Lines
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rigor.errors import UserError
from rigor.report.data.labels import distinctions, shorten, with_settings
from rigor.runs.directory import RunDirectory, described
from rigor.runs.metrics import last_values
from rigor.runs.plain_text import plain, short

COLOURS = {"done": "green", "failed": "red", "lost": "red", "running": "cyan"}
"""The colour of each state of a run, in every table."""

_ERROR_LENGTH = 120  # characters of an error; reports show the whole
_NAME_WIDTH = 17  # columns; holds `quasi_hyperbolic-`
_COLUMNS = ("run", "steps", "steps/s", "score", "objective", "status", "where")


def collect_rows(run_paths: Iterable[Path | str]) -> list[dict[str, Any]]:
    """Return one row for each run directory, read from its files.

    A row has `run`, `differs` (the settings that distinguish it from runs of its name), `steps`,
    `steps_total`, `rate` [agent steps/s], `score` and `objective` (None, or the value and the ends
    of its interval, which may be None), `exact` (whether the objective was computed, not sampled),
    `status` (`RunDirectory.state`), `error` and `where`.
    """
    paths = list(run_paths)
    return [
        _row(RunDirectory(path)) | {"differs": differs}
        for path, differs in zip(paths, distinctions(paths), strict=True)
    ]


def sweep_table(rows: Sequence[Mapping[str, Any]], width: int = 80) -> Table:
    """Return the table, laid out for a terminal of `width` columns.

    The title shows the parts that all names share, and the directory if all runs are in one. If
    the table is too wide, intervals get lines of their own, and names are folded in favour of
    errors.
    """
    console = Console(width=10_000)  # wide enough to measure an unfolded table
    in_one_place = len(rows) > 1 and len({str(row["where"]) for row in rows}) == 1
    for compact in (False, True):
        table = _table(rows, in_one_place, compact, width)
        if Measurement.get(console, console.options, table).maximum <= width:
            break
    return table


def table_text(rows: Sequence[Mapping[str, Any]], width: int = 80) -> str:
    """Return the table as plain text, for a file."""
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=False, color_system=None)
    console.print(sweep_table(rows, width))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def interval(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return `3.2 [2.1, 4.4]`, or `3.2` without an interval, or `-` without a value."""
    if value is None:
        return "-"
    if low is None or high is None:
        return _number(value)
    return f"{_number(value)} [{_number(low)}, {_number(high)}]"


class _Name(Text):
    """Text that is broken after dashes, slashes and underscores if possible."""

    def wrap(self, console: Console, width: int, **_: Any) -> Lines:
        """Return the lines of the name, each at most `width` wide."""
        lines = [""]
        for piece in re.findall(r"[^-/_\s]*[-/_\s]|[^-/_\s]+", self.plain):
            if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
        folded = (Text(line.rstrip()).wrap(console, width, overflow="fold") for line in lines)
        return Lines(part for parts in folded for part in parts)


def _table(
    rows: Sequence[Mapping[str, Any]], place_in_title: bool, compact: bool, width: int
) -> Table:
    title, names = shorten([str(row["run"]) for row in rows])
    fold_names = compact and any(row["error"] for row in rows)
    if place_in_title:
        title = f"{title or 'all'} in {rows[0]['where']}"
    table = Table(
        title=Text(title, overflow="fold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    cells = [_cells(row, name, compact) for row, name in zip(rows, names, strict=True)]
    for column in _COLUMNS[:-1] if place_in_title else _COLUMNS:
        is_number = column in ("steps", "steps/s")
        is_folded = fold_names and column in ("run", "where")
        table.add_column(
            column,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            max_width=max(_NAME_WIDTH, width // 5) if is_folded else None,
        )
    for line in cells:
        table.add_row(*[line[str(column.header)] for column in table.columns])
    return table


def _cells(row: Mapping[str, Any], name: str, compact: bool) -> dict[str, Text]:
    status = str(row["status"])
    error = " ".join(plain(row["error"] or "").split())
    cut = error if len(error) <= _ERROR_LENGTH else f"{error[: _ERROR_LENGTH - 1]}…"
    steps = short(row["steps"])
    if row["steps_total"]:
        steps += f"/{short(row['steps_total'])}"
    elif row["steps_total"] == 0 and row["status"] == "done":
        steps = "exact"
    score, objective = (interval(*(row[key] or (None,))) for key in ("score", "objective"))
    if row.get("exact"):
        objective += " exact"
    if compact:
        score, objective = (text.replace(" [", "\n[") for text in (score, objective))
    return {
        "run": _Name(with_settings(name, row.get("differs") or "")),
        "steps": Text(steps),
        "steps/s": Text("-" if row["rate"] is None else f"{row['rate']:,.0f}"),
        "score": Text(score),
        "objective": Text(objective),
        "status": Text(described(status, cut), COLOURS.get(status, "")),
        "where": _Name(str(row["where"])),
    }


def _row(run: RunDirectory) -> dict[str, Any]:
    status, result = run.status() or {}, run.result() or {}
    try:
        metrics = last_values(run.metrics_path)
    except UserError:
        metrics = {}
    rates = [source.get("steps_per_second") for source in (status, result, metrics)]
    return {
        "run": run.path.name,
        # The status may be as old as the last checkpoint.
        "steps": max(status.get("step", 0), int(metrics.get("steps", 0))),
        "steps_total": status.get("steps_total"),
        "rate": next((rate for rate in rates if _is_number(rate) and rate), None),
        "score": _triple(result, "score") or _triple(metrics, "eval_score"),
        "objective": _triple(result, "objective_exact")
        or _triple(result, "objective")
        or _triple(metrics, "eval_objective"),
        "exact": result.get("objective_exact") is not None,
        "status": run.state(),
        "error": status.get("error") or run.problem(),
        "where": _relative(run.path.absolute().parent),
    }


def _triple(
    numbers: Mapping[str, Any], key: str
) -> tuple[float, float | None, float | None] | None:
    names = (key, f"{key}_low", f"{key}_high")
    value, low, high = (numbers[name] if _is_number(numbers.get(name)) else None for name in names)
    return None if value is None else (value, low, high)


def _is_number(value: object) -> bool:
    """Return whether a value, perhaps of an edited file, is a number."""
    return type(value) in (int, float)


def _relative(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def _number(value: float) -> str:
    """Return three significant digits, without an exponent where that stays short."""
    if math.isnan(value) or abs(value) >= 1e7 or 0 < abs(value) < 1e-3:
        return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-")
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{float(f'{value:.3g}'):g}"
