"""The look that all pictures share, and the files that they are written to."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.tracking.disk import disk_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by colour-blind readers too (yellow left out: too faint).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", ":", "-.")
DPI = 160
FIGURE = (".png", ".svg")  # the files of a figure

_TITLE_LETTERS = 9  # per inch
_LEGEND_LETTERS = 11  # per inch
_LEGEND_ROWS = 8  # more entries than that stand side by side, where their names are short enough


def line_style(index: int) -> dict[str, Any]:
    """Return the colour and dashes of the line of that index: 28 that can be told apart."""
    dashes = DASHES[index // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": dashes}


def new_figure(width: float, height: float, title: str) -> "Figure":
    """Return an empty figure, inches, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(textwrap.fill(title, int(width * _TITLE_LETTERS)), fontsize="large")
    return figure


def dress(axes: "Axes") -> None:
    """Open the frame at the top and the right, and put a faint grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def legend(figure: "Figure", handles: Sequence[Any], columns: int) -> None:
    """Name what has a label below all panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def key(figure: "Figure", handles: Sequence[Any], columns: int, title: str) -> None:
    """Name many lines below all panels, left-aligned under a line that says how to read them."""
    figure.legend(
        handles=handles,
        title=title,
        alignment="left",
        title_fontsize="small",
        loc="outside lower left",
        ncols=columns,
        frameon=False,
    )


def key_room(names: Sequence[str], width: float) -> tuple[float, int, float]:
    """Return the room that the names of lines take below a figure.

    Args:
      width: of the figure, inches.

    Returns:
      The width, more where the longest name needs more; the columns of names that fit into it; and
      their height, inches.
    """
    longest = max(map(len, names), default=0)
    width = max(width, (longest + 8) / _LEGEND_LETTERS)
    wanted = -(-len(names) // _LEGEND_ROWS)
    columns = max(1, min(wanted, int(width * _LEGEND_LETTERS) // (longest + 16)))
    return width, columns, 0.24 * -(-len(names) // columns)


def number(value: float) -> str:
    """Return a number as a label: 1,234 and 95.5 and 0.05."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def round_ticks(first: int, last: int, most: int) -> list[int]:
    """Return at most `most` whole numbers from `first` on, equally spaced by a round step."""
    steps = (step * scale for scale in (1, 10, 100, 1000, 10_000) for step in (1, 2, 5))
    step = next((one for one in steps if (last - first) // one < most), last - first)
    return list(range(first, last + 1, step))


def save(figure: "Figure", directory: Path | str, name: str) -> tuple[Path, Path]:
    """Write `name`.png and `name`.svg into a directory, made if need be, and return both paths.

    The same picture gives the same bytes.

    Raises:
      UserError: the place is full or not writable.
    """
    from matplotlib import rc_context

    directory = Path(directory)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    png, svg = (directory / f"{name}{end}" for end in FIGURE)
    save_png(figure, png)
    with rc_context({"svg.hashsalt": "rigor"}), disk_errors(svg):
        figure.savefig(svg, dpi=DPI, facecolor="white", metadata={"Date": None})
    return png, svg


def save_png(figure: "Figure", path: Path | str, dpi: int = DPI) -> Path:
    """Write one PNG, and return its path.

    Raises:
      UserError: the place is full or not writable.
    """
    path = Path(path)
    with disk_errors(path):
        figure.savefig(path, dpi=dpi, facecolor="white")
    return path
