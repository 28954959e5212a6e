"""A table of a report: numbers for CSV files, text for HTML and LaTeX."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.report.tables.sweep_table import interval
from rigor.runs.disk import atomic_write
from rigor.runs.plain_text import plain

if TYPE_CHECKING:
    import pandas as pd

TABLE = (".csv", ".tex")
"""The endings of a sheet's files."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the start of a formula in a spreadsheet
_LONG = 40  # rows; a page of LaTeX holds no more


@dataclass
class Sheet:
    """A table.

    name: of its files. title, caption: its subject, and how to read it. rows: cells by column, as
    numbers. shown: the columns to show, with their headings; a column `x` that has `x_low` and
    `x_high` is shown with its interval. units: written behind the numbers of a column.
    """

    name: str
    title: str
    caption: str
    rows: list[dict[str, Any]]
    shown: dict[str, str]
    units: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Tell whether the sheet has rows."""
        return bool(self.rows)

    @property
    def headings(self) -> list[str]:
        """The headings of the columns."""
        return list(self.shown.values())

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[self._text(row, column) for column in self.shown] for row in self.rows]

    @property
    def is_number(self) -> list[bool]:
        """Whether each shown column holds numbers, which are aligned to the right."""
        return [
            all(isinstance(row.get(column), int | float | None) for row in self.rows)
            for column in self.shown
        ]

    def frame(self) -> "pd.DataFrame":
        """Return the numbers."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def save(self, directory: Path) -> list[Path]:
        """Write NAME.csv and NAME.tex (booktabs), and return their paths."""
        import pandas as pd

        csv, tex = (directory / f"{self.name}{end}" for end in TABLE)
        atomic_write(csv, _safe(self.frame()).to_csv(index=False))
        shown = pd.DataFrame(self.cells, columns=self.headings)
        align = "".join("r" if number else "l" for number in self.is_number)
        text = shown.to_latex(
            index=False, escape=True, column_format=align, longtable=len(shown) > _LONG
        )
        atomic_write(tex, f"% {self.title}. Needs \\usepackage{{booktabs, longtable}}.\n{text}")
        return [csv, tex]

    def _text(self, row: dict[str, Any], column: str) -> str:
        value = row.get(column)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return "–"
        if isinstance(value, str):
            return plain(value)
        unit = self.units.get(column, "")
        if isinstance(value, int):
            return f"{value:,}{unit}"
        low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
        if low is None or high is None or math.isnan(low):
            return f"{interval(value)}{unit}"
        return f"{interval(value, low, high)}{unit}"


def _safe(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame whose texts a spreadsheet does not take for formulas."""
    frame = frame.rename(columns=_safe_cell)
    return frame.map(_safe_cell)


def _safe_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def with_interval(name: str, value: Any, low: Any, high: Any) -> dict[str, float]:
    """Return the three cells of a value with its interval."""
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}


def counted(number: int, noun: str) -> str:
    """Return `1 game`, `3 games`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def several(words: Sequence[str], most: int = 12) -> str:
    """Return `a, b and 3 more`."""
    shown = ", ".join(words[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown
