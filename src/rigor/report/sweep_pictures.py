"""The pictures of a sweep that `rigor-figure` draws, with the panels of `rigor-report`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rigor.errors import UserError
from rigor.report import panels
from rigor.report.agents import Agent, agents_of, refuse_no_baseline
from rigor.report.comparison import ATARI
from rigor.report.consistency import consistency_figure
from rigor.report.improvement import Improvement, comparisons
from rigor.report.runs import Run, find, load
from rigor.report.sheet import several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROPOSED = ("variant", "time_consistent")  # the paper's own agent


def improvement_bars(directory: Path, baseline: tuple[str, str]) -> "Figure":
    """Draw the improvement over a baseline, game by game: figures 4 and 6.

    The paper's agent is compared where it is there and is not the baseline itself, else all are.

    Args:
      directory: of a sweep, or one that holds runs. baseline: a choice or a setting, and its value.

    Raises:
      UserError: no such baseline, or no game that both have finished.
    """
    agents = agents_of([load(path) for path in find([directory])])
    refuse_no_baseline(agents, *baseline)
    found = [one for one in comparisons(agents, [baseline]) if one.drawn]
    proposed = {one.label for one in agents if one.matches(*PROPOSED)}
    found = [one for one in found if one.agent in proposed] or found
    if not found:
        raise UserError(
            f"{directory}: no environment without an exact optimum is finished by an agent and by "
            f"its baseline {'='.join(baseline)}; rigor-report says what is missing"
        )
    with panels.plain_text():
        return panels.improvement_figure(found, [_title(one) for one in found])


def atari_curves(directory: Path) -> "Figure":
    """Draw the learning curves of all Atari games: figure 7.

    Raises:
      UserError: no Atari game has been evaluated.
    """
    agents = _agents(directory, lambda run: run.settings.get("env._target_") == ATARI, "Atari game")
    games = panels.environments_with_curves(agents)
    with panels.plain_text():
        return panels.curve_grid(agents, games, panels.styles(agents))


def consistency(directory: Path, wanted: Callable[[Run], bool], name: str) -> "Figure":
    """Draw learning curves beside what exact agents come to: figure 1.

    Args:
      directory: of a sweep, or one that holds runs.
      wanted: tells the runs of the problem. name: of the problem.

    Raises:
      UserError: no learned run of it has been evaluated.
    """
    agents = _agents(directory, wanted, name)
    environments = panels.environments_with_curves(agents)
    with panels.plain_text():
        return consistency_figure(
            agents, environments, panels.styles(agents), f"Consistency: {name}"
        )


def _agents(directory: Path, wanted: Callable[[Run], bool], name: str) -> list[Agent]:
    runs = [load(path) for path in find([directory])]
    mine = [run for run in runs if wanted(run)]
    if not mine:
        there = several(sorted({run.choices["env"] for run in runs}), 5)
        raise UserError(f"{directory}: holds no run of an environment {name}, only of {there}")
    agents = agents_of(mine)
    if not panels.environments_with_curves(agents):
        raise UserError(f"{directory}: no learned run of {name} has been evaluated yet")
    return agents


def _title(one: Improvement) -> str:
    counts = sorted({row[name] for row in one.rows for name in ("n", "n_baseline")})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    text = f"{one.headline} Seeds of a game: {seeds}; lines: 95 % intervals over them."
    if any(row["note"] for row in one.drawn):
        text += " * a negative baseline."
    left = [row["game"] for row in one.rows if row["percent"] is None]
    return f"{text} Not drawn, for the baseline is near zero: {several(left)}." if left else text
