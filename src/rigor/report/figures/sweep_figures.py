"""Figures of a sweep that `rigor-figure` draws with the panels of `rigor-report`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rigor.errors import UserError
from rigor.report.data.agents import AgentGroup, agents_of, refuse_no_baseline
from rigor.report.data.runs import RunRecord, find, is_atari, load
from rigor.report.figures.agent_curves import agent_styles, curve_grid, environments_with_curves
from rigor.report.figures.consistency import consistency_figure
from rigor.report.figures.score_panels import improvement_figure
from rigor.report.figures.style import plain_text
from rigor.report.tables.improvement import Improvement, shown_comparisons
from rigor.report.tables.sheet import several

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def improvement_bars(directory: Path, baseline: tuple[str, str] | None = None) -> "Figure":
    """Draw the comparisons of agents, game by game, as the page does (figures 4 and 6).

    Args:
      directory: of a sweep or of runs. baseline: a config group or key, and its value; without it
        every two agents are compared.

    Raises:
      UserError: no agent is the baseline, or no environment is finished by both.
    """
    agents = agents_of([load(path) for path in find([directory])])
    if baseline:
        refuse_no_baseline(agents, *baseline)
    compared, _ = shown_comparisons(agents, [baseline] if baseline else [])
    compared = [pair for pair in compared if pair.drawn]
    if not compared:
        other = f"its baseline {'='.join(baseline)}" if baseline else "another agent"
        raise UserError(
            f"{directory}: no environment is finished by an agent and by {other}, with a mean "
            "that is not near zero; rigor-report lists the runs that are missing"
        )
    with plain_text():
        return improvement_figure(compared, [_title(pair) for pair in compared])


def atari_curves(directory: Path) -> "Figure":
    """Draw the learning curves of all Atari games (figure 7 of the paper).

    Raises:
      UserError: no Atari game has been evaluated.
    """
    agents = _agents(directory, is_atari, "atari/GAME")
    with plain_text():
        return curve_grid(agents, environments_with_curves(agents), agent_styles(agents))


def consistency(directory: Path, is_wanted: Callable[[RunRecord], bool], option: str) -> "Figure":
    """Draw learning curves beside the values of exact agents (figure 1 of the paper).

    Args:
      directory: of a sweep or of runs.
      is_wanted: tells the runs of the environment. option: of `env=` that they have.

    Raises:
      UserError: no learning agent has been evaluated on the environment.
    """
    agents = _agents(directory, is_wanted, option)
    environments = environments_with_curves(agents)
    with plain_text():
        return consistency_figure(
            agents, environments, agent_styles(agents), f"Consistency: {option}"
        )


def _agents(
    directory: Path, is_wanted: Callable[[RunRecord], bool], option: str
) -> list[AgentGroup]:
    runs = [load(path) for path in find([directory])]
    wanted = [run for run in runs if is_wanted(run)]
    if not wanted:
        found = several([f"env={name}" for name in sorted({run.choices["env"] for run in runs})], 5)
        raise UserError(f"{directory}: holds no run with env={option}, only with {found}")
    agents = agents_of(wanted)
    if not environments_with_curves(agents):
        raise UserError(f"{directory}: no learning agent has been evaluated on env={option} yet")
    return agents


def _title(pair: Improvement) -> str:
    text = f"{pair.headline} Lines: Welch's 95 % intervals over seeds."
    if any(row["note"] for row in pair.drawn):
        text += " * The baseline's mean is negative."
    omitted = [row["environment"] for row in pair.rows if row["percent"] is None]
    if omitted:
        text += f" Not drawn because the baseline's mean is near zero: {several(omitted)}."
    return text
