"""Published numbers that stand beside ours: a reference, never a bar, for protocols differ.

`atari_scores.csv`: `random` and `human` are the table published with DQN Zoo (undiscounted scores
of at least 3 games, 1 to 30 no-ops at the start, at most 108,000 frames). `dopamine_*` are those of
Dopamine's published runs: mean and standard deviation over 5 seeds of the training returns at 36 to
40 million frames (sticky actions, no end at a lost life; QR-DQN with 3-step returns and prioritised
replay, DQN with Adam and the squared error). `in_paper_50` marks the games of the paper: the 57
less the five that it names and less Defender and Surround, which is inferred.

`wealth_scores.csv`: the paper's tables of goal-based wealth management. Its objective follows from
its probabilities for the mean, d_{T/2} u_{T/2} P_early + d_T u_T P_late; for CVaR they only bound
it from above.
"""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Figures 4 and 6 of the paper: games won of 50, mean and median improvement in percent.
PAPER_IMPROVEMENT = {
    "time_inconsistent": (39, 39.89, 18.14),
    "time_aware": (33, 15.73, 8.02),
}

_PAPER_WEALTH = {  # what the paper's problem has, beside the horizon and the late utility
    "env.wealth": 100,
    "env.early_cost": 100,
    "env.early_utility": 1000,
    "env.late_cost": 150,
}


@cache
def atari() -> "pd.DataFrame":
    """Return the published Atari scores by game."""
    return _table("atari_scores.csv").set_index("game")


def wealth(choices: dict[str, str], settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the paper's row for a run of wealth management, None where it has none.

    Args:
      choices: of the run's groups. settings: its config by dotted key.
    """
    if any(settings.get(key) != value for key, value in _PAPER_WEALTH.items()):
        return None
    risk = choices["risk"]
    if risk == "cvar" and settings.get("risk.tau") != 0.1:
        return None
    discounts = {
        "exponential": f"gamma={settings.get('discount.gamma')}",
        "hyperbolic": f"k={settings.get('discount.k')}",
    }
    table = _table("wealth_scores.csv")
    row = table[
        (table["periods"] == settings.get("env.periods"))
        & (table["late_utility"] == settings.get("env.late_utility"))
        & (table["risk"] == risk)
        & (table["discount"] == discounts.get(choices["discount"]))
    ]
    return row.iloc[0].to_dict() if len(row) else None


@cache
def _table(name: str) -> "pd.DataFrame":
    import pandas as pd

    with (files("rigor.report") / name).open() as file:
        return pd.read_csv(file)
