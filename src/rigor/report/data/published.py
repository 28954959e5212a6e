"""Published scores, for reference only: their protocols differ from ours.

`atari_scores.csv`: `random` and `human` are from the table published with DQN Zoo (undiscounted
scores of at least 3 episodes, 1 to 30 no-ops at the start, at most 108,000 frames). `dopamine_*`
are from Dopamine's published runs: mean and standard deviation over 5 seeds of the training scores
at 36 to 40 million frames (sticky actions, no end at a lost life; QR-DQN with 3-step returns and
prioritised replay, DQN with Adam and the squared error). `in_paper_50` marks the 50 games of the
paper: the 57 games without the five that the paper names, and without Defender and Surround. The
paper does not name the last two; we infer them.

`dopamine_curves.csv`: training returns of Dopamine's agents on 55 games, mean and standard
deviation over 5 seeds (4 of some), of each of the first twenty million frames and of the 50th,
100th and 200th; from `baselines/atari/data` of google/dopamine (Apache-2.0, commit 5873f549),
agents in JAX with the network of Mnih et al. (2015), rounded to four digits. A million's value is
the mean return of the training episodes that ended in it.

`minatar_scores.csv`: `dqn` is that of Young and Tian (2019) after 5 million frames, the mean of 30
runs read off their plot. `random` is ours: the mean of 1,000 games of random actions as in
`env=minatar/GAME`, 1 December 2026.

`wealth_scores.csv`: the paper's tables 3 (mean) and 4 (CVaR) of goal-based wealth management. Each
row is a Monte Carlo estimate over 10,000 episodes and 3 runs, printed without an interval.
`scaling` is the scaling that the row's numbers fit (erratum E26); at 10 periods both scalings are
equal. For the mean, the objective follows from the probabilities:
d_{T/2} u_{T/2} P_early + d_T u_T P_late. For CVaR, the probabilities only bound it from above.
"""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Figures 4 and 6 of the paper: improved games of 50, mean and median improvement in percent.
PAPER_IMPROVEMENT = {
    "time_inconsistent": (39, 39.89, 18.14),
    "time_aware": (33, 15.73, 8.02),
}

_PAPER_WEALTH = {  # settings of every row; the horizon and the late utility vary
    "env.wealth": 100,
    "env.early_cost": 100,
    "env.early_utility": 1000,
    "env.late_cost": 150,
}


@cache
def atari() -> "pd.DataFrame":
    """Return the published Atari scores by game."""
    return _table("atari_scores.csv").set_index("game")


@cache
def minatar() -> "pd.DataFrame":
    """Return the scores of random play and of DQN by game of MinAtar."""
    return _table("minatar_scores.csv").set_index("game")


@cache
def dopamine_curves() -> "pd.DataFrame":
    """Return the mean and the standard deviation of each game, agent and million of frames."""
    import pandas as pd

    wide = _table("dopamine_curves.csv")
    long = pd.wide_to_long(wide, ["mean", "sd"], ["game", "agent"], "million", sep="_")
    return long.sort_index().reset_index()


@cache
def wealth_table() -> "pd.DataFrame":
    """Return the 12 rows of the paper's table 3 and the 8 of its table 4."""
    return _table("wealth_scores.csv")


def wealth_key(choices: dict[str, str], settings: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return (T, u_T, risk, discount) of a run in the words of the paper's tables.

    None if the tables do not have the run's problem or risk. They may lack its discount.

    Args:
      choices: the run's option of each config group. settings: its config by dotted key.
    """
    if any(settings.get(key) != value for key, value in _PAPER_WEALTH.items()):
        return None
    periods, late = settings.get("env.periods"), settings.get("env.late_utility")
    if periods not in (10, 30) or late not in (1000, 2000):
        return None
    risk = choices["risk"]
    if risk != "mean" and (risk != "cvar" or settings.get("risk.tau") != 0.1):
        return None
    discounts = {
        "exponential": f"gamma={_short(settings.get('discount.gamma'))}",
        "hyperbolic": f"k={_short(settings.get('discount.k'))}",
    }
    discount = discounts.get(choices["discount"], choices["discount"])
    return int(periods), int(late), risk, discount


def wealth(choices: dict[str, str], settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the paper's row for a run of wealth management, or None.

    Args:
      choices: the run's option of each config group. settings: its config by dotted key.
    """
    key = wealth_key(choices, settings)
    rows = wealth_table().set_index(["periods", "late_utility", "risk", "discount"], drop=False)
    return rows.loc[key].to_dict() if key in rows.index else None


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


@cache
def _table(name: str) -> "pd.DataFrame":
    import pandas as pd

    with (files("rigor.report.data") / name).open() as file:
        return pd.read_csv(file)
