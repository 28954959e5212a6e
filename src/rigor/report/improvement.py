"""The paper's figures 4 and 6: how much better than a baseline an agent is, game by game.

Only finished runs count, with the mean undiscounted score of their final evaluation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rigor.report import published, scores
from rigor.report.agents import Agent, baseline_of
from rigor.report.comparison import game_of, returns_of, scored
from rigor.report.runs import Run
from rigor.report.sheet import Sheet, counted, with_interval

NEAR_ZERO = 0.01  # of the way from random to human: a baseline below that has no percentage


@dataclass
class Improvement:
    """One agent over a baseline.

    rows: a game each, best first, with `percent` and its interval where it is defined, `note`.
    better: games with the higher mean, of all. mean, median: of the percentages.
    """

    agent: str
    baseline: str
    rows: list[dict[str, Any]]

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The rows that have a percentage."""
        return [row for row in self.rows if row["percent"] is not None]

    @property
    def better(self) -> int:
        """On how many games the agent has the higher mean score."""
        return sum(row["difference"] > 0 for row in self.rows)

    @property
    def mean(self) -> float:
        """The mean percentage over games."""
        return float(np.mean([row["percent"] for row in self.drawn]))

    @property
    def median(self) -> float:
        """The median percentage over games."""
        return float(np.median([row["percent"] for row in self.drawn]))

    @property
    def headline(self) -> str:
        """What it comes to, in one sentence."""
        return (
            f"{self.agent} over {self.baseline}: a higher mean score on {self.better} of "
            f"{counted(len(self.rows), 'game')}; mean {self.mean:+.1f} %, median "
            f"{self.median:+.1f} % over {counted(len(self.drawn), 'game')}."
        )


def improvement(agent: Agent, baseline: Agent) -> Improvement:
    """Compare an agent with a baseline on every environment that both have finished."""
    ours, theirs = scored(agent), scored(baseline)
    rows = []
    for game in [one for one in ours if one in theirs]:
        x, y = returns_of(ours[game]), returns_of(theirs[game])
        rows.append(
            {
                "game": game,
                "score": float(x.mean()),
                "baseline": float(y.mean()),
                "difference": float(x.mean() - y.mean()),
                "n": len(x),
                "n_baseline": len(y),
                **_percentage(x, y, _scale(ours[game][0])),
            }
        )
    rows.sort(key=lambda row: (row["percent"] is None, -(row["percent"] or 0.0)))
    return Improvement(agent.label, baseline.label, rows)


def comparisons(agents: Sequence[Agent], baselines: Sequence[tuple[str, str]]) -> list[Improvement]:
    """Compare every agent with its baselines, each pair one way round only.

    Args:
      baselines: (key, value) pairs that the baselines have.
    """
    found: list[Improvement] = []
    seen: set[tuple[str, str]] = set()
    for key, value in baselines:
        for one in agents:
            other = baseline_of(one, agents, key, value)
            if other is None or {(one.label, other.label), (other.label, one.label)} & seen:
                continue
            seen.add((one.label, other.label))
            result = improvement(one, other)
            if result.rows:
                found.append(result)
    return found


def improvement_sheet(one: Improvement, number: int) -> Sheet:
    """Return the table of a comparison; its files carry a number."""
    return Sheet(
        name=f"improvement_{number}",
        title=f"{one.agent} over {one.baseline}, by game",
        caption="Mean scores of finished runs, n of each agent; 95 % bootstrap interval over "
        "seeds. Games without a percentage stand at the end and say why.",
        rows=one.rows,
        shown={
            "game": "game",
            "score": one.agent,
            "baseline": one.baseline,
            "difference": "difference",
            "percent": "improvement",
            "n": "n",
            "n_baseline": "n baseline",
            "note": "note",
        },
        units={"percent": " %"},
    )


def _scale(run: Run) -> float:
    """Return the distance from random to human, raw reward; 0 where nobody published it."""
    game = game_of(run)
    if game is None:
        return 0.0
    row = published.atari().loc[game]
    return abs(float(row["human"] - row["random"]))


def _percentage(x: np.ndarray, y: np.ndarray, scale: float) -> dict[str, Any]:
    if abs(y.mean()) <= NEAR_ZERO * scale or y.mean() == 0.0:
        return {"percent": None, "note": f"baseline near zero ({y.mean():.3g}): no percentage"}
    found = scores.estimate(lambda s: scores.percent_improvement(s[0], s[1]), [x, y])
    cells: dict[str, Any] = dict(with_interval("percent", found.value, found.low, found.high))
    return cells | {"note": "negative baseline: over its absolute value" if y.mean() < 0 else ""}
