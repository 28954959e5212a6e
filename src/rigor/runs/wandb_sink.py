"""A copy of the metrics file in Weights & Biases; its failures do not stop the run."""

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rigor.config.schemas import Tracker
from rigor.errors import UserError
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import atomic_write
from rigor.runs.job import wandb_names
from rigor.runs.lock import Lock
from rigor.runs.metrics import read
from rigor.runs.wandb_login import has_key
from rigor.runs.wandb_record import RECORDED, MirrorRecord

_BEST = ("eval_score", "eval_objective", "train_score")  # the summary also keeps their best values
_OF_ONE_RUN = (
    "WANDB_RUN_ID",
    "WANDB_SWEEP_ID",  # W&B would choose an id for each session of a run
    "WANDB_RESUME",
    "WANDB_RESUME_FROM",
    "WANDB_FORK_FROM",
)
"""Variables of W&B that would make several runs one, or one run several."""

_TAG_LIMIT = 64  # characters; W&B refuses longer ones


class Sink:
    """Sends the rows of the metrics file to W&B; a sink without a W&B run does nothing.

    The first failure of W&B is reported once, and ends the copy.
    """

    def __init__(
        self,
        run: Any,
        folder: Path,
        note: Callable[[str], None],
        problem: str = "",
        episodes: bool = False,
        record: MirrorRecord | None = None,
    ) -> None:
        """Take a W&B run or None.

        Evaluation scores are also sent as `score/PROBLEM`: a panel of W&B shows one metric of all
        runs, and scores of different problems have no common axis.

        Args:
          folder: the run directory.
          note: writes a line on the console and into `train.log`.
          problem: name of the run's problem. episodes: whether to send tables of episodes.
          record: is told which rows W&B has received.
        """
        self._run = run
        self._folder, self._note = folder, note
        self._own_score = f"score/{problem}"
        self._episodes = episodes
        self._record = record
        self._steps = -1  # of the last row

    @property
    def active(self) -> bool:
        """Whether rows are still sent."""
        return self._run is not None

    def log(self, row: Mapping[str, Any]) -> None:
        """Send one row of the metrics file without its empty cells."""
        if self._run is None:
            return
        try:
            logged = {key: value for key, value in row.items() if value is not None}
            if "eval_score" in logged:
                logged[self._own_score] = logged["eval_score"]
            self._run.log(logged)
            self._steps = int(row["steps"])
        except Exception as error:  # the run continues without W&B, whatever its error
            self._give_up(error)

    def catch_up(self) -> None:
        """Send the rows of the metrics file that W&B has not surely received.

        A killed session leaves such rows. Call this when the metrics file has been opened.
        """
        if self._run is None or self._record is None:
            return
        frame = read(self._folder / "metrics.csv")
        if "steps" in frame:
            missing = frame[frame["steps"] > self._record.steps]
            for row in missing.to_dict("records"):
                self.log({key: value for key, value in row.items() if value == value})  # not NaN

    def log_episodes(self, steps: int, columns: Mapping[str, Sequence[float]]) -> None:
        """Send a table of one evaluation, one row for each episode, if the user asked for tables.

        Args:
          steps: agent steps of training before the evaluation.
          columns: name, and value of each episode, all [K].
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
        """Close the W&B run; the numbers and texts of `result` become its summary.

        Call this in a `finally` block.
        """
        if self._run is None:
            return
        try:
            # only result.json has lists and versions; W&B's table of runs has no columns for them
            summary = {k: v for k, v in result.items() if isinstance(v, int | float | str)}
            if "score" in summary:
                summary[self._own_score] = summary["score"]
            self._run.summary.update(_best(self._folder / "metrics.csv") | summary)
            self._run.finish(exit_code=exit_code)
            if self._record is not None:
                self._record.end(Path(self._run.dir).parent.name, self._steps)
        except Exception as error:  # as in `log`
            self._give_up(error)
        self._run = None

    def _give_up(self, error: Exception) -> None:
        self._run = None
        _forget_service()
        _warn(self._note, f"no longer mirrored ({_short(error)})")


def open_sink(
    tracker: Tracker,
    run_directory: Path | str,
    config: Mapping[str, Any],
    names: Mapping[str, Any],
    note: Callable[[str], None],
) -> Sink:
    """Return the sink that `tracker` asks for.

    Args:
      tracker: the user's choice.
      run_directory: W&B's own files go to `wandb/` in it.
      config: shown by W&B as the run's config: the resolved config as plain containers, and other
        facts about the run.
      names: `group`, `name`, `tags`, `job_type` and `problem`. The id is kept in the run directory,
        so that a resumed run stays one run in W&B.
      note: writes a line on the console and into `train.log`, for failures of W&B.

    Raises:
      UserError: the mode is online and there is no key; W&B would prompt for it.
    """
    folder = Path(run_directory).absolute()
    if tracker.name == "none":
        return Sink(None, folder, note)
    mode = _mode(tracker)
    try:
        run, record = _init(tracker.project, mode, folder, config, names, note)
        return Sink(run, folder, note, names["problem"], tracker.episodes, record)
    except Exception as error:  # the run continues without W&B, whatever its error
        _forget_service()
        _warn(note, f"not mirrored ({_short(error)})")
        return Sink(None, folder, note)


def mirror_again(path: Path) -> None:
    """Write the rows of a run that W&B lacks into new offline files, from its metrics file.

    Raises:
      UserError: the config cannot be read, or a process runs in the directory.
    """
    run = RunDirectory(path)
    plain, status, result = run.config(), run.status() or {}, run.result() or {}
    names = wandb_names(plain, plain.get("sweep"))
    source = {"commit": status.get("commit"), "versions": result.get("versions")}
    described = plain | source | {"choices": names["choices"]}
    kept = plain["tracker"]
    tracker = Tracker("wandb", "offline", kept["project"], kept["episodes"])
    done = run.state() == "done"
    lock = Lock(path)
    lock.acquire()
    try:
        sink = open_sink(tracker, path, described, names, print)
        sink.catch_up()
        sink.finish(0 if done else 1, result if done else {})
    finally:
        lock.release()


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
    project: str,
    mode: str,
    folder: Path,
    config: Mapping[str, Any],
    names: Mapping[str, Any],
    note: Callable[[str], None],
) -> tuple[Any, MirrorRecord | None]:
    # W&B would silently write to a temporary directory if it could not write here.
    (folder / "wandb").mkdir(exist_ok=True)
    if not os.access(folder / "wandb", os.W_OK | os.X_OK):
        raise PermissionError(f"{folder / 'wandb'} is not writable")

    record = MirrorRecord.read(folder) or MirrorRecord(folder / "wandb", mode)
    record.mode = mode
    if mode in RECORDED:
        record.begin()
    for name in [name for name in _OF_ONE_RUN if name in os.environ]:
        # before W&B is imported, as it keeps what it has read
        value = os.environ.pop(name)
        note(f"W&B: {name}={value} is ignored: every run has an id of its own, in wandb/id")

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
        mode=mode,  # type: ignore[arg-type]  # W&B checks the text of WANDB_MODE
        reinit="finish_previous",
        # Offline this is only recorded; without it `wandb sync` would overwrite the first rows with
        # those of a resumed run.
        resume="allow",
        settings=wandb.Settings(
            silent=True,
            git_commit=config.get(
                "commit"
            ),  # of rigor; W&B would take that of the working directory
            console="off",
            disable_git=True,
            disable_code=True,
            x_save_requirements=False,
        ),
    )
    # `*` stands for all other metrics, whose summary is their last value
    run.define_metric("steps")
    run.define_metric("frames", step_metric="steps")
    run.define_metric("*", step_metric="steps")
    for name in _BEST:
        run.define_metric(name, step_metric="steps", summary="max,last")
    return run, record if mode in RECORDED else None


def _best(path: Path) -> dict[str, dict[str, float]]:
    """Return the best and last values of `_BEST`; W&B only knows those since the last resume."""
    frame = read(path)
    columns = {name: frame[name].dropna() for name in _BEST if name in frame}
    return {
        name: {"max": float(column.max()), "last": float(column.iloc[-1])}
        for name, column in columns.items()
        if len(column)
    }


def _forget_service() -> None:
    """Stop W&B's background process, so that a later run of this process gets a working one.

    A dead background process would also print a traceback when the program exits.
    """
    wandb = sys.modules.get("wandb")
    if wandb is not None:
        with contextlib.suppress(Exception):  # its failure was reported already
            wandb.teardown(exit_code=1)


def _kept_id(folder: Path) -> str:
    path = folder / "wandb" / "id"
    with contextlib.suppress(FileNotFoundError):
        if kept := path.read_text().strip():
            return kept
    made = uuid.uuid4().hex[:12]
    atomic_write(path, made + "\n")
    return made


def _warn(note: Callable[[str], None], problem: str) -> None:
    with contextlib.suppress(UserError):  # other writers report a full disk
        note(f"W&B: {problem}; metrics.csv has everything")


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
