"""The look that all figures share, and the files that they are written to."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.runs.disk import disk_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# The palette of Okabe and Ito is distinct to colour-blind readers; its yellow is too faint.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", ":", "-.")
DPI = 160
SUFFIXES = (".png", ".svg")
"""The suffixes of the files of a figure."""

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_MOST_DECIMALS = 6
_TITLE_LETTERS = 9  # per inch
_LEGEND_LETTERS = 11  # per inch
_LEGEND_ROWS = 8  # longer legends get a second column, where the labels are short enough


def line_style(index: int) -> dict[str, Any]:
    """Return the colour and dashes of the line with an index; 28 lines are distinct."""
    dashes = DASHES[index // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": dashes}


def new_figure(width: float, height: float, title: str) -> "Figure":
    """Return an empty figure, in inches, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(textwrap.fill(title, int(width * _TITLE_LETTERS)), fontsize="large")
    return figure


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw names literally: a dollar sign in a name does not start mathematics."""
    from matplotlib import rc_context

    with rc_context({"text.parse_math": False, "font.size": 9}):
        yield


def dress(axes: "Axes") -> None:
    """Open the frame at the top and the right, and draw a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def engineering_ticks(axis: "Axis") -> None:
    """Label the ticks of an axis plainly, with k, M and G from a thousand on: 0.05, 200k, 1M."""
    from matplotlib.ticker import FuncFormatter

    def label(value: float, _: object) -> str:
        ticks = axis.get_majorticklocs()
        spacing = min((abs(b - a) for a, b in pairwise(ticks)), default=abs(value)) or 1.0
        return tick_text(value, float(spacing))

    axis.set_major_formatter(FuncFormatter(label))


def tick_text(value: float, spacing: float) -> str:
    """Return the label of a tick, with as many digits as distinguish it from its neighbours."""
    unit, prefix = next(((size, name) for size, name in _PREFIXES if abs(value) >= size), (1.0, ""))
    step = spacing / unit
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    while decimals <= _MOST_DECIMALS and abs(round(step, decimals) - step) > 1e-6 * step:
        decimals += 1  # such as 0.25
    if decimals > _MOST_DECIMALS:
        return f"{value:g}"
    text = f"{value / unit:.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{prefix}".replace("-", "−")


def legend(figure: "Figure", handles: Sequence[Any], columns: int) -> None:
    """Put a short legend below all panels, centred."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def left_legend(
    figure: "Figure", handles: Sequence[Any], columns: int, explanation: str = ""
) -> None:
    """Put a long legend below all panels, left-aligned under a line of explanation."""
    figure.legend(
        handles=handles,
        title=explanation,
        alignment="left",
        title_fontsize="small",
        loc="outside lower left",
        ncols=columns,
        frameon=False,
    )


def legend_room(labels: Sequence[str], width: float) -> tuple[float, int, float]:
    """Return the room that a `left_legend` needs.

    Args:
      labels: of all lines. width: of the figure, inches.

    Returns:
      The width of the figure, larger if the longest label needs it; the number of columns of the
      legend; and the legend's height, inches.
    """
    longest = max(map(len, labels), default=0)
    width = max(width, (longest + 8) / _LEGEND_LETTERS)
    wanted = -(-len(labels) // _LEGEND_ROWS)
    columns = max(1, min(wanted, int(width * _LEGEND_LETTERS) // (longest + 16)))
    return width, columns, 0.24 * -(-len(labels) // columns)


def number(value: float) -> str:
    """Return a number as a label, such as 1,234 or 95.5 or 0.05."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def round_ticks(first: int, last: int, most: int) -> list[int]:
    """Return at most `most` integers from `first` on, equally spaced by 1, 2 or 5 times 10^n."""
    steps = (step * scale for scale in (1, 10, 100, 1000, 10_000) for step in (1, 2, 5))
    spacing = next((step for step in steps if (last - first) // step < most), last - first)
    return list(range(first, last + 1, spacing))


def save(figure: "Figure", directory: Path | str, name: str) -> tuple[Path, Path]:
    """Write `name`.png and `name`.svg into a directory, and return both paths.

    The directory is made if it is missing. Equal figures give equal bytes.

    Raises:
      UserError: the disk is full or the directory is not writable.
    """
    from matplotlib import rc_context

    directory = Path(directory)
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    png, svg = (directory / f"{name}{suffix}" for suffix in SUFFIXES)
    save_png(figure, png)
    with rc_context({"svg.hashsalt": "rigor"}), disk_errors(svg):
        figure.savefig(svg, dpi=DPI, facecolor="white", metadata={"Date": None})
    return png, svg


def save_png(figure: "Figure", path: Path | str, dpi: int = DPI) -> Path:
    """Write one PNG, and return its path.

    Raises:
      UserError: the disk is full or the path is not writable.
    """
    path = Path(path)
    with disk_errors(path):
        figure.savefig(path, dpi=dpi, facecolor="white")
    return path
