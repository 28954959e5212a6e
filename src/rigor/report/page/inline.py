"""A figure inside an HTML page: SVG with the page's colours and unique ids."""

import io
import re
from typing import TYPE_CHECKING

from rigor.report.figures.style import COLOURS

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

# Colours of figures, as variables of the page's style sheet, which has a light and a dark mode.
_THEMED = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS)} | {
    "#000000": "currentColor",
    "#e6e6e6": "var(--grid)",
    "#666666": "var(--muted)",
}
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r"(?:url\(|href=\")#([^\")]*)")


def inline_svg(figure: "Figure", name: str, description: str) -> "Markup":
    """Return a figure as an `<svg>` element, marked as safe for a template.

    Args:
      figure: its text stays text, and the browser draws it in its sans-serif font.
      name: of the figure; it makes the ids inside unique on the page.
      description: read aloud to users who cannot see the figure.
    """
    from markupsafe import Markup, escape
    from matplotlib import rc_context

    text = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True, metadata=no_metadata)
    _, _, body = text.getvalue().partition("<svg ")
    head, _, rest = body.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    used = set(_REFERENCE.findall(rest))
    rest = _ID.sub(lambda match: match[0] if match[1] in used else "", rest)
    rest = re.sub(r"#[0-9a-f]{6}\b", lambda match: _THEMED.get(match[0], match[0]), rest)
    label = escape(description)
    return Markup(f'<svg role="img" aria-label="{label}" {view[0] if view else ""}>{rest}')
