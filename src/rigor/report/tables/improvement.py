"""Comparison of two agents on every environment that both have finished.

The paper shows the improvement in its figures 4 and 6. Only finished runs count, with the mean of
their final evaluation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from rigor.report.data import scores, seed_intervals
from rigor.report.data.agents import BASELINES, AgentGroup, baseline_of
from rigor.report.data.runs import RunRecord
from rigor.report.data.score_scale import score_scale
from rigor.report.data.text import signed
from rigor.report.tables.comparison import have_one_objective, is_solved, objectives_of
from rigor.report.tables.sheet import Sheet, counted, several, with_interval
from rigor.report.tables.sweep_table import interval

NEAR_ZERO = 0.01
"""Below this fraction of the scale of normalised scores, a baseline's score gives no percentage."""

ROUNDING = 1e-12
"""Largest relative difference of equal values."""

MOST_SHOWN = 12
"""The most pairs of agents that get a headline and a figure; the table has all pairs."""

NOT_TOLD = "no difference can be told"


@dataclass
class Improvement:
    """The improvement of one agent over a baseline.

    agent, baseline: labels. rows: one per environment, best first, with `percent` and its interval
    (None where it is undefined), `note`, and `verdict`: `higher`, `lower`, `equal` or `NOT_TOLD`.
    """

    agent: str
    baseline: str
    rows: list[dict[str, Any]]

    @property
    def drawn(self) -> list[dict[str, Any]]:
        """The rows that have a percentage."""
        return [row for row in self.rows if row["percent"] is not None]

    @property
    def mean(self) -> float:
        """The mean percentage over environments."""
        return float(np.mean([row["percent"] for row in self.drawn]))

    @property
    def median(self) -> float:
        """The median percentage over environments."""
        return float(np.median([row["percent"] for row in self.drawn]))

    @property
    def probability(self) -> scores.BootstrapInterval:
        """The probability of improvement over all environments."""
        value = float(np.mean([row["probability"] for row in self.rows]))
        trials = sum(min(row["n"], row["n_baseline"]) for row in self.rows)
        return seed_intervals.fraction(value, trials)

    @property
    def seeds(self) -> str:
        """The number of seeds, such as `2 seeds` or `2 to 3 seeds`."""
        counts = [row[name] for row in self.rows for name in ("n", "n_baseline")]
        if min(counts) == max(counts):
            return counted(max(counts), "seed")
        return f"{min(counts)} to {max(counts)} seeds"

    @property
    def headline(self) -> str:
        """A sentence that sums up the comparison: the verdict, then its interval."""
        if len(self.rows) == 1:
            (row,) = self.rows
            text = self._verdict(row["verdict"], f"has a {row['verdict']} {row['measure']}")
            where = f"{row['environment']}, {row['measure']}"
            return f"{text}: {_size(row)}, {self.seeds} ({where})."
        chance = self.probability
        verdict = "better" if chance.low > 0.5 else "worse" if chance.high < 0.5 else NOT_TOLD
        value, low, high = (f"{float(end):.2f}" for end in (chance.value, chance.low, chance.high))
        text = (
            f"{self._verdict(verdict, f'is {verdict}')}: probability of improvement {value} "
            f"[{low}, {high}] over {len(self.rows)} environments, {self.seeds}; {self.counts}"
        )
        if self.drawn:
            text += f"; mean {percent(self.mean, 1)}, median {percent(self.median, 1)}"
        return text + "."

    @property
    def counts(self) -> str:
        """The number of environments with each verdict."""
        found = [row["verdict"] for row in self.rows]
        shown = [f"{found.count(name)} {name}" for name in ("higher", "lower", "equal")]
        told = ", ".join(text for text in shown if not text.startswith("0 "))
        undecided = found.count(NOT_TOLD)
        return ", ".join(
            part for part in (told, f"{NOT_TOLD} on {undecided}" if undecided else "") if part
        )

    def _verdict(self, verdict: str, relation: str) -> str:
        if verdict == "equal":
            return f"{self.agent} and {self.baseline} are equal"
        if verdict == NOT_TOLD:
            return f"{NOT_TOLD.capitalize()} between {self.agent} and {self.baseline}"
        return f"{self.agent} {relation} than {self.baseline}"


