"""Tables that compare agents by final scores, objectives and aggregates.

Only finished runs count, with the mean score of their final evaluation.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from rigor.report.data import published, scores, seed_intervals
from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord
from rigor.report.data.score_scale import ScoreScale, atari_game, score_scale
from rigor.report.tables.sheet import Sheet, counted, several, with_interval

_THRESHOLDS = 101
_REFERENCES = {  # columns of published scores, and their headings
    "random": "random",
    "human": "human",
    "qr_dqn": "QR-DQN (Dopamine)",
    "dqn": "DQN (Dopamine)",
}


def scored(agent: AgentGroup) -> dict[str, list[RunRecord]]:
    """Return the finished runs by environment."""
    found = {
        environment: [run for run in runs if run.is_scored]
        for environment, runs in agent.runs.items()
    }
    return {environment: runs for environment, runs in found.items() if runs}


def unsolved(agents: Sequence[AgentGroup]) -> dict[str, dict[str, list[RunRecord]]]:
    """Return the finished runs by agent and environment, for the tables of estimates.

    An environment is left out if the table of optima has all of its runs.
    """
    found = {agent.label: scored(agent) for agent in agents}
    open_ones = {
        name for own in found.values() for name, runs in own.items() if not is_solved(runs)
    }
    kept = {
        label: {name: runs for name, runs in own.items() if name in open_ones}
        for label, own in found.items()
    }
    return {label: own for label, own in kept.items() if own}


def is_solved(runs: Sequence[RunRecord]) -> bool:
    """Tell whether runs stand beside the exact optimum of their problem."""
    return any("objective_optimal" in run.result for run in runs)


def final_scores(runs: Sequence[RunRecord]) -> np.ndarray:
    """Return the final scores of finished runs, [k]."""
    return np.array([run.result["score"] for run in runs])


def objectives_of(*groups: Sequence[RunRecord]) -> list[list[float]] | None:
    """Return the objectives of groups of finished runs, all of one kind.

    They are the exact ones if every run has one, and else the sampled ones, which an exact agent
    has too; None if a run has neither.
    """
    for name in ("objective_exact", "objective"):
        if all(run.result.get(name) is not None for runs in groups for run in runs):
            return [[float(run.result[name]) for run in runs] for runs in groups]
    return None


def objective_settings(run: RunRecord) -> tuple[Any, ...]:
    """Return the settings of the objective: discount and risk, with parameters."""
    return tuple(
        (name, str(value))  # a value may be a list, which cannot be an element of a set
        for name, value in sorted(run.settings.items())
        if name.startswith(("discount.", "risk."))
    )


def have_one_objective(agents: Sequence[AgentGroup], environment: str) -> bool:
    """Tell whether all runs of an environment have the same discount and risk.

    Runs whose config cannot be read do not count.
    """
    runs = [run for agent in agents for run in agent.runs.get(environment, []) if run.settings]
    return len(set(map(objective_settings, runs))) == 1


def score_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the final scores by environment and agent, with the published scores."""
    by_agent = unsolved(agents)
    rows = []
    for name in sorted({name for found in by_agent.values() for name in found}):
        first = next(found[name][0] for found in by_agent.values() if name in found)
        row: dict[str, Any] = {"environment": name} | _references(first)
        for label, found in by_agent.items():
            if name in found:
                row |= _mean_cells(label, final_scores(found[name]))
        rows.append(row)
    shown = {"environment": "environment"} | {label: label for label in by_agent}
    if any("random" in row for row in rows):
        shown |= _REFERENCES
    return Sheet(
        name="scores",
        title="Final scores",
        caption="Score of the final evaluation (undiscounted sum of raw rewards): mean over seeds "
        "with Student's 95 % interval over seeds. Random and human: DQN Zoo's table. Dopamine: "
        "mean over 5 seeds of the training scores at 36 to 40 million frames with sticky actions. "
        "The protocols differ, so the published scores are for reference only.",
        rows=rows,
        shown=shown,
    )


