"""A mirror of the metrics file in Weights & Biases, which may fail without hurting the run."""

import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from rigor.errors import UserError
from rigor.tracking.disk import append_text, atomic_write
from rigor.tracking.metrics import read
from rigor.tracking.wandb_login import has_key

_LOG = logging.getLogger("rigor")
_NAMES = ("none", "wandb")
_MODES = ("auto", "online", "offline")
_BEST = ("eval_score", "eval_objective", "train_score")  # of which the summary keeps the best too
_TAG_LIMIT = 64  # characters; W&B refuses longer ones


@dataclass
class Tracker:
    """Where metrics are mirrored.

    Attributes:
      name: `none` or `wandb`.
      mode: `auto` is what WANDB_MODE says, else online when there is a key and offline when not;
        `online` and `offline` say so themselves.
      project: the W&B project.
      episodes: whether every evaluation also leaves a table of its games.
    """

    name: str = MISSING
    mode: str = MISSING
    project: str = MISSING
    episodes: bool = MISSING

    def __post_init__(self) -> None:
        """Refuse a name or a mode that does not exist."""
        for key, value, choices in (("name", self.name, _NAMES), ("mode", self.mode, _MODES)):
            if value != MISSING and value not in choices:
                raise ValueError(f"tracker.{key}={value}: one of {', '.join(choices)}")


class Sink:
    """Receives the rows of the metrics file; the null sink has no W&B run and does nothing.

    The first failure of W&B is told once, in `train.log` and on the console, and ends the mirror.
    """

    def __init__(self, run: Any, log_path: Path, problem: str = "", episodes: bool = False) -> None:
        """Take a W&B run, or None, the name of its problem, and whether it gets tables of episodes.

        Evaluation scores go to `score/PROBLEM` too: a panel of W&B shows a metric of all runs, and
        scores of different games have no common axis.
        """
        self._run = run
        self._log_path = log_path
        self._own_score = f"score/{problem}"
        self._episodes = episodes

    @property
    def active(self) -> bool:
        """Whether rows still go anywhere."""
        return self._run is not None

    def log(self, row: Mapping[str, Any]) -> None:
        """Mirror one row of the metrics file; empty cells are left out."""
        if self._run is None:
            return
        try:
            told = {key: value for key, value in row.items() if value is not None}
            if "eval_score" in told:
                told[self._own_score] = told["eval_score"]
            self._run.log(told)
        except Exception as error:  # whatever breaks in W&B, the run goes on without it
            self._give_up(error)

    def log_episodes(self, steps: int, columns: Mapping[str, Sequence[float]]) -> None:
        """Log the table of one evaluation, a row a game, where the user asked for tables.

        Args:
          steps: agent steps of training before the evaluation.
          columns: name and value of each game, all [K].
        """
        if self._run is None or not self._episodes:
            return
        try:
            import wandb

            cells = [[float(value) for value in column] for column in columns.values()]
            rows = [list(row) for row in zip(*cells, strict=True)]
            table = wandb.Table(columns=list(columns), data=rows)
            self._run.log({"steps": steps, "eval_episodes": table})
        except Exception as error:  # as in `log`
            self._give_up(error)

    def finish(self, exit_code: int, result: Mapping[str, Any]) -> None:
        """Close the W&B run; the numbers and words of `result` become its summary.

        Call it in a `finally`.
        """
        if self._run is None:
            return
        try:
            # lists and versions stand in result.json; a table of runs has no column for them
            told = {k: v for k, v in result.items() if isinstance(v, int | float | str)}
            if "return_mean" in told:
                told[self._own_score] = told["return_mean"]
            self._run.summary.update(_best(self._log_path.with_name("metrics.csv")) | told)
            self._run.finish(exit_code=exit_code)
        except Exception as error:  # as in `log`
            self._give_up(error)
        self._run = None

    def _give_up(self, error: Exception) -> None:
        self._run = None
        _forget_service()
        _warn(self._log_path, f"no longer mirrored ({_short(error)})")


