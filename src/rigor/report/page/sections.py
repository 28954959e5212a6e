"""The sections of a report's page, from the agents to the list of runs."""

from collections.abc import Callable, Sequence

from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord, is_lander, is_put
from rigor.report.figures.agent_curves import (
    curve_grid,
    curve_panel,
    environments_with_curves,
    wall_clock_panel,
    wide_curve_panel,
)
from rigor.report.figures.consistency import COLUMNS, consistency_figure, consistency_panel
from rigor.report.figures.optimum_fractions import drawn_rows, optimum_fractions_figure
from rigor.report.figures.published_returns import published_returns_figure
from rigor.report.figures.style import save
from rigor.report.page.inline import inline_svg
from rigor.report.page.score_sections import aggregate_section, improvement_section
from rigor.report.page.section import Gallery, PagePicture, Section, not_empty
from rigor.report.tables import comparison, inventory
from rigor.report.tables.optimality_gaps import gap_lines
from rigor.report.tables.published_returns import comparable, published_returns_sheet
from rigor.report.tables.sheet import counted
from rigor.report.tables.solved import solved_sheets

_FEW_ENVIRONMENTS = 4
"""The most environments whose curves are also drawn against hours, one by one."""


def sections_of(
    runs: Sequence[RunRecord],
    agents: Sequence[AgentGroup],
    baselines: Sequence[tuple[str, str]],
    gallery: Gallery,
) -> list[Section]:
    """Return the sections of a report, and write their figures into the gallery.

    Args:
      runs: all runs. agents: the same runs, grouped. baselines: (key, value) pairs to compare with.
      gallery: directory and style of the figures.
    """
    return [
        Section("agents", "Agents", sheets=[inventory.agent_sheet(agents)]),
        _learning(agents, gallery),
        improvement_section(agents, baselines, gallery),
        aggregate_section(agents, gallery),
        Section(
            "scores",
            "Scores by environment",
            sheets=not_empty([comparison.score_sheet(agents), comparison.objective_sheet(agents)]),
            empty="no run of an environment without an exact optimum is done",
        ),
        _optimum(agents, gallery),
        _inventory(runs, agents),
    ]


def _learning(agents: Sequence[AgentGroup], gallery: Gallery) -> Section:
    section = Section("curves", "Learning curves", empty="no run has been evaluated yet")
    names = environments_with_curves(agents)
    if not names:
        return section
    section.key = _with_own_curves(agents, names)
    section.pictures = [_curves(agents, names, gallery), *_wall_clock(agents, names, gallery)]
    if games := comparable(agents):
        sheet = published_returns_sheet(agents)
        section.sheets.append(sheet)
        figure = published_returns_figure(games, gallery.styles)
        caption = f"{sheet.caption} Shaded: Dopamine's standard deviation over seeds."
        section.pictures.append(gallery.picture("published_returns", figure, caption))
    landers = [
        name
        for name in _with_curves(agents, is_lander)
        if comparison.have_one_objective(agents, name)
    ]
    if landers:
        caption = (
            "The lunar lander: evaluations against agent steps, mean over seeds with Student's "
            "95 % interval. Agents maximise the objective, not the score."
        )
        section.pictures.append(
            _consistency(agents, landers, gallery, "lander_consistency", caption)
        )
    return section


def _curves(agents: Sequence[AgentGroup], names: Sequence[str], gallery: Gallery) -> PagePicture:
    """Return the learning curves of all environments, and write them as one figure."""
    save(curve_grid(agents, names, gallery.styles), gallery.directory, "learning_curves")
    most = max(len(agent.runs.get(name, [])) for agent in agents for name in names)
    count = f"{counted(len(names), 'environment')}, up to {counted(most, 'seed')}"
    caption = (
        f"Score of the evaluations against agent steps, {count} of each agent. Thick: mean over "
        "seeds at the steps that all seeds have; thin: one seed; ×: a seed that ended early, and "
        "with it the mean. Agents differ where their thick lines are further apart than the thin "
        "lines of one colour. A curve that still rises at the end needs more steps."
    )
    draw = wide_curve_panel if len(names) == 1 else curve_panel
    panels = [
        inline_svg(
            draw(agents, name, gallery.styles),
            f"curve {name}",
            f"Learning curves of {name}",
        )
        for name in names
    ]
    size = "wide" if len(names) == 1 else "small"
    return PagePicture("learning_curves", caption, panels, size)


