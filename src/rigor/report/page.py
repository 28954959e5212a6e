"""The report: one HTML page with everything in it, and every table and figure as files beside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.report import comparison, inventory, panels, published
from rigor.report.agents import Agent, agents_of, baseline_of, refuse_no_baseline
from rigor.report.inline import inline_svg
from rigor.report.runs import Run, find, load
from rigor.report.sheet import Sheet, counted, several
from rigor.report.solved import solved_sheets
from rigor.report.style import COLOURS, save
from rigor.tracking.disk import atomic_write, disk_errors

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

BASELINES = (("variant", "time_inconsistent"), ("variant", "time_aware"))
"""What agents are compared with unless the user says: the paper's figures 4 and 6."""

_FEW = 15  # rows; a longer table is folded


@dataclass
class Picture:
    """A figure on the page: one panel or many, a caption, and the files of it."""

    name: str
    caption: str
    panels: "list[Markup]"
    small: bool = False


@dataclass
class Section:
    """A part of the page. key: agents drawn in it. empty: said where it has nothing to show."""

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    empty: str = ""


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
      out: made if need be; files of the same name are replaced.
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
    gallery = _Gallery(out / "figures")
    with panels.plain_text():
        sections = _sections(runs, agents, baselines or BASELINES, look, gallery)
    for section in sections:
        for sheet in section.sheets:
            sheet.save(out / "tables")
    page = out / "report.html"
    atomic_write(page, _html(runs, look, sections, directories, refresh))
    going_on = any(run.state in inventory.GOING_ON for run in runs)
    return Report(page, inventory.states(runs), going_on)


