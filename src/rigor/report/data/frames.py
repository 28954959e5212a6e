"""A whole sweep as one DataFrame: `rigor.load_sweep(directory)`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def load_sweep(directory: str | Path, *, metrics: bool = False) -> "pd.DataFrame":
    """Return the runs of a sweep, or of a directory of runs, as one DataFrame.

    Without `metrics` there is a row for each run, finished or not: `run` (its directory's name),
    `state`, `step`, the choices `env`, `agent`, `discount`, `risk` and `variant`, `seed`, every
    setting by its dotted key, and every number of `result.json` by its name (NaN before the end).
    With `metrics` there is a row for each log point of each run: the columns of `metrics.csv`
    after `run`, the choices, `seed` and the settings that differ between the runs.

        frame = rigor.load_sweep("runs/sweeps/NAME")
        frame.groupby("variant").score.agg(["mean", "sem", "count"])

    Args:
      directory: of a sweep (`OUT/sweeps/NAME`), of runs (`OUT`), or of one run.

    Raises:
      UserError: the directory is missing or holds no runs, or a manifest cannot be read.
    """
    import pandas as pd

    from rigor.report.data.runs import find, load

    records = [load(path) for path in find([Path(directory).expanduser()])]
    heads: list[dict[str, Any]] = [
        {"run": record.path.name, **record.choices, "seed": record.seed} for record in records
    ]
    settings = [{k: v for k, v in r.settings.items() if k != "seed"} for r in records]
    if metrics:
        return _log_points([record.path for record in records], heads, settings)
    return pd.DataFrame(
        [
            head | {"state": record.state, "step": record.step} | own | record.result
            for head, record, own in zip(heads, records, settings, strict=True)
        ]
    )


def _log_points(
    paths: list[Path], heads: list[dict[str, Any]], settings: list[dict[str, Any]]
) -> "pd.DataFrame":
    """Return the rows of all metrics files behind what tells the runs apart."""
    import pandas as pd

    from rigor.runs.metrics import read

    keys = dict.fromkeys(key for own in settings for key in own)
    differing = [key for key in keys if len({str(own.get(key)) for own in settings}) > 1]
    frames = []
    for path, head, own in zip(paths, heads, settings, strict=True):
        rows = read(path / "metrics.csv")
        shown = head | {key: own.get(key) for key in differing}
        for place, (name, value) in enumerate(shown.items()):
            # a list, since a value may be a list itself
            rows.insert(place, name, pd.Series([value] * len(rows), index=rows.index))
        frames.append(rows)
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(heads[0]))