def improvement(agent: AgentGroup, baseline: AgentGroup) -> Improvement:
    """Compare an agent with a baseline on every environment that both have finished.

    The measure is the score, and the objective on a problem with an exact optimum, whose score is
    not what the agents maximise.
    """
    rows = [
        row
        for row in measured_rows(agent, baseline)
        if row["measure"] == ("objective" if row["is_solved"] else "score")
    ]
    rows.sort(key=lambda row: (row["percent"] is None, -(row["percent"] or 0.0)))
    return Improvement(agent.label, baseline.label, rows)


def measured_rows(agent: AgentGroup, baseline: AgentGroup) -> list[dict[str, Any]]:
    """Return the rows of a pair: by environment the score and, if it is shared, the objective."""
    rows = []
    for name in agent.runs:
        x = [run for run in agent.runs[name] if run.is_scored]
        y = [run for run in baseline.runs.get(name, []) if run.is_scored]
        if not x or not y:
            continue
        measures = {"score": [[run.result["score"] for run in runs] for runs in (x, y)]}
        objectives = objectives_of(x, y)
        if objectives is not None and have_one_objective([agent, baseline], name):
            measures["objective"] = objectives
        for measure, (ours, theirs) in measures.items():
            row: dict[str, Any] = {"environment": name, "measure": measure, "agent": agent.label}
            row |= {"baseline_agent": baseline.label, "is_solved": is_solved(x + y)}
            exact = all(run.is_exact for run in x), all(run.is_exact for run in y)
            scale = _scale(x[0]) if measure == "score" else 0.0
            rows.append(row | _compared(np.array(ours), np.array(theirs), exact, scale))
    return rows


def comparisons(
    agents: Sequence[AgentGroup], baselines: Sequence[tuple[str, str]] = ()
) -> list[Improvement]:
    """Compare agents with their baselines, each pair in one direction only.

    Args:
      baselines: the (key, value) pair of each baseline; if empty, every two agents are compared.
    """
    pairs: dict[tuple[str, str], tuple[AgentGroup, AgentGroup]] = {}
    if not baselines:
        pairs = {(x.label, y.label): (x, y) for x, y in combinations(agents, 2)}
    for key, value in baselines:
        for agent in agents:
            baseline = baseline_of(agent, agents, key, value)
            if baseline and (baseline.label, agent.label) not in pairs:
                pairs[agent.label, baseline.label] = agent, baseline
    found = [improvement(*pair) for pair in pairs.values()]
    return [pair for pair in found if pair.rows]


def shown_comparisons(
    agents: Sequence[AgentGroup], baselines: Sequence[tuple[str, str]] = ()
) -> tuple[list[Improvement], int]:
    """Return the comparisons that get headlines and figures, and how many others there are.

    Args:
      baselines: as in `comparisons`; if empty, every two agents are compared, and if these are more
        than `MOST_SHOWN` pairs, the paper's baselines where the runs have them.
    """
    found = comparisons(agents, baselines)
    if baselines:
        return found, 0
    if len(found) <= MOST_SHOWN:
        return found, 0
    shown = (comparisons(agents, BASELINES) or found)[:MOST_SHOWN]
    return shown, len(found) - len(shown)


