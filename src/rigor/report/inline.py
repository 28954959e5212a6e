"""A figure inside an HTML page: SVG text that follows the page's colours and shares no ids."""

import io
import re
from typing import TYPE_CHECKING

from rigor.report.style import COLOURS

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

# The page's style sheet has a value for each of these in light and in dark.
_THEMED = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS)} | {
    "#000000": "currentColor",
    "#e6e6e6": "var(--grid)",
    "#666666": "var(--muted)",
}
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r"(?:url\(|href=\")#([^\")]*)")


def inline_svg(figure: "Figure", name: str, description: str) -> "Markup":
    """Return a figure as an `<svg>` element that a template may include as it is.

    Args:
      figure: its text stays text, drawn in the reader's sans-serif font.
      name: of the figure, so that ids inside differ from those of others on the page.
      description: for those who do not see it.
    """
    from markupsafe import Markup, escape
    from matplotlib import rc_context

    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    _, _, body = text.getvalue().partition("<svg ")
    head, _, rest = body.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    used = set(_REFERENCE.findall(rest))
    rest = _ID.sub(lambda match: match[0] if match[1] in used else "", rest)
    rest = re.sub(r"#[0-9a-f]{6}\b", lambda match: _THEMED.get(match[0], match[0]), rest)
    label = escape(description)
    return Markup(f'<svg role="img" aria-label="{label}" {view[0] if view else ""}>{rest}')
