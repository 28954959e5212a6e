"""The table of a sweep, read from what its runs left behind."""

import math
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rigor.errors import UserError
from rigor.report.labels import distinctions
from rigor.tracking.metrics import last_values
from rigor.tracking.rundir import RunDirectory

if TYPE_CHECKING:
    from rich.table import Table

COLOURS = {"done": "green", "failed": "red", "lost": "red", "running": "cyan"}
"""Of the states of a run, in every table."""

_ERROR_LINES = 4
_FOLDABLE = {"run": 12, "status": 12, "where": 8}  # the least width of each
_COLUMNS = ("run", "steps", "steps/s", "return", "objective", "status", "where")


def collect_rows(run_paths: Iterable[Path | str]) -> list[dict[str, Any]]:
    """Return one row for each run directory, from its status, result and metrics files.

    A row has `run`, `differs` (the settings that tell it from a run of the same name), `steps`,
    `steps_total`, `rate` [agent steps/s], `return` and `objective` (None, or the value and the
    ends of its interval, which may be None), `exact` (whether the objective was computed, not
    sampled), `status`, `error` and `where`. A run that says it is
    running while no process holds its lock is `lost`, and so is one without a directory; one that
    has not started is `queued`.
    """
    paths = list(run_paths)
    return [
        _row(RunDirectory(path)) | {"differs": differs}
        for path, differs in zip(paths, distinctions(paths), strict=True)
    ]