def comparison_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the comparison of every two agents on every environment, by score and objective."""
    pairs = list(combinations(agents, 2))
    rows = [row for x, y in pairs for row in measured_rows(x, y)]
    return Sheet(
        name="comparisons",
        title="Every two agents",
        caption="Means over the seeds of finished runs, and the difference X − Y with Welch's 95 % "
        "interval. P(X > Y): the probability that a run of X has more than a run of Y, with "
        "Wilson's interval. The objective is compared where X and Y have the same discount and the "
        "same risk measure. Verdict: higher or lower if the interval of the difference excludes "
        "zero; without an interval, if P(X > Y) excludes one half; exact values are compared as "
        f"they are.{_left_out(agents, rows)}",
        rows=rows,
        shown={
            "environment": "environment",
            "measure": "measure",
            "agent": "X",
            "baseline_agent": "Y",
            "verdict": "X is",
            "value": "mean of X",
            "baseline": "mean of Y",
            "difference": "difference",
            "percent": "improvement",
            "probability": "P(X > Y)",
            "n": "n of X",
            "n_baseline": "n of Y",
            "note": "note",
        },
        units={"percent": " %"},
    )


def percent(value: float, decimals: int = 0) -> str:
    """Return `+34 %` or `−3.2 %`."""
    return f"{signed(value, decimals)} %"


def _size(row: dict[str, Any]) -> str:
    """Return the size of a difference with its interval: `−34 % [−69, +61]`."""
    if row["percent"] is None:
        ends = row["difference"], row["difference_low"], row["difference_high"]
        return f"difference {interval(*ends)}"
    text = percent(row["percent"], 0 if abs(row["percent"]) >= 10 else 1)
    if row["verdict"] == "equal":
        return "0 %"
    if row["verdict"] != NOT_TOLD and row["n"] == row["n_baseline"] == 1:
        return f"{text}, exact values"
    if math.isnan(row["percent_low"]):
        return f"{text}, no interval"
    return f"{text} [{signed(row['percent_low'])}, {signed(row['percent_high'])}]"


def _compared(
    x: np.ndarray, y: np.ndarray, exact: tuple[bool, bool], scale: float
) -> dict[str, Any]:
    """Return the numbers of one row.

    Args:
      x, y: values of the seeds, [k] and [l]. exact: whether x and y are known exactly.
      scale: of the measure, 0 if it is not known.
    """
    found = seed_intervals.difference(x, y, *exact)
    chance = float(scores.probability_of_improvement([x], [y]))
    wilson = seed_intervals.fraction(chance, min(len(x), len(y)))
    if np.allclose(x.mean(), np.concatenate([x, y]), rtol=ROUNDING, atol=0.0):
        verdict = "equal"
    elif all(exact):
        difference = float(found.value)
        verdict = "higher" if difference > 0 else "lower"
    elif np.isnan(found.low):
        verdict = _side(float(wilson.low) - 0.5, float(wilson.high) - 0.5)
    else:
        verdict = _side(float(found.low), float(found.high))
    return {
        "value": float(x.mean()),
        "baseline": float(y.mean()),
        **with_interval("difference", found.value, found.low, found.high),
        **with_interval("probability", wilson.value, wilson.low, wilson.high),
        "n": len(x),
        "n_baseline": len(y),
        "verdict": verdict,
        **_percentage(found, float(y.mean()), scale),
    }


def _side(low: float, high: float) -> str:
    return "higher" if low > 0 else "lower" if high < 0 else NOT_TOLD


def _percentage(found: scores.BootstrapInterval, baseline: float, scale: float) -> dict[str, Any]:
    if abs(baseline) <= NEAR_ZERO * scale or baseline == 0.0:
        return {"percent": None, "note": f"baseline near zero ({baseline:.3g}): no percentage"}
    unit = abs(baseline) / 100.0
    cells: dict[str, Any] = dict(
        with_interval("percent", found.value / unit, found.low / unit, found.high / unit)
    )
    note = "negative baseline: in percent of its absolute value" if baseline < 0 else ""
    return cells | {"note": note}


def _scale(run: RunRecord) -> float:
    """Return the difference of the scores that become 0 and 1, 0 if there are none."""
    scale = score_scale(run)
    return 0.0 if scale is None else abs(scale.reference - scale.random)


def _left_out(agents: Sequence[AgentGroup], rows: Sequence[dict[str, Any]]) -> str:
    """Return sentences that name the environments without a comparison."""
    names = sorted({name for agent in agents for name in agent.runs})
    compared = {row["environment"] for row in rows}
    by_objective = {row["environment"] for row in rows if row["measure"] == "objective"}
    text = ""
    if missing := [name for name in names if name not in compared]:
        text += f" Left out, because fewer than two agents have finished it: {several(missing)}."
    if other := [name for name in names if name in compared - by_objective]:
        text += f" Without the objective, because no two agents share it: {several(other)}."
    return text
