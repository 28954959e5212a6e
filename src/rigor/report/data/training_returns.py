"""Training returns of Atari runs by million of frames, as Dopamine publishes them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.atari import PROTOCOLS
from rigor.report.data.runs import RunRecord, is_atari

if TYPE_CHECKING:
    import pandas as pd

_MILLION = 1e6
_ALSO = {"max_frames": 108_000, "frame_skip": 4}  # of Dopamine's games; no protocol sets these keys

LEARNING = (
    "Dopamine clips rewards to [−1, 1] for learning, and its values are of one exponential horizon "
    "with γ = .99; its QR-DQN learns 200 quantiles from three-step returns and prioritised replay, "
    "its DQN from one-step returns."
)


def by_million(training: "pd.DataFrame") -> "pd.Series":
    """Return the mean score of the episodes that ended in each whole million of frames.

    Args:
      training: that of a `RunRecord`: `frames`, `episodes` (so far) and `train_score` (the mean of
        the episodes since the row before).

    Returns:
      Means by million, 1 for the first; a million without an end of an episode is left out. A row
      counts in the million in which it ends.
    """
    import pandas as pd

    frames = training["frames"].to_numpy(dtype=float)
    counts = np.diff(training["episodes"].to_numpy(dtype=float), prepend=0.0)
    million = np.ceil(frames / _MILLION).astype(int)
    whole = million <= (frames.max() // _MILLION if len(frames) else 0)
    table = pd.DataFrame(
        {"million": million, "n": counts, "sum": counts * training["train_score"].to_numpy()}
    )[whole]
    sums = table[table["n"] > 0].groupby("million")[["n", "sum"]].sum()
    return sums["sum"] / sums["n"]


def is_comparable(run: RunRecord) -> bool:
    """Tell whether a run is an Atari run that has finished a million frames of training."""
    return is_atari(run) and not by_million(run.training).empty


def differences(settings: dict[str, Any]) -> list[str]:
    """Return the settings of a run's environment that differ from Dopamine's, as `key=value`."""
    theirs = {**PROTOCOLS["dopamine"], **_ALSO}
    own = {key: settings.get(f"env.{key}", value) for key, value in theirs.items()}
    return [
        f"env.{key}={own[key]} (theirs {theirs[key]})" for key in theirs if own[key] != theirs[key]
    ]