def sweep_table(rows: Sequence[Mapping[str, Any]], width: int = 80) -> "Table":
    """Return the table, laid out for a terminal of `width` columns.

    What the names of all runs share is said once, in the title, and so is the place of them all
    where the table would be too wide otherwise.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title, names = shorten([str(row["run"]) for row in rows])
    cells = [_cells(row, name) for row, name in zip(rows, names, strict=True)]
    columns = list(_COLUMNS)
    places = {line[-1] for line in cells}
    if len(cells) > 1 and len(places) == 1 and sum(_needs(columns, cells)) > _room(columns, width):
        title = f"{title or 'all'} in {places.pop()}"
        columns.pop()
        cells = [line[:-1] for line in cells]
    widths = _widths(columns, cells, width)
    table = Table(
        title=Text(title, overflow="fold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name, limit in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name in ("steps", "steps/s") else "left"
        table.add_column(name, width=limit, justify=justify, overflow="fold")
    for row, line in zip(rows, cells, strict=True):
        style = COLOURS.get(str(row["status"]), "")
        folded = [_fold(cell, limit) for cell, limit in zip(line, widths, strict=True)]
        table.add_row(
            *[
                Text(text, style=style if name == "status" else "")
                for name, text in zip(columns, folded, strict=True)
            ]
        )
    return table


def table_text(rows: Sequence[Mapping[str, Any]], width: int = 80) -> str:
    """Return the table as plain text, for a file."""
    import io

    from rich.console import Console

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


def shorten(names: list[str]) -> tuple[str, list[str]]:
    """Return what all names share (`*` for what differs), and what is left of each.

    Names are compared part by part between dashes; where their numbers of parts differ, only the
    parts at the start are compared. What stands behind a space, as settings do, is no part.
    """
    parts = [_parts(name) for name in names]
    if len(set(names)) < 2:
        return "", names
    shared = [len(set(column)) == 1 for column in zip(*parts, strict=False)]
    if len({len(part) for part in parts}) > 1:
        shared = shared[: shared.index(False)] if False in shared else shared[:-1]
    if not any(shared):
        return "", names
    shown = [part if same else "*" for part, same in zip(parts[0], shared, strict=False)]
    if len(shared) < max(map(len, parts)):
        shown.append("*")
    left = [
        "-".join(piece for i, piece in enumerate(part) if i >= len(shared) or not shared[i])
        for part in parts
    ]
    return re.sub(r"(\*-)+\*", "*", "-".join(shown)), left


def _parts(name: str) -> list[str]:
    head, space, settings = name.partition(" ")
    *first, last = head.split("-")
    return [*first, last + space + settings]


def _row(run: RunDirectory) -> dict[str, Any]:
    state = run.state()
    status = run.status() or {}
    result = run.result() or {}
    try:
        metrics = last_values(run.metrics_path)
    except UserError:
        metrics = {}
    return {
        "run": run.path.name,
        # The status is some seconds old, or as old as the last checkpoint.
        "steps": max(status.get("step", 0), int(metrics.get("steps", 0))),
        "steps_total": status.get("steps_total"),
        "rate": _rate(status, result, metrics),
        "return": _triple(result, "return_mean", "return")
        or _triple(metrics, "eval_score", "eval_score"),
        "objective": _triple(result, "objective_exact", "no interval")
        or _triple(result, "objective", "objective")
        or _triple(metrics, "eval_objective", "eval_objective"),
        "exact": result.get("objective_exact") is not None,
        "status": state,
        "error": status.get("error"),
        "where": _relative(run.path.absolute().parent),
    }


def _rate(*sources: Mapping[str, Any]) -> float | None:
    """Return the first steps/s that is known: of the last minute, of the run, of its metrics."""
    rates = [source.get("steps_per_second") for source in sources]
    return next((rate for rate in rates if rate), None)


def _triple(
    numbers: Mapping[str, Any], key: str, prefix: str
) -> tuple[float, float | None, float | None] | None:
    value = numbers.get(key)
    if value is None:
        return None
    return value, numbers.get(f"{prefix}_low"), numbers.get(f"{prefix}_high")


def _relative(path: Path) -> str:
    return min(str(path), os.path.relpath(path), key=len)


def _cells(row: Mapping[str, Any], name: str) -> list[str]:
    status = str(row["status"])
    steps = _steps(row["steps"])
    if row["steps_total"]:
        steps += f"/{_steps(row['steps_total'])}"
    elif row["steps_total"] == 0 and status == "done":
        steps = "exact"
    if row["error"]:
        error = " ".join(str(row["error"]).split())
        status += f": {error}"
    return [
        " ".join(part for part in (name, row.get("differs")) if part),
        steps,
        "-" if row["rate"] is None else f"{row['rate']:,.0f}",
        interval(*(row["return"] or (None,))),
        interval(*(row["objective"] or (None,))) + (" exact" if row.get("exact") else ""),
        status,
        str(row["where"]),
    ]


def _room(columns: Sequence[str], width: int) -> int:
    return width - 2 * (len(columns) - 1)  # a space on both sides of what parts two columns


def _needs(columns: Sequence[str], cells: list[list[str]]) -> list[int]:
    """Return the width at which nothing in a column is folded."""
    return [max([len(name), *(len(line[i]) for line in cells)]) for i, name in enumerate(columns)]


def _widths(columns: Sequence[str], cells: list[list[str]], width: int) -> list[int]:
    """Give every column what it needs; where that is too much, fold intervals, then the rest."""
    needs, room = _needs(columns, cells), _room(columns, width)
    if sum(needs) > room:
        for i in (columns.index("return"), columns.index("objective")):
            needs[i] = max([len(columns[i]), *(_longest_piece(line[i]) for line in cells)])
    # First to where no word is torn, then, where that must be, further.
    whole = {
        name: max([8, *(_longest_word(line[i]) for line in cells)])
        for i, name in enumerate(columns)
        if name in _FOLDABLE
    }
    for least in (whole, _FOLDABLE):
        while sum(needs) > room:
            spare = [i for i, name in enumerate(columns) if needs[i] > least.get(name, width)]
            if not spare:
                break
            needs[max(spare, key=lambda i: needs[i])] -= 1
    return needs


def _longest_word(cell: str) -> int:
    return max(len(word) for word in re.findall(r"[^-/_\s]*[-/_]?", cell))


def _longest_piece(cell: str) -> int:
    value, bracket, rest = cell.partition(" [")
    return max(len(value), len(bracket.strip() + rest))


def _fold(cell: str, width: int) -> str:
    """Break a cell at spaces, dashes and slashes, and inside a word only where that must be."""
    if len(cell) <= width:
        return cell
    value, bracket, rest = cell.partition(" [")
    if bracket and rest.endswith("]"):
        return f"{value}\n[{rest}"
    state, colon, error = cell.partition(": ")
    if colon:
        lines = textwrap.wrap(error, width, max_lines=_ERROR_LINES, placeholder="…")
        return "\n".join([f"{state}:", *lines])
    # textwrap knows spaces only; a mark after each dash and slash makes it break there.
    marked = cell.replace("-", "-\0 ").replace("/", "/\0 ").replace("_", "_\0 ")
    pieces = [piece for piece in marked.split(" ") if piece]
    lines = [""]
    for piece in pieces:
        glue = "" if not lines[-1] or lines[-1].endswith("\0") else " "
        bare = piece.rstrip("\0")
        if len(lines[-1].rstrip("\0")) + len(glue) + len(bare) <= width:
            lines[-1] = lines[-1].rstrip("\0") + glue + piece
        else:
            lines += textwrap.wrap(bare, width) or [""]
            lines[-1] += "\0" if piece.endswith("\0") else ""
    lines = [line.rstrip("\0") for line in lines if line]
    return "\n".join(lines)


def _steps(number: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{int(number / limit * 10) / 10:g}{unit}"
    return f"{number:.0f}"


def _number(value: float) -> str:
    """Return three significant digits, without an exponent where that stays short."""
    if math.isnan(value) or abs(value) >= 1e7 or 0 < abs(value) < 1e-3:
        return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-")
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{float(f'{value:.3g}'):g}"
