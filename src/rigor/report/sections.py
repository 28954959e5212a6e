"""What stands on the page of a report: sections with figures, captions and tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rigor.report import comparison, inventory, panels, published
from rigor.report.agents import Agent
from rigor.report.consistency import (
    COLUMNS,
    consistency_figure,
    consistency_panel,
    is_lander,
    is_put,
    split_lines,
)
from rigor.report.improvement import Improvement, comparisons, improvement_sheet
from rigor.report.inline import inline_svg
from rigor.report.runs import Run
from rigor.report.shares import drawn_rows, shares_figure
from rigor.report.sheet import Sheet, counted, several
from rigor.report.solved import solved_sheets
from rigor.report.style import save

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure


@dataclass
class Picture:
    """A figure on the page: one panel or many, a caption, and the files of it."""

    name: str
    caption: str
    panels: "list[Markup]"
    small: bool = False


@dataclass
class Section:
    """A part of the page.

    headlines: for the top of the page. key: agents drawn in it. empty: said where it has nothing
    to show.
    """

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    headlines: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    sheets: list[Sheet] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    empty: str = ""


def sections_of(
    runs: Sequence[Run],
    agents: Sequence[Agent],
    baselines: Sequence[tuple[str, str]],
    look: panels.Styles,
    gallery: Path,
) -> list[Section]:
    """Return the sections of a report, and write its figures into a directory.

    Args:
      runs: all of them. agents: the same, grouped. baselines: (key, value) pairs to compare with.
      look: the line of each agent. gallery: the directory, which exists.
    """
    compared = comparisons(agents, baselines)
    return [
        Section("agents", "Agents", sheets=[inventory.agent_sheet(agents)]),
        _learning(agents, look, gallery),
        _improvements(compared, baselines, look, gallery),
        _aggregates(agents, look, gallery),
        Section(
            "scores",
            "Scores by environment",
            sheets=_full([comparison.score_sheet(agents), comparison.objective_sheet(agents)]),
            empty="No run of an environment without an exact optimum is done yet.",
        ),
        _optimum(agents, look, gallery),
        _inventory(runs, agents),
    ]


def _learning(agents: Sequence[Agent], look: panels.Styles, gallery: Path) -> Section:
    section = Section("curves", "Learning curves", empty="No run has been evaluated yet.")
    names = panels.environments_with_curves(agents)
    if not names:
        return section
    save(panels.curve_grid(agents, names, look), gallery, "learning_curves")
    most = max(len(one.runs.get(name, [])) for one in agents for name in names)
    small = [
        inline_svg(
            panels.curve_panel(agents, name, look), f"curve {name}", f"Learning curves of {name}"
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
    landers = [
        name
        for name in _with_curves(agents, is_lander)
        if comparison.has_one_yardstick(agents, name)
    ]
    if landers:
        caption = (
            "The lunar lander: evaluations against agent steps, mean over seeds with its 95 % "
            "bootstrap interval. Agents maximise the objective, not the undiscounted score."
        )
        section.pictures.append(
            _consistency(agents, landers, look, gallery, "lander_consistency", caption)
        )
    section.key = [one.label for one in agents if panels.environments_with_curves([one])]
    return section


def _with_curves(agents: Sequence[Agent], wanted: Callable[[Run], bool]) -> list[str]:
    """Return the environments that are wanted and have an evaluation of a learner to show."""
    names = {name for one in agents for name, runs in one.runs.items() if any(map(wanted, runs))}
    return [name for name in panels.environments_with_curves(agents) if name in names]


def _consistency(
    agents: Sequence[Agent],
    environments: Sequence[str],
    look: panels.Styles,
    gallery: Path,
    name: str,
    caption: str,
) -> Picture:
    """Return figure 1 of some environments, panel by panel, and write it as a whole."""
    save(consistency_figure(agents, environments, look), gallery, name)
    small = [
        inline_svg(
            consistency_panel(agents, environment, column, look),
            f"{name} {environment} {column}",
            f"Learning {environment}: {told}",
        )
        for environment in environments
        for column, told in COLUMNS.items()
    ]
    return Picture(name, caption, small)


def _improvements(
    compared: Sequence[Improvement],
    baselines: Sequence[tuple[str, str]],
    look: panels.Styles,
    gallery: Path,
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
            section.headlines.append(one.headline)
            name = f"improvement_{number}"
            section.pictures.append(
                _picture(
                    gallery, name, panels.improvement_panel(one, look), _improvement_caption(one)
                )
            )
        section.sheets.append(improvement_sheet(one, number))
    if compared:
        section.key = [
            label for label in look if any(label in (one.agent, one.baseline) for one in compared)
        ]
        section.text = [
            "100 · (mean score − mean score of the baseline) / |mean score of the baseline|, by "
            "game, of finished runs. The paper calls its figures 4 and 6 the percentage "
            "improvement in mean return and gives no formula; the absolute value keeps better "
            "positive where scores are negative. A percentage says nothing where the baseline is "
            "near zero, and little where it is small: read the differences in the table too.",
        ]
    return section


def _improvement_caption(one: Improvement) -> str:
    n = sorted({row["n"] for row in one.rows} | {row["n_baseline"] for row in one.rows})
    seeds = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    text = (
        f"{one.headline} Seeds of a game: {seeds}. Bars have the colour of the better agent; "
        "lines are 95 % bootstrap intervals over seeds; the axis is logarithmic beyond ±100 %; "
        "* a negative baseline."
    )
    left = [row["game"] for row in one.rows if row["percent"] is None]
    if left:
        text += f" Not drawn, for the baseline is near zero: {several(left)}."
    paper = published.PAPER_IMPROVEMENT.get(one.baseline)
    is_atari = not published.atari().index.intersection([row["game"] for row in one.rows]).empty
    if one.agent == "time_consistent" and paper and is_atari:
        text += f" The paper: {paper[0]} of 50 games, mean {paper[1]:+} %, median {paper[2]:+} %."
    return text


def _aggregates(agents: Sequence[Agent], look: panels.Styles, gallery: Path) -> Section:
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
    highest = f"The highest IQM of human-normalised scores is {best['iqm']:.2f}, {best['agent']}'s."
    section.headlines.append(f"{highest[:-1]}, over {counted(len(games), 'game')}.")
    section.pictures.append(
        _picture(
            gallery,
            "aggregates",
            panels.aggregate_panel(sheet.rows, look),
            f"{highest} 0 is random play, 1 a human's. Trust IQM before the mean, which a few "
            f"games decide. {of}",
        )
    )
    duels = comparison.duel_sheet(normalised, games)
    if duels:
        section.pictures.append(
            _picture(
                gallery,
                "probability_of_improvement",
                panels.duel_panel(duels.rows),
                "How often a run of the first agent beats one of the second, on a game drawn at "
                f"random. Right of the dotted line it wins more often than not. {of}",
            )
        )
    thresholds, found = comparison.profiles(normalised)
    section.pictures.append(
        _picture(
            gallery,
            "profiles",
            panels.profile_panel(thresholds, found, look),
            "Share of runs that score more than τ. A curve above another everywhere is better on "
            f"easy and on hard games alike; where they cross, neither is. {of}",
        )
    )
    section.sheets = _full([sheet, duels])
    return section


def _optimum(agents: Sequence[Agent], look: panels.Styles, gallery: Path) -> Section:
    sheets = solved_sheets(agents)
    section = Section(
        "optimum",
        "Against the exact optimum",
        sheets=_full(sheets),
        empty="No finished run has a model to be measured against.",
    )
    wealth = drawn_rows(next(one for one in sheets if one.name == "wealth").rows)
    if wealth:
        caption = (
            "Wealth management: the exact value of each learned policy as a percentage of the "
            "optimum of the same problem, the paper's beside it where its numbers are of that "
            "problem. Right: the same, close to the optimum."
        )
        section.pictures.append(_picture(gallery, "wealth", shares_figure(wealth), caption))
    split = next(one for one in sheets if one.name == "put_consistency")
    section.text = split_lines(split)
    drawn = _with_curves(agents, is_put)
    if drawn:
        caption = (
            "The put: evaluations against agent steps, mean over seeds with its 95 % bootstrap "
            "interval; dashed, what an exact agent of the same variant, quadrature and bootstrap "
            "is worth, where the report has one; dotted, the optimum. Agents maximise the "
            "objective, not the undiscounted score."
        )
        section.pictures.append(
            _consistency(agents, drawn, look, gallery, "put_consistency", caption)
        )
        section.key = [
            one.label for one in agents if set(drawn) & set(panels.environments_with_curves([one]))
        ]
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


def _picture(gallery: Path, name: str, figure: "Figure", caption: str) -> Picture:
    save(figure, gallery, name)
    return Picture(name, caption, [inline_svg(figure, name, caption)])