class _Gallery:
    """Saves figures as files and returns them for the page."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def file(self, name: str, figure: "Figure") -> None:
        save(figure, self.directory, name)

    def panel(self, name: str, figure: "Figure", description: str) -> "Markup":
        return inline_svg(figure, name, description)

    def picture(self, name: str, figure: "Figure", caption: str) -> Picture:
        self.file(name, figure)
        return Picture(name, caption, [self.panel(name, figure, caption)])


def _sections(
    runs: Sequence[Run],
    agents: Sequence[Agent],
    baselines: Sequence[tuple[str, str]],
    look: panels.Styles,
    gallery: _Gallery,
) -> list[Section]:
    compared = _comparisons(agents, baselines)
    return [
        Section("agents", "Agents", sheets=[inventory.agent_sheet(agents)]),
        _learning(agents, look, gallery),
        _improvements(compared, baselines, look, gallery),
        _aggregates(agents, look, gallery),
        Section(
            "scores",
            "Scores by environment",
            sheets=_full([comparison.score_sheet(agents)]),
            empty="No run of an environment without an exact optimum is done yet.",
        ),
        Section(
            "optimum",
            "Against the exact optimum",
            sheets=_full(solved_sheets(agents)),
            empty="No finished run has a model to be measured against.",
        ),
        _inventory(runs, agents),
    ]


def _learning(agents: Sequence[Agent], look: panels.Styles, gallery: _Gallery) -> Section:
    section = Section("curves", "Learning curves", empty="No run has been evaluated yet.")
    names = panels.environments_with_curves(agents)
    if not names:
        return section
    gallery.file("learning_curves", panels.curve_grid(agents, names, look))
    most = max(len(one.runs.get(name, [])) for one in agents for name in names)
    small = [
        gallery.panel(
            f"curve {name}", panels.curve_panel(agents, name, look), f"Learning curves of {name}"
        )
        for name in names
    ]
    count = f"{counted(len(names), 'environment')}, up to {counted(most, 'seed')}"
    caption = (
        f"Undiscounted score in evaluation games against agent steps, {count} of each agent. "
        "Thick: mean over seeds, where all have values; thin: one seed. Look for where the thick "
        "lines part further than the thin ones of one colour spread, and for curves that still "
        "rise at the end."
    )
    section.pictures = [Picture("learning_curves", caption, small, small=True)]
    section.key = [one.label for one in agents if panels.environments_with_curves([one])]
    return section


def _comparisons(
    agents: Sequence[Agent], baselines: Sequence[tuple[str, str]]
) -> list[comparison.Improvement]:
    """Compare every agent with its baselines, each pair one way round only."""
    found, seen = [], set()
    for key, value in baselines:
        for one in agents:
            other = baseline_of(one, agents, key, value)
            if (
                other is None
                or (other.label, one.label) in seen
                or (one.label, other.label) in seen
            ):
                continue
            seen.add((one.label, other.label))
            result = comparison.improvement(one, other)
            if result.rows:
                found.append(result)
    return found


def _improvements(
    compared: Sequence[comparison.Improvement],
    baselines: Sequence[tuple[str, str]],
    look: panels.Styles,
    gallery: _Gallery,
) -> Section:
    wanted = " or ".join(f"{key}={value}" for key, value in baselines)
    section = Section(
        "improvement",
        "Improvement over the baseline",
        empty=f"No environment is finished by an agent and by a baseline ({wanted}); "
        "--baseline KEY=VALUE names another.",
    )
    for number, one in enumerate(compared, 1):
        if one.drawn:
            name = f"improvement_{number}"
            section.pictures.append(
                gallery.picture(
                    name, panels.improvement_panel(one, look), _improvement_caption(one)
                )
            )
        section.sheets.append(comparison.improvement_sheet(one, number))
    if compared:
        section.key = list(dict.fromkeys(x for one in compared for x in (one.agent, one.baseline)))
        section.text = [
            "100 · (mean score − mean score of the baseline) / |mean score of the baseline|, by "
            "game, of finished runs. The paper calls its figures 4 and 6 the percentage "
            "improvement in mean return and gives no formula; the absolute value keeps better "
            "positive where scores are negative. A percentage says nothing where the baseline is "
            "near zero, and little where it is small: read the differences in the table too.",
        ]
    return section


def _improvement_caption(one: comparison.Improvement) -> str:
    n = sorted({row["n"] for row in one.rows} | {row["n_baseline"] for row in one.rows})
    seeds = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    text = (
        f"{one.agent} over {one.baseline}: a higher mean score on {one.better} of "
        f"{counted(len(one.rows), 'game')}; mean {one.mean:+.1f} %, median {one.median:+.1f} % "
        f"over {counted(len(one.drawn), 'game')}. "
        f"Seeds of a game: {seeds}. Bars have the colour of the better agent; lines are 95 % "
        "bootstrap intervals over seeds; the axis is logarithmic beyond ±100 %; * a negative "
        "baseline."
    )
    left = [row["game"] for row in one.rows if row["percent"] is None]
    if left:
        text += f" Not drawn, for the baseline is near zero: {several(left)}."
    paper = published.PAPER_IMPROVEMENT.get(one.baseline)
    if one.agent == "time_consistent" and paper:
        text += f" The paper: {paper[0]} of 50 games, mean {paper[1]:+} %, median {paper[2]:+} %."
    return text


def _aggregates(agents: Sequence[Agent], look: panels.Styles, gallery: _Gallery) -> Section:
    section = Section(
        "aggregates",
        "Aggregates over games",
        empty="No Atari game with published random and human scores is finished by every agent.",
    )
    normalised, games = comparison.normalised_games(agents)
    if not games:
        return section
    counts = sorted({len(game) for own in normalised.values() for game in own})
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    section.key = list(normalised)
    of = (
        f"{counted(len(games), 'game')}, {seeds} seeds of each; 95 % stratified bootstrap "
        "intervals over seeds."
    )
    sheet = comparison.aggregate_sheet(normalised, games)
    best = max(sheet.rows, key=lambda row: row["iqm"])
    section.pictures.append(
        gallery.picture(
            "aggregates",
            panels.aggregate_panel(sheet.rows, look),
            f"Human-normalised scores; 1 is a human's. The highest IQM is that of {best['agent']}, "
            f"{best['iqm']:.2f}. Trust IQM before the mean, which a few games decide. {of}",
        )
    )
    duels = comparison.duel_sheet(normalised, games)
    if duels:
        section.pictures.append(
            gallery.picture(
                "probability_of_improvement",
                panels.duel_panel(duels.rows),
                "How often a run of the first agent beats one of the second, on a game drawn at "
                f"random. Right of the dotted line it wins more often than not. {of}",
            )
        )
    thresholds, found = comparison.profiles(normalised)
    section.pictures.append(
        gallery.picture(
            "profiles",
            panels.profile_panel(thresholds, found, look),
            "Share of runs that score more than τ. A curve above another everywhere is better on "
            f"easy and on hard games alike; where they cross, neither is. {of}",
        )
    )
    section.sheets = _full([sheet, duels])
    return section


def _inventory(runs: Sequence[Run], agents: Sequence[Agent]) -> Section:
    sheets = [
        inventory.unfinished_sheet(runs),
        inventory.coverage_sheet(agents),
        inventory.provenance_sheet(runs),
        inventory.run_sheet(agents),
    ]
    return Section("runs", "Runs", sheets=_full(sheets))


def _full(sheets: Sequence[Sheet]) -> list[Sheet]:
    return [sheet for sheet in sheets if sheet]


def _headlines(sections: Sequence[Section]) -> list[str]:
    """Return the first sentence of each comparison, for the top of the page."""
    pictures = [one for section in sections for one in section.pictures]
    return [one.caption.split(". ")[0] + "." for one in pictures if one.name.startswith("improve")]


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
        "headlines": _headlines(sections),
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