def open_sink(
    tracker: Tracker,
    run_directory: Path | str,
    config: Mapping[str, Any],
    names: Mapping[str, Any],
) -> Sink:
    """Return the sink that `tracker` asks for.

    Args:
      tracker: the user's choice.
      run_directory: W&B's own files go to `wandb/` in it.
      config: what W&B shows as the run's config: the resolved one as plain containers, and what
        else describes the run.
      names: `group`, `name`, `tags`, `job_type` and `problem`. The id is made once and kept in the
        run directory, so that a resumed run stays one run.

    Raises:
      UserError: online is asked for and there is no key; W&B would stop to ask for it.
    """
    folder = Path(run_directory).absolute()
    log_path = folder / "train.log"
    if tracker.name == "none":
        return Sink(None, log_path)
    mode = _mode(tracker)
    try:
        run = _init(tracker.project, mode, folder, config, names)
        return Sink(run, log_path, names["problem"], tracker.episodes)
    except Exception as error:  # whatever breaks in W&B, the run goes on without it
        _forget_service()
        _warn(log_path, f"not mirrored ({_short(error)})")
        return Sink(None, log_path)


def _mode(tracker: Tracker) -> str:
    mode, source = tracker.mode, "tracker.mode"
    if mode == "auto":
        mode, source = os.environ.get("WANDB_MODE", ""), "WANDB_MODE"
    if mode == "online" and not has_key():
        raise UserError(
            f"{source}=online: there is no W&B key; run `wandb login`, set WANDB_API_KEY, "
            "or choose tracker.mode=offline and `rigor-sync` later"
        )
    return mode or ("online" if has_key() else "offline")


def _init(
    project: str, mode: str, folder: Path, config: Mapping[str, Any], names: Mapping[str, Any]
) -> Any:
    # W&B writes to a temporary directory when it cannot write here, and says so to nobody.
    (folder / "wandb").mkdir(exist_ok=True)
    if not os.access(folder / "wandb", os.W_OK | os.X_OK):
        raise PermissionError(f"{folder / 'wandb'} is not writable")

    import wandb

    run = wandb.init(
        project=project,
        dir=str(folder),
        config=dict(config),
        id=_kept_id(folder),
        group=names["group"],
        name=names["name"],
        tags=[tag[:_TAG_LIMIT] for tag in names["tags"]],
        job_type=names["job_type"],
        mode=mode,  # type: ignore[arg-type]  # WANDB_MODE is free text, which W&B checks
        reinit="finish_previous",
        # Offline it does nothing yet, but it is recorded: without it `wandb sync` writes the rows
        # of a later start over those of the first.
        resume="allow",
        settings=wandb.Settings(
            silent=True,
            git_commit=config.get("commit"),  # of rigor; W&B would look where the user stands
            console="off",
            disable_git=True,
            disable_code=True,
            x_save_requirements=False,
        ),
    )
    # `*` is every metric that is not named: its last value is its summary
    run.define_metric("steps")
    run.define_metric("frames", step_metric="steps")
    run.define_metric("*", step_metric="steps")
    for name in _BEST:
        run.define_metric(name, step_metric="steps", summary="max,last")
    return run


def _best(path: Path) -> dict[str, dict[str, float]]:
    """Return the best and the last of each of `_BEST`; W&B's own know only since the last start."""
    frame = read(path)
    columns = {name: frame[name].dropna() for name in _BEST if name in frame}
    return {
        name: {"max": float(column.max()), "last": float(column.iloc[-1])}
        for name, column in columns.items()
        if len(column)
    }


def _forget_service() -> None:
    """Drop W&B's background process, so that a later run of this process gets a working one.

    Left alone, a dead one also ends the program with a traceback at exit.
    """
    wandb = sys.modules.get("wandb")
    if wandb is not None:
        with contextlib.suppress(Exception):  # it is broken; that much is already told
            wandb.teardown(exit_code=1)


def _kept_id(folder: Path) -> str:
    path = folder / "wandb" / "id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = uuid.uuid4().hex[:12]
        atomic_write(path, made + "\n")
        return made


def _warn(log_path: Path, what: str) -> None:
    text = f"W&B: {what}; metrics.csv has everything"
    _LOG.warning(text)
    # The console has the line, and a full disk is told by whoever needs it.
    with contextlib.suppress(UserError):
        append_text(log_path, text)


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
