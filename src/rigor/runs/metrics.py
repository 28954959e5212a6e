"""The metrics file: one CSV row per log point, of which W&B gets a copy.

The first column is `steps`, in agent steps. A row is on disk when `append` returns. A row that a
crash cut short is dropped when the file is read or opened again.
"""

import csv
import io
import math
import numbers
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rigor.errors import UserError
from rigor.runs.disk import atomic_write, disk_errors, write_all

if TYPE_CHECKING:
    import pandas as pd

_STEP_DIGITS = 18
_TAIL = 65_536  # bytes at the end of the file that `last_values` reads


class MetricsFile:
    """Appends rows to a CSV file; a resumed run continues it from the step of its checkpoint."""

    def __init__(self, path: Path | str, columns: list[str]) -> None:
        """Name the file and its columns, the first of which is `steps`; nothing is opened yet."""
        if not columns or columns[0] != "steps" or len(set(columns)) < len(columns):
            raise ValueError(f"columns={columns}: distinct names, the first of them 'steps'")
        self.path = Path(path)
        self.columns = list(columns)
        self._descriptor: int | None = None

    def open(self, resume_step: int) -> Self:
        """Create the file, or keep its rows with `steps <= resume_step` and drop the others.

        Columns that only the file has are kept; new columns get empty cells in old rows.

        Raises:
          UserError: the file is not a metrics file, or the disk is full or not writable.
        """
        self.close()
        old = _bytes(self.path)
        header, rows = _parse(self.path, old)
        self.columns = header + [name for name in self.columns if name not in header]
        missing = [""] * (len(self.columns) - len(header))
        kept = [row + missing for row in rows if int(row[0]) <= resume_step]
        new = "".join(_line(row) for row in [self.columns, *kept]).encode()
        if new != old:
            atomic_write(self.path, new)
        with disk_errors(self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        return self

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; a missing column is an empty cell.

        Raises:
          KeyError: a name is not a column, or `steps` is missing.
          UserError: the disk is full or not writable.
        """
        if self._descriptor is None:
            raise ValueError(f"{self.path}: not open")
        unknown = [name for name in row if name not in self.columns]
        if unknown:
            raise KeyError(f"{', '.join(unknown)}: not a column of {self.path.name}")
        cells = [str(int(row["steps"]))] + [_cell(row.get(name)) for name in self.columns[1:]]
        with disk_errors(self.path):
            write_all(self._descriptor, _line(cells).encode())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()


def read(path: Path | str) -> "pd.DataFrame":
    """Return the complete rows as a DataFrame, floats exactly as written; empty without a file."""
    import pandas as pd

    header, rows = _parse(Path(path), _bytes(Path(path)))
    return pd.DataFrame({name: _column([row[i] for row in rows]) for i, name in enumerate(header)})


def last_values(path: Path | str) -> dict[str, float]:
    """Return the last number of each column, from the end of the file; {} without a file.

    This is much faster than `read`, which matters in a table of hundreds of runs.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            first = file.readline()
            start = max(len(first), os.fstat(file.fileno()).st_size - _TAIL)
            file.seek(start)
            tail = file.read()
    except OSError:
        return {}
    if start > len(first):
        tail = tail.partition(b"\n")[2]
    header, rows = _parse(path, first + tail)
    found: dict[str, float] = {}
    for row in rows:
        found |= {name: float(cell) for name, cell in zip(header, row, strict=True) if _is(cell)}
    return found


def _bytes(path: Path) -> bytes:
    with disk_errors(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""


def _parse(path: Path, content: bytes) -> tuple[list[str], list[list[str]]]:
    """Return the header and the complete rows; both are empty for an empty file."""
    whole = content[: content.rfind(b"\n") + 1].decode(errors="replace")
    try:
        lines = list(csv.reader(whole.replace("\0", "").splitlines()))
    except csv.Error as error:  # a cell larger than csv reads
        raise UserError(f"{path}: not a metrics file ({error}); move it away") from error
    if not content:
        return [], []
    if not lines or not lines[0] or lines[0][0] != "steps":
        raise UserError(f"{path}: not a metrics file (no column 'steps'); move it away")
    header = lines[0]
    return header, [row for row in lines[1:] if len(row) == len(header) and _is_step(row[0])]


def _is_step(cell: str) -> bool:
    """Return whether a cell is a number of agent steps, and none beyond any run's."""
    return cell.isascii() and cell.isdigit() and len(cell) <= _STEP_DIGITS


def _column(cells: list[str]) -> list[int] | list[float] | list[str]:
    # pandas' own reader is exact by default only in some versions.
    try:
        return [int(cell) for cell in cells]
    except ValueError:
        pass
    numbers = {cell: _float(cell) for cell in cells if cell}
    if numbers and all(number is None for number in numbers.values()):
        return cells
    # an editor may have put a text into a column of numbers, which no figure could draw
    found = (numbers.get(cell) for cell in cells)
    return [math.nan if number is None else number for number in found]


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> str:
    """Return a cell: integers as integers, floats with all their digits."""
    if value is None:
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    # A row must stay one line, so that a row that a crash cut short is recognisable.
    return " ".join(str(value).split())


def _is(cell: str) -> bool:
    number = _float(cell)
    return number is not None and not math.isnan(number)


def _float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
