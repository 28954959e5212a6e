"""The parts of a report's page: sections, and pictures that are also files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rigor.report.figures.agent_curves import AgentStyles
from rigor.report.figures.style import save
from rigor.report.page.inline import inline_svg
from rigor.report.tables.sheet import Sheet

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure


@dataclass
class PagePicture:
    """A figure on the page: its panels, its caption, and the name of its files.

    size: `small` for many small panels side by side, `wide` for the full width of the page.
    """

    name: str
    caption: str
    panels: "list[Markup]"
    size: str = ""


@dataclass
class Section:
    """A part of the page.

    headlines: sentences for the top of the page. key: labels of the agents drawn in the section.
    empty: why the section has neither pictures nor sheets; the page then has one line about it.
    """

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    headlines: list[str] = field(default_factory=list)
    pictures: list[PagePicture] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    empty: str = ""

    def __bool__(self) -> bool:
        """Tell whether the section has anything to show."""
        return bool(self.pictures or self.sheets)


@dataclass
class Gallery:
    """The place and the style of a page's figures.

    directory: of their files; it exists. styles: the line style of each agent.
    """

    directory: Path
    styles: AgentStyles

    def picture(self, name: str, figure: "Figure", caption: str) -> PagePicture:
        """Write the files of a figure and return the figure as a picture of one panel."""
        save(figure, self.directory, name)
        return PagePicture(name, caption, [inline_svg(figure, name, caption)])


def not_empty(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Return the sheets that have rows."""
    return [sheet for sheet in sheets if sheet]


def seeds_text(counts: Sequence[int]) -> str:
    """Return `3`, or `3 to 5` if the numbers of seeds differ."""
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"
