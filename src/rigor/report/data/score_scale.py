"""The scores that become 0 and 1 in aggregates over games."""

from collections.abc import Iterable
from dataclasses import dataclass

from rigor.report.data import published
from rigor.report.data.runs import RunRecord, is_atari, is_minatar

_PEOPLE = "human play"
_DQN = "DQN after 5 million frames (Young and Tian 2019)"
_SHORT = {_PEOPLE: "human", _DQN: "DQN"}


@dataclass(frozen=True)
class ScoreScale:
    """The score of random play, the score that becomes 1, and whose that is."""

    random: float
    reference: float
    player: str


def atari_game(run: RunRecord) -> str | None:
    """Return the Atari game of a run, or None if it has no published scores."""
    game = run.settings.get("env.game") if is_atari(run) else None
    return str(game) if game in published.atari().index else None


def score_scale(run: RunRecord) -> ScoreScale | None:
    """Return the scale of a run's scores, or None if its game has none."""
    if game := atari_game(run):
        row = published.atari().loc[game]
        return ScoreScale(float(row["random"]), float(row["human"]), _PEOPLE)
    if is_minatar(run):
        row = published.minatar().loc[str(run.settings["env.game"])]
        return ScoreScale(float(row["random"]), float(row["dqn"]), _DQN)
    return None


def meaning(scales: Iterable[ScoreScale]) -> str:
    """Return what 0 and 1 are: `0 is random play and 1 human play`."""
    players = dict.fromkeys(scale.player for scale in scales)
    if len(players) < 2:
        return f"0 is random play and 1 {''.join(players)}"
    return f"0 is random play and 1 {_PEOPLE} on Atari, {_DQN} on MinAtar"


def short(scales: Iterable[ScoreScale]) -> str:
    """Return the player whose score is 1 in one word, for an axis."""
    players = dict.fromkeys(scale.player for scale in scales)
    return _SHORT[next(iter(players))] if len(players) == 1 else "reference"
