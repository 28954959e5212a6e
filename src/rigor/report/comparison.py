"""Agents against each other where nothing is solved exactly: scores and aggregates over games.

Only finished runs count, with the mean undiscounted score of their final evaluation.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from rigor.report import published, scores
from rigor.report.agents import Agent
from rigor.report.runs import Run
from rigor.report.sheet import Sheet, counted, several, with_interval

ATARI = "rigor.envs.atari.Atari"

_THRESHOLDS = 101


def scored(agent: Agent) -> dict[str, list[Run]]:
    """Return the finished runs by environment, of those that have no exact optimum."""
    found = {
        environment: [run for run in runs if run.is_scored]
        for environment, runs in agent.runs.items()
        if not any("objective_optimal" in run.result for run in runs)
    }
    return {environment: runs for environment, runs in found.items() if runs}


def returns_of(runs: Sequence[Run]) -> np.ndarray:
    """Return the final scores of finished runs, [k]."""
    return np.array([run.result["return_mean"] for run in runs])


def game_of(run: Run) -> str | None:
    """Return the Atari game of a run, None where it is another or nobody published its scores."""
    game = str(run.settings.get("env.game"))
    known = run.settings.get("env._target_") == ATARI and game in published.atari().index
    return game if known else None


def score_sheet(agents: Sequence[Agent]) -> Sheet:
    """Return the scores of every agent on every environment, published ones beside."""
    by_agent = {one.label: scored(one) for one in agents}
    by_agent = {label: games for label, games in by_agent.items() if games}
    names = sorted({game for games in by_agent.values() for game in games})
    rows = []
    for name in names:
        first = next(games[name][0] for games in by_agent.values() if name in games)
        row: dict[str, Any] = {"environment": name} | _references(first)
        for label, games in by_agent.items():
            if name in games:
                row |= _mean_cells(label, returns_of(games[name]))
        rows.append(row)
    references = {
        "random": "random",
        "human": "human",
        "qr_dqn": "QR-DQN (Dopamine)",
        "dqn": "DQN (Dopamine)",
    }
    shown = {"environment": "environment"} | {label: label for label in by_agent}
    if any("random" in row for row in rows):
        shown |= references
    return Sheet(
        name="scores",
        title="Final scores",
        caption="Mean over seeds of the undiscounted raw score in the final evaluation, with its "
        "95 % bootstrap interval over seeds. Random and human: DQN Zoo's table. Dopamine: training "
        "returns at 36 to 40 million frames with sticky actions, mean over 5 seeds; another "
        "protocol, so a reference and no bar.",
        rows=rows,
        shown=shown,
    )


def objective_sheet(agents: Sequence[Agent]) -> Sheet:
    """Return the objective of every agent on every environment that all have one yardstick for."""
    by_agent: dict[str, dict[str, list[Run]]] = {}
    for one in agents:
        for name, runs in scored(one).items():
            told = [run for run in runs if objective_of(run) is not None]
            if told and has_one_yardstick(agents, name):
                by_agent.setdefault(one.label, {})[name] = told
    rows = []
    for name in sorted({name for games in by_agent.values() for name in games}):
        row: dict[str, Any] = {"environment": name}
        for label, games in by_agent.items():
            if name in games:
                row |= _mean_cells(label, np.array([objective_of(run) for run in games[name]]))
        rows.append(row)
    return Sheet(
        name="objectives",
        title="Final objectives",
        caption="What agents maximise: the risk measure of the raw return under the true discount, "
        "in the final evaluation, or exact where there is a model; mean over seeds with its 95 % "
        "bootstrap interval over seeds. An environment where discount or risk measure differ "
        "between agents has no common yardstick and is left out.",
        rows=rows,
        shown={"environment": "environment"} | {label: label for label in by_agent},
    )


def objective_of(run: Run) -> float | None:
    """Return the objective of a finished run: the exact one where it has one."""
    found = run.result.get("objective_exact", run.result.get("objective"))
    return None if found is None else float(found)


def has_one_yardstick(agents: Sequence[Agent], environment: str) -> bool:
    """Tell whether discount and risk measure are the same in all runs of an environment.

    A run whose config cannot be read does not count.
    """
    runs = [run for one in agents for run in one.runs.get(environment, []) if run.settings]
    return len(set(map(yardstick, runs))) == 1


def yardstick(run: Run) -> tuple[Any, ...]:
    """Return what is to be maximised: discount and risk measure, with their parameters."""
    return tuple(
        (name, str(value))  # a value may be a list, which no set holds
        for name, value in sorted(run.settings.items())
        if name.startswith(("discount.", "risk."))
    )


def normalised_games(agents: Sequence[Agent]) -> tuple[dict[str, list[np.ndarray]], list[str]]:
    """Return the human-normalised scores by agent on the Atari games that all agents finished.

    Agents without any finished Atari run are left out.

    Returns:
      For each agent the arrays of the games, and the games.
    """
    found = {one.label: _normalised(one) for one in agents}
    found = {label: games for label, games in found.items() if games}
    shared = set.intersection(*map(set, found.values())) if found else set()
    games = sorted(shared)
    return {label: [own[game] for game in games] for label, own in found.items()}, games


def aggregate_sheet(normalised: dict[str, list[np.ndarray]], games: Sequence[str]) -> Sheet:
    """Return the aggregates of human-normalised scores, an agent a row."""
    rows = []
    for label, own in normalised.items() if games else ():
        row: dict[str, Any] = {"agent": label, "runs": sum(map(len, own))}
        for name, statistic in (
            ("iqm", scores.interquartile_mean),
            ("median", scores.median),
            ("mean", scores.mean),
        ):
            found = scores.estimate(statistic, own)
            row |= with_interval(name, found.value, found.low, found.high)
        rows.append(row)
    return Sheet(
        name="aggregates",
        title="Human-normalised aggregates",
        caption=f"{counted(len(games), 'game')} that every agent has finished: "
        f"{several(games, 60)}. 0 is "
        "random play, 1 a human's. IQM: mean of the middle half of all runs; median and mean: over "
        "games, of the mean over runs; 95 % stratified bootstrap intervals, "
        f"{scores.RESAMPLES:,} resamples.",
        rows=rows,
        shown={"agent": "agent", "iqm": "IQM", "median": "median", "mean": "mean", "runs": "runs"},
    )


def duel_sheet(normalised: dict[str, list[np.ndarray]], games: Sequence[str]) -> Sheet:
    """Return the probability of improvement of every pair of agents."""
    rows = []
    for one, other in combinations(normalised, 2) if games else ():
        found = scores.estimate(
            lambda s: scores.probability_of_improvement(s[: len(games)], s[len(games) :]),
            [*normalised[one], *normalised[other]],
        )
        rows.append(
            {"x": one, "y": other}
            | with_interval("probability", found.value, found.low, found.high)
        )
    return Sheet(
        name="probability_of_improvement",
        title="Probability of improvement",
        caption="The chance that a run of X scores more than a run of Y on a game drawn at random "
        f"from {len(games)}; an interval that holds 0.5 tells no winner.",
        rows=rows,
        shown={"x": "X", "y": "Y", "probability": "P(X > Y)"},
    )


def profiles(
    normalised: dict[str, list[np.ndarray]],
) -> tuple[np.ndarray, dict[str, scores.Estimate]]:
    """Return thresholds [n] of the normalised score, and each agent's profile over them."""
    everything = np.concatenate([game for own in normalised.values() for game in own])
    # The few highest scores would squeeze everything else into a corner.
    low, high = min(0.0, float(np.quantile(everything, 0.02))), float(np.quantile(everything, 0.95))
    thresholds = np.linspace(low, max(high, low + 0.1), _THRESHOLDS)
    return thresholds, {
        label: scores.estimate(lambda s: scores.profile(s, thresholds), own)
        for label, own in normalised.items()
    }


def _mean_cells(label: str, returns: np.ndarray) -> dict[str, Any]:
    found = scores.estimate(scores.mean, [returns])
    cells = with_interval(label, found.value, found.low, found.high)
    return cells | {f"{label}_n": len(returns)}


def _references(run: Run) -> dict[str, float]:
    game = game_of(run)
    if game is None:
        return {}
    row = published.atari().loc[game]
    return {
        "random": float(row["random"]),
        "human": float(row["human"]),
        "qr_dqn": float(row["dopamine_qrdqn_40Mframes_mean"]),
        "dqn": float(row["dopamine_dqn_40Mframes_mean"]),
    }


def _normalised(agent: Agent) -> dict[str, np.ndarray]:
    found = {}
    for name, runs in scored(agent).items():
        if game := game_of(runs[0]):
            row = published.atari().loc[game]
            found[name] = scores.normalised(
                returns_of(runs), float(row["random"]), float(row["human"])
            )
    return found
