"""The sections on comparisons of agents and on aggregates over games."""

from collections.abc import Sequence
from typing import Any

from rigor.report.data import published, score_scale
from rigor.report.data.agents import AgentGroup
from rigor.report.figures import efficiency, score_panels
from rigor.report.page.section import Gallery, PagePicture, Section, not_empty, seeds_text
from rigor.report.tables import comparison
from rigor.report.tables.improvement import Improvement, comparison_sheet, shown_comparisons
from rigor.report.tables.sheet import counted, several
from rigor.report.tables.sweep_table import interval

_FORMULA = (
    "Improvement: 100 · (mean of X − mean of Y) / |mean of Y|, of finished runs. The paper's "
    "figures 4 and 6 show the percentage improvement in mean return and give no formula; the "
    "absolute value makes an improvement positive where scores are negative. A percentage means "
    "nothing if the mean of Y is near zero, and little if it is small: see the differences in the "
    "table too."
)


def improvement_section(
    agents: Sequence[AgentGroup], baselines: Sequence[tuple[str, str]], gallery: Gallery
) -> Section:
    """Return the comparisons of agents; writes their figures.

    Args:
      baselines: (key, value) pairs; if empty, every two agents are compared.
    """
    section = Section(
        "improvement",
        "Comparison of agents",
        empty="no environment is finished by two agents",
    )
    compared, others = shown_comparisons(agents, baselines)
    for number, pair in enumerate(compared, 1):
        section.headlines.append(pair.headline)
        if pair.drawn:
            figure = score_panels.improvement_panel(pair, gallery.styles)
            section.pictures.append(
                gallery.picture(f"improvement_{number}", figure, _improvement_caption(pair))
            )
    section.sheets = not_empty([comparison_sheet(agents)])
    if section.sheets:
        section.text = [_FORMULA]
    if compared:
        shown = {label for pair in compared for label in (pair.agent, pair.baseline)}
        section.key = [label for label in gallery.styles if label in shown]
    elif section.sheets:
        wanted = " or ".join(f"{key}={value}" for key, value in baselines)
        section.text.append(f"No environment is finished both by an agent and by {wanted}.")
    if others:
        section.text.append(
            f"The table has {counted(others, 'further pair')} of agents; --baseline KEY=VALUE "
            "chooses the pairs that are drawn."
        )
    return section


def aggregate_section(agents: Sequence[AgentGroup], gallery: Gallery) -> Section:
    """Return the aggregates over games of Atari and MinAtar; writes its figures."""
    section = Section(
        "aggregates",
        "Aggregates over games",
        empty="no game of Atari or MinAtar with published scores is finished by every agent",
    )
    normalised, games = comparison.normalised_games(agents)
    if not games:
        return section
    counts = [len(game) for own in normalised.values() for game in own]
    sample = (
        f"{counted(len(games), 'game')}, {seeds_text(counts)} seeds of each; 95 % stratified "
        "bootstrap intervals over seeds."
    )
    scales = comparison.scales_of(agents, games)
    zero_and_one = score_scale.meaning(scales)
    sheet = comparison.aggregate_sheet(normalised, games, zero_and_one)
    pairs = comparison.probability_sheet(normalised, games)
    highest = _best(sheet.rows, pairs.rows)
    section.key = list(normalised)
    section.headlines = [f"{highest}, over {counted(len(games), 'game')}."]
    section.sheets = not_empty([sheet, pairs])
    section.pictures = [
        gallery.picture(
            "aggregates",
            score_panels.aggregate_panel(sheet.rows, gallery.styles),
            f"{highest}. {zero_and_one}. The IQM is more reliable than the "
            f"mean, which depends on a few games. {sample}",
        )
    ]
    if pairs:
        section.pictures.append(
            gallery.picture(
                pairs.name,
                score_panels.probability_of_improvement_panel(pairs.rows),
                "The probability that a run of the first agent scores more than a run of the "
                "second on a random game. Right of the dotted line, the first agent wins more "
                f"often than not. {counted(len(games), 'game')}, {seeds_text(counts)} seeds of "
                "each; Wilson's 95 % intervals.",
            )
        )
    profile = score_panels.profile_panel(
        *comparison.profiles(normalised), gallery.styles, score_scale.short(scales)
    )
    section.pictures.append(
        gallery.picture(
            "profiles",
            profile,
            "Fraction of runs that score more than τ. An agent whose curve is above another "
            "everywhere is better on easy and on hard games; if the curves cross, neither is "
            f"better on both. {sample}",
        )
    )
    section.pictures += _efficiency(agents, gallery)
    return section


def _efficiency(agents: Sequence[AgentGroup], gallery: Gallery) -> list[PagePicture]:
    """Return the pictures of sample and wall-clock efficiency; writes their files."""
    pictures = []
    for axis, label in efficiency.AXES.items():
        curves, games = efficiency.game_curves(agents, axis)
        if not games:
            continue
        figure = efficiency.efficiency_panel(curves, axis, gallery.styles)
        kind = "Sample efficiency" if axis == "frames" else "Wall-clock efficiency"
        caption = (
            f"{kind}: IQM of the normalised evaluations of all runs against {label}, over "
            f"{counted(len(games), 'game')} that all learning agents have; a line ends where the "
            "first of its runs ends. 95 % stratified bootstrap intervals over seeds."
        )
        if axis == "seconds":
            caption += " Hours depend on the machine and on what else it did."
        pictures.append(
            gallery.picture(kind.lower().replace(" ", "_").replace("-", "_"), figure, caption)
        )
    return pictures


def _best(rows: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]]) -> str:
    """Return whether the agent with the highest IQM is told from the second, with both IQMs."""
    best, *others = sorted(rows, key=lambda row: -row["iqm"])
    measure = "IQM of normalised scores"
    if not others:
        return f"{measure.capitalize()} of {best['agent']}: {_iqm(best)}"
    second = others[0]
    names = {best["agent"], second["agent"]}
    (pair,) = [row for row in pairs if {row["x"], row["y"]} == names]
    told = pair["probability_low"] > 0.5 or pair["probability_high"] < 0.5
    if told:
        first = f"{best['agent']} has the highest {measure}: {_iqm(best)}"
        return f"{first}, before {second['agent']} with {_iqm(second)}"
    return (
        f"No difference can be told between the two highest values of the {measure}: "
        f"{best['agent']} {_iqm(best)} and {second['agent']} {_iqm(second)}"
    )


def _iqm(row: dict[str, Any]) -> str:
    return interval(row["iqm"], row["iqm_low"], row["iqm_high"])


def _improvement_caption(pair: Improvement) -> str:
    text = (
        f"{pair.headline} Bars have the colour of the better agent; lines are Welch's 95 % "
        "intervals over seeds; the axis is logarithmic beyond ±100 %; * marks a negative baseline."
    )
    left_out = [row["environment"] for row in pair.rows if row["percent"] is None]
    if left_out:
        text += f" Not drawn, because the baseline is near zero: {several(left_out)}."
    paper = published.PAPER_IMPROVEMENT.get(pair.baseline)
    games = [row["environment"] for row in pair.rows]
    is_atari = not published.atari().index.intersection(games).empty
    if pair.agent == "time_consistent" and paper and is_atari:
        text += f" The paper: {paper[0]} of 50 games, mean {paper[1]:+} %, median {paper[2]:+} %."
    return text