def objective_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the final objectives, where all agents have the same objective."""
    found_runs = unsolved(agents)
    by_agent: dict[str, dict[str, np.ndarray]] = {}
    for name in dict.fromkeys(name for own in found_runs.values() for name in own):
        labels = [label for label, own in found_runs.items() if name in own]
        objectives = objectives_of(*(found_runs[label][name] for label in labels))
        if objectives is not None and have_one_objective(agents, name):
            for label, values in zip(labels, objectives, strict=True):
                by_agent.setdefault(label, {})[name] = np.array(values)
    rows = []
    for name in sorted({name for found in by_agent.values() for name in found}):
        row: dict[str, Any] = {"environment": name}
        for label, found in by_agent.items():
            if name in found:
                row |= _mean_cells(label, found[name])
        rows.append(row)
    return Sheet(
        name="objectives",
        title="Final objectives",
        caption="The objective is the risk measure of the discounted raw return. It is measured "
        "in the final evaluation, or computed where there is a model of every run; mean over "
        "seeds with Student's 95 % interval. The table leaves out environments where agents have "
        "different discounts or risk measures, because their objectives cannot be compared.",
        rows=rows,
        shown={"environment": "environment"} | {label: label for label in by_agent},
    )


def normalised_games(
    agents: Sequence[AgentGroup],
) -> tuple[dict[str, list[np.ndarray]], list[str]]:
    """Return the normalised scores by agent on the shared games of Atari and MinAtar.

    A game is shared if all agents have finished it. Agents without any finished run of a game are
    left out.

    Returns:
      For each agent the arrays of the games, and the games.
    """
    found = {agent.label: _normalised(agent) for agent in agents}
    found = {label: games for label, games in found.items() if games}
    shared = set.intersection(*map(set, found.values())) if found else set()
    games = sorted(shared)
    return {label: [own[game] for game in games] for label, own in found.items()}, games


def scales_of(agents: Sequence[AgentGroup], games: Sequence[str]) -> list[ScoreScale]:
    """Return the scales of some games of `normalised_games`."""
    firsts = (agent.runs[name][0] for agent in agents for name in games if name in agent.runs)
    return [scale for run in firsts if (scale := score_scale(run))]


def aggregate_sheet(
    normalised: dict[str, list[np.ndarray]], games: Sequence[str], zero_and_one: str
) -> Sheet:
    """Return the aggregates of normalised scores, one row per agent.

    Args:
      normalised, games: of `normalised_games`. zero_and_one: the scores that they stand for.
    """
    rows = []
    for label, own in normalised.items() if games else ():
        row: dict[str, Any] = {"agent": label, "runs": sum(map(len, own))}
        for name, statistic in (
            ("iqm", scores.interquartile_mean),
            ("median", scores.median),
            ("mean", scores.mean),
            ("optimality_gap", scores.optimality_gap),
        ):
            found = scores.estimate(statistic, own)
            row |= with_interval(name, found.value, found.low, found.high)
        rows.append(row)
    return Sheet(
        name="aggregates",
        title="Aggregates of normalised scores",
        caption=f"{counted(len(games), 'game')} that every agent has finished: "
        f"{several(games, 60)}. {zero_and_one}. IQM: mean of the middle half "
        "of all runs. Median and mean: over games, of the mean over runs. Optimality gap: mean of "
        "max(0, 1 − score) of all runs, lower is better. 95 % stratified "
        f"bootstrap intervals, {scores.RESAMPLES:,} resamples.",
        rows=rows,
        shown={
            "agent": "agent",
            "iqm": "IQM",
            "median": "median",
            "mean": "mean",
            "optimality_gap": "optimality gap",
            "runs": "runs",
        },
    )


def probability_sheet(normalised: dict[str, list[np.ndarray]], games: Sequence[str]) -> Sheet:
    """Return the probability of improvement of every pair of agents."""
    rows = []
    for x, y in combinations(normalised, 2) if games else ():
        value = float(scores.probability_of_improvement(normalised[x], normalised[y]))
        trials = sum(map(min, map(len, normalised[x]), map(len, normalised[y])))
        found = seed_intervals.fraction(value, trials)
        row: dict[str, Any] = {"x": x, "y": y}
        row |= with_interval("probability", found.value, found.low, found.high)
        found = scores.estimate(
            lambda drawn: (
                scores.interquartile_mean(drawn[: len(games)])
                - scores.interquartile_mean(drawn[len(games) :])
            ),
            [*normalised[x], *normalised[y]],
        )
        rows.append(row | with_interval("iqm_difference", found.value, found.low, found.high))
    return Sheet(
        name="probability_of_improvement",
        title="Probability of improvement",
        caption="The probability that a run of X scores more than a run of Y on a game drawn at "
        f"random from {len(games)}, with Wilson's 95 % interval. If the interval contains 0.5, "
        "neither agent is shown to be better. Beside it, the IQM of X less that of Y, with a 95 % "
        "stratified bootstrap interval, which is too short where a game has few seeds.",
        rows=rows,
        shown={"x": "X", "y": "Y", "probability": "P(X > Y)", "iqm_difference": "IQM of X − Y"},
    )


def profiles(
    normalised: dict[str, list[np.ndarray]],
) -> tuple[np.ndarray, dict[str, scores.BootstrapInterval]]:
    """Return thresholds [n] of the normalised score, and each agent's profile."""
    pooled = np.concatenate([game for own in normalised.values() for game in own])
    # Without the quantiles, a few high scores would determine the whole range of thresholds.
    low, high = min(0.0, float(np.quantile(pooled, 0.02))), float(np.quantile(pooled, 0.95))
    thresholds = np.linspace(low, max(high, low + 0.1), _THRESHOLDS)
    return thresholds, {
        label: scores.estimate(lambda s: scores.profile(s, thresholds), own)
        for label, own in normalised.items()
    }


def _mean_cells(label: str, values: np.ndarray) -> dict[str, Any]:
    found = seed_intervals.mean_interval(values)
    cells = with_interval(label, found.value, found.low, found.high)
    return cells | {f"{label}_n": len(values)}


def _references(run: RunRecord) -> dict[str, float]:
    game = atari_game(run)
    if game is None:
        return {}
    row = published.atari().loc[game]
    return {
        "random": float(row["random"]),
        "human": float(row["human"]),
        "qr_dqn": float(row["dopamine_qrdqn_40Mframes_mean"]),
        "dqn": float(row["dopamine_dqn_40Mframes_mean"]),
    }


def _normalised(agent: AgentGroup) -> dict[str, np.ndarray]:
    found = {}
    for name, runs in scored(agent).items():
        if scale := score_scale(runs[0]):
            found[name] = scores.normalised(final_scores(runs), scale.random, scale.reference)
    return found
