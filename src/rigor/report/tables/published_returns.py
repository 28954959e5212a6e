"""Own training returns on Atari beside Dopamine's at equal frames."""

from collections.abc import Sequence

import numpy as np

from rigor.report.data import published
from rigor.report.data.agents import AgentGroup
from rigor.report.data.runs import RunRecord
from rigor.report.data.seed_intervals import mean_interval
from rigor.report.data.training_returns import LEARNING, by_million, differences, is_comparable
from rigor.report.tables.sheet import Sheet, several

PEERS = ("DQN", "QR-DQN", "IQN")
"""Dopamine's agents that are shown; the CSV file has C51 and Rainbow too."""

_SHOWN_MILLIONS = (1, 2, 3, 4, 5, 10, 15, 20)


def comparable(agents: Sequence[AgentGroup]) -> dict[str, dict[str, list[RunRecord]]]:
    """Return the runs that have a published curve beside them, by game and agent."""
    curves = set(published.dopamine_curves()["game"])
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for agent in agents:
        for run in agent.members:
            game = str(run.settings.get("env.game"))
            if game in curves and is_comparable(run):
                found.setdefault(game, {}).setdefault(agent.label, []).append(run)
    return dict(sorted(found.items()))


def published_returns_sheet(agents: Sequence[AgentGroup]) -> Sheet:
    """Return the table of training returns by game, agent and million of frames."""
    found = comparable(agents)
    curves = published.dopamine_curves().set_index(["game", "million"])
    rows = []
    for game, own in found.items():
        for label, runs in own.items():
            means = [by_million(run.training) for run in runs]
            for million in sorted(set.intersection(*(set(mean.index) for mean in means))):
                if (game, million) not in curves.index:
                    continue
                values = np.array([mean[million] for mean in means])
                interval = mean_interval(values)
                row = {"environment": game, "agent": label, "million": million, "seeds": len(runs)}
                row |= {"score": float(interval.value), "score_low": float(interval.low)}
                row |= {"score_high": float(interval.high)}
                for peer in curves.loc[(game, million)].itertuples():
                    row |= {str(peer.agent): peer.mean, f"{peer.agent}_sd": peer.sd}
                rows.append(row)
    last = {(row["environment"], row["agent"]): row["million"] for row in rows}
    rows = [
        row
        for row in rows
        if row["million"] in (*_SHOWN_MILLIONS, last[row["environment"], row["agent"]])
    ]
    members = [run for own in found.values() for runs in own.values() for run in runs]
    return Sheet(
        "published_returns",
        "Training returns beside Dopamine's at equal frames",
        caption(members),
        rows,
        {
            "environment": "game",
            "agent": "agent",
            "million": "million frames",
            "seeds": "seeds",
            "score": "training return",
            **dict(zip(PEERS, PEERS, strict=True)),
        },
    )


def caption(runs: Sequence[RunRecord]) -> str:
    """Return how to read the comparison, with the differences of the protocols."""
    own = dict.fromkeys(text for run in runs for text in differences(run.settings))
    same = "The games are played as Dopamine's are."
    games = f"These runs play otherwise: {several(list(own))}." if own else same
    return (
        "The mean score of the training episodes that ended in a million of frames, with "
        "exploration; Dopamine's: mean of 5 seeds, from google/dopamine (Apache-2.0). "
        f"{games} {LEARNING} With many copies of the environment an episode that ends was begun "
        "by an older policy."
    )