def _wall_clock(
    agents: Sequence[AgentGroup], names: Sequence[str], gallery: Gallery
) -> list[PagePicture]:
    """Return the learning curves of a few environments against hours; writes their files."""
    runs = [run for agent in agents for name in names for run in agent.runs.get(name, [])]
    has_clock = all("seconds" in run.curve for run in runs if len(run.curve))
    if len(names) > _FEW_ENVIRONMENTS or not has_clock:
        return []
    caption = (
        "{}: score of the evaluations against hours of wall-clock time, which depend on the "
        "machine and on what else it did. Thick: mean over seeds as long as all run."
    )
    return [
        gallery.picture(
            f"wall_clock_{number}",
            wall_clock_panel(agents, name, gallery.styles),
            caption.format(name),
        )
        for number, name in enumerate(names, 1)
    ]


def _optimum(agents: Sequence[AgentGroup], gallery: Gallery) -> Section:
    sheets = {sheet.name: sheet for sheet in solved_sheets(agents)}
    section = Section(
        "optimum",
        "Comparison with the exact optimum",
        text=gap_lines(sheets["put_consistency"]),
        sheets=not_empty(list(sheets.values())),
        empty="only environments with a model have one, and no finished run is on one",
    )
    wealth = drawn_rows(sheets["wealth"].rows)
    if wealth:
        caption = (
            "Wealth management: the exact value of each learned policy in percent of the optimum "
            "of the same problem, and the value of the paper's policy where the paper has the same "
            "problem. Right: enlarged near the optimum."
        )
        section.pictures.append(
            gallery.picture("wealth", optimum_fractions_figure(wealth), caption)
        )
    puts = _with_curves(agents, is_put)
    if puts:
        caption = (
            "The American put: evaluations against agent steps, mean over seeds with Student's "
            "95 % interval. Dashed: the value of an exact agent of the same variant, "
            "quadrature and bootstrap, if the report has one. Dotted: the optimum. Agents maximise "
            "the objective, not the score."
        )
        section.pictures.append(_consistency(agents, puts, gallery, "put_consistency", caption))
        section.key = _with_own_curves(agents, puts)
    return section


def _consistency(
    agents: Sequence[AgentGroup],
    environments: Sequence[str],
    gallery: Gallery,
    name: str,
    caption: str,
) -> PagePicture:
    """Return figure 1 of some environments by panels, and write it as one figure."""
    save(consistency_figure(agents, environments, gallery.styles), gallery.directory, name)
    panels = [
        inline_svg(
            consistency_panel(agents, environment, column, gallery.styles),
            f"{name} {environment} {column}",
            f"Learning curves of {environment}: {quantity}",
        )
        for environment in environments
        for column, quantity in COLUMNS.items()
    ]
    return PagePicture(name, caption, panels)


def _inventory(runs: Sequence[RunRecord], agents: Sequence[AgentGroup]) -> Section:
    sheets = [
        inventory.unfinished_sheet(runs),
        inventory.coverage_sheet(agents),
        inventory.provenance_sheet(runs),
        inventory.run_sheet(agents),
    ]
    return Section("runs", "Runs", sheets=not_empty(sheets))


def _with_curves(agents: Sequence[AgentGroup], is_wanted: Callable[[RunRecord], bool]) -> list[str]:
    """Return the wanted environments in which a learning agent has been evaluated."""
    wanted = {
        name
        for agent in agents
        for name, runs in agent.runs.items()
        if any(is_wanted(run) for run in runs)
    }
    return [name for name in environments_with_curves(agents) if name in wanted]


def _with_own_curves(agents: Sequence[AgentGroup], environments: Sequence[str]) -> list[str]:
    """Return the labels of the agents that have learning curves in some environments."""
    names = set(environments)
    return [agent.label for agent in agents if names & set(environments_with_curves([agent]))]
