"""The optimality gap on the American put, split into method and learning.

A learned agent has less value than the optimum for three reasons: its clock stands still, its
quadrature is inaccurate, and it learned from samples. An exact agent (`agent=backward_induction`)
of the same variant, quadrature and bootstrap has only the first two.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rigor.report.data import seed_intervals
from rigor.report.data.agents import RunGroup
from rigor.report.data.runs import RunRecord
from rigor.report.tables.comparison import objective_settings
from rigor.report.tables.sheet import Sheet, with_interval

_METHOD = ("variant", "quadrature", "m", "gamma_max", "bootstrap")
_RELEASED, _ACCURATE = "lower", "gauss_legendre"  # quadratures


def method_of(run: RunRecord) -> dict[str, Any]:
    """Return the settings in which a learned agent and its exact counterpart agree."""
    several = "horizons.quadrature" in run.settings  # horizons=multi
    return {
        "variant": run.choices["variant"],
        "quadrature": run.settings.get("horizons.quadrature") if several else "single",
        "m": run.settings.get("horizons.m") if several else 1,
        "gamma_max": run.settings.get("horizons.gamma_max") if several else None,
        "bootstrap": run.settings.get("agent.bootstrap"),
    }


def gap_sheet(groups: Sequence[RunGroup]) -> Sheet:
    """Return each agent's optimality gap on the put, split into method and learning.

    Args:
      groups: of learned agents and of exact ones.
    """
    groups = [group for group in groups if all("objective_exact" in r.result for r in group.runs)]
    exact = [group for group in groups if group.agent.is_exact]
    counterparts = {_comparable(group): group for group in exact}
    learned = [group for group in groups if not group.agent.is_exact]
    rows = [_learned_row(group, counterparts.get(_comparable(group))) for group in learned]
    matched = set(map(_comparable, learned))
    rows += [_exact_row(group) for group in exact if _comparable(group) not in matched]
    rows.sort(key=lambda row: [str(row[name]) for name in ("environment", *_METHOD)])
    return Sheet(
        name="put_consistency",
        title="American put: gap of the method and gap of learning",
        caption="Learned: the exact value of the final policies, mean over seeds. Exact agent: the "
        "value of the same variant, quadrature and bootstrap without learning, from a run with "
        "agent=backward_induction in this report; – where the report has none. Gaps are in percent "
        "of the optimum. Gap of the method: optimum less exact agent. Gap of learning: exact agent "
        "less learned.",
        rows=rows,
        shown={
            "environment": "problem",
            "variant": "variant",
            "quadrature": "quadrature",
            "m": "m",
            "bootstrap": "bootstrap",
            "n": "n",
            "learned": "learned",
            "exact": "exact agent",
            "optimal": "optimum",
            "gap_method": "gap of the method",
            "gap_learning": "gap of learning",
        },
        units={"gap_method": " %", "gap_learning": " %"},
    )


def gap_lines(sheet: Sheet) -> list[str]:
    """Return sentences on the gap that the released quadrature causes."""
    gaps: dict[tuple[str, str], dict[str, float]] = {}
    for row in sheet.rows:
        if row["variant"] == "time_inconsistent" and row.get("gap_method") is not None:
            by_quadrature = gaps.setdefault((row["environment"], row["bootstrap"]), {})
            by_quadrature[row["quadrature"]] = row["gap_method"]
    return [
        f"{environment}, {bootstrap} bootstrap: the exact time-inconsistent agent loses "
        f"{gap[_RELEASED]:.2f} % of the optimum with the released quadrature ({_RELEASED}) and "
        f"{gap[_ACCURATE]:.2f} % with an accurate one ({_ACCURATE}). The latter is the price of "
        "inconsistency; the difference is the price of the quadrature."
        for (environment, bootstrap), gap in gaps.items()
        if {_RELEASED, _ACCURATE} <= gap.keys()
    ]


def _comparable(group: RunGroup) -> tuple[Any, ...]:
    """Return the key that a learned agent shares with its exact counterpart."""
    run = group.runs[0]
    return group.environment, objective_settings(run), tuple(method_of(run).items())


def _learned_row(group: RunGroup, exact: RunGroup | None) -> dict[str, Any]:
    values = np.array([run.result["objective_exact"] for run in group.runs])
    mean = seed_intervals.mean_interval(values)
    row = _row(group) | {"agent": group.agent.label, "n": len(group.runs)}
    row |= with_interval("learned", mean.value, mean.low, mean.high)
    if exact:
        value = exact.runs[0].result["objective_exact"]
        row |= {"exact": value, "gap_method": _percent(row["optimal"] - value, row["optimal"])}
        row["gap_learning"] = _percent(value - float(values.mean()), row["optimal"])
    return row


def _exact_row(group: RunGroup) -> dict[str, Any]:
    row, value = _row(group), group.runs[0].result["objective_exact"]
    gap = _percent(row["optimal"] - value, row["optimal"])
    return row | {"agent": group.agent.label, "exact": value, "gap_method": gap}


def _row(group: RunGroup) -> dict[str, Any]:
    run = group.runs[0]
    optimal = run.result["objective_optimal"]
    return {"environment": group.environment, **method_of(run), "optimal": optimal}


def _percent(gap: float, optimal: float) -> float | None:
    return round(100.0 * gap / optimal, 3) if optimal > 0 else None
