"""A run directory: named by the chosen options and a hash, and used by one run only.

    config.yaml   the composed config            status.json   state, times, step, host, error
    metrics.csv   one row per log point          result.json   the final numbers
    checkpoints/  atomic, the last k             train.log     and the traceback if there is one
    job.json      only in a sweep: the working directory of the command, for a worker

`RunDirectory(path)` reads a directory without a lock; the process that executes the run calls
`RunDirectory.open(...)`.
"""

import contextlib
import math
import os
import shutil
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rigor.errors import UserError
from rigor.runs import disk
from rigor.runs.config_file import read_config, read_name
from rigor.runs.disk import append_text, as_json, as_yaml, atomic_write, disk_errors
from rigor.runs.identity import config_hash, difference
from rigor.runs.lock import Lock
from rigor.runs.metrics import last_values
from rigor.runs.read_json import STATES, fits, read_object, status_problem

SILENT = 300.0
"""Seconds without an update after which a run is lost if its lock is no evidence."""

_HASH_DIGITS = 12  # in a message
_WHILE_RUNNING = ("steps_per_second", "seconds_left")


class TakenOver(UserError):
    """Another process has begun to work on a run; this one must write nothing more."""


def shown(state: str) -> str:
    """Return the word for a state in tables: a run is stopped whoever sent the signal."""
    return "stopped" if state == "preempted" else state


def described(state: str, error: str | None) -> str:
    """Return a state with its reason, such as `failed: no space left` or `stopped by SIGTERM`."""
    word = shown(state)
    if not error:
        return word
    return error if error.startswith(word) else f"{word}: {error}"


class RunDirectory:
    """The files of one run, which the module's docstring lists."""

    def __init__(self, path: Path | str) -> None:
        """Point at a directory, which need not exist; nothing is locked or created."""
        self.path = Path(path)
        self._lock = Lock(self.path)
        self._runs = False  # whether this object has written that the run is running
        # the task that it wrote then, because a status may break and be written anew
        self._task: dict[str, Any] = {}
        self._made: list[Path] = []  # the directories that `open` made, this one first

    @classmethod
    def open(cls, path: Path | str, config: Mapping[str, Any], digest: str) -> Self:
        """Create or reopen the directory of the run with this config, and lock it.

        Args:
          path: the directory; its parents are created too.
          config: the resolved config as plain containers; it is written to `config.yaml`.
          digest: `config_hash(config)`.

        Raises:
          UserError: the directory holds a run with another hash, is locked by a live process, or
            cannot be written. The lock of a dead process does not count.
        """
        run = cls(path)
        with disk_errors(run.path):
            made = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
            run.path.mkdir(parents=True, exist_ok=True)
        run._lock.acquire()
        run._made = [] if run.config_path.exists() else made
        try:
            run.refuse_another(config, digest)
            run._write_config(config, digest)
        except BaseException:
            run.close()
            raise
        return run

    @property
    def config_path(self) -> Path:
        """The composed config."""
        return self.path / "config.yaml"

    @property
    def metrics_path(self) -> Path:
        """One CSV row per log point."""
        return self.path / "metrics.csv"

    @property
    def log_path(self) -> Path:
        """Progress as plain lines, warnings, and the traceback of a failure."""
        return self.path / "train.log"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints; learning agents create it."""
        return self.path / "checkpoints"

    def config(self) -> dict[str, Any]:
        """Return the config as plain containers; a missing or broken file raises a `UserError`."""
        return read_config(self.config_path)

    def name(self) -> str:
        """Return the run's name: that in its config, which a renamed directory keeps."""
        return read_name(self.config_path) or self.path.resolve().name

    def refuse_another(self, config: Mapping[str, Any], digest: str) -> None:
        """Raise a `UserError` if the directory holds a run of another config.

        A run that has gone past its schedule cannot change `train.restart_schedule`, which is
        outside the hash so that a finished run can be extended with it.
        """
        if not self.config_path.exists():
            return
        there = self.config()
        if config_hash(there) == digest:
            self._refuse_other_restarts(there, config)
            return
        raise UserError(
            f"{self.path}: holds a run of another config, hash {config_hash(there)[:_HASH_DIGITS]} "
            f"there and {digest[:_HASH_DIGITS]} here ({difference(there, config)}); "
            f"{disk.way_out}, or move that directory away"
        )

    def _refuse_other_restarts(self, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        train, before = here.get("train") or {}, there.get("train") or {}
        restarts, restarted = (bool(one.get("restart_schedule")) for one in (train, before))
        step = (self.status() or {}).get("step", 0)
        if restarts != restarted and step > train.get("schedule_steps", step):
            raise UserError(
                f"{self.path}: train.restart_schedule={restarts}, but this run has already gone "
                f"past train.schedule_steps={train['schedule_steps']} with {restarted}; keep "
                f"that, or {disk.way_out}"
            )

    def is_unused(self) -> bool:
        """Return whether the run has neither a row of metrics nor a checkpoint."""
        return not self._has_metrics() and not any(self.checkpoints.glob("step_*"))

    def remove_unused(self) -> None:
        """Remove the directory if this process made it and the run did not begin.

        So a refused environment, network or device leaves nothing behind. Call this with the lock.
        """
        if not self._made or not self.is_unused():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # a parent that has other files stays
            for folder in self._made[1:]:
                folder.rmdir()

    def status(self) -> dict[str, Any] | None:
        """Return `status.json`, or None when it is missing or broken.

        It is broken, too, if a value is none that a run writes, such as a step of null.
        """
        found = read_object(self.path / "status.json")
        return None if found is None or status_problem(found) else found

    def problem(self) -> str | None:
        """Return why the files do not tell the run's state, one line, or None."""
        path = self.path / "status.json"
        found = read_object(path)
        if found is None:
            return "status.json is broken" if path.exists() else None
        if wrong := status_problem(found):
            return f"status.json is broken ({wrong})"
        if found.get("state") == "done" and not self.result():
            return (
                "the run is done, but result.json is missing or broken; the same command, or "
                "rigor-eval RUN --final, writes it again"
            )
        return None

    def write_status(self, state: str, **fields: Any) -> None:
        """Update `status.json` atomically with a state, the given fields and the time.

        `started` is the time of the first state `running`. `error` is removed unless it is given;
        `steps_per_second` and `seconds_left` are removed unless the state is `running`. `host` and
        `pid` are those of the process that wrote, but a run that is queued while another process
        may still run it keeps that process's. `task` is SLURM's id of its task, and `restarts` how
        often that had been started again. Step counts are agent steps; times are ISO 8601 in UTC.

        Raises:
          TakenOver: this process ran the run, but another one has since queued or started it.
        """
        if state not in STATES:
            raise ValueError(f"state={state!r}: one of {', '.join(STATES)}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before = self.status() or {}
        mine: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid()}
        if self._runs and before:
            self._refuse_another_process(before, mine)
        if state == "queued":
            may_live = before.get("state") in ("queued", "running")
            mine = {key: before.get(key) if may_live else None for key in mine}
        status = {"state": state, "started": None, "updated": None, "step": 0, "steps_total": None}
        status |= before
        if state != "running":
            status |= dict.fromkeys(_WHILE_RUNNING)
        self._task |= {key: fields[key] for key in ("task", "restarts") if key in fields}
        status |= {"state": state, **mine, **self._task, "error": None}
        status |= fields
        status["updated"] = now
        if state != "queued":
            status["started"] = status["started"] or now
        atomic_write(self.path / "status.json", as_json(status))
        self._runs = state == "running"

    def state(self) -> str:
        """Return the state in `status.json`, or `lost`.

        A run is lost if its status is `running` but no process holds its lock, or if its
        directory, its status or the result of a done run is gone or broken. Some file systems have
        no locks, and some locks do not reach other machines; there a run is lost if its status is
        older than `SILENT` seconds.
        """
        status = self.status()
        if status is None or "state" not in status:
            begun = not self.path.is_dir() or self._has_metrics() or self.problem() is not None
            return "lost" if begun and not self.is_locked() else "queued"
        state = str(status["state"])
        if state == "done" and not self.result():
            return "lost"
        locked = self.is_locked()
        if state != "running" or locked:
            return state
        unknown = locked is None or status.get("host") != socket.gethostname()
        return state if unknown and self._silence(status) < SILENT else "lost"

    def is_done(self, steps: int) -> bool:
        """Return whether the run finished with at least `steps` agent steps, and has its files.

        Without its config or its result it is not done; the same command then writes them again.
        """
        status = self.status()
        if status is None or status.get("state") != "done" or status.get("step", 0) < steps:
            return False
        return self.config_path.exists() and bool(self.result())

    def result(self) -> dict[str, Any] | None:
        """Return `result.json`, or None when it is missing or broken."""
        found = read_object(self.path / "result.json")
        return found if found is not None and fits(found) else None

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json` atomically; numbers that are not finite become null."""
        atomic_write(self.path / "result.json", as_json(result))

    def write_traceback(self, text: str) -> None:
        """Append the traceback of a failure to `train.log`."""
        append_text(self.log_path, text)

    def is_locked(self) -> bool | None:
        """Return whether a live process (perhaps this one) runs in the directory; None: unknown."""
        return self._lock.is_held()

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        self._lock.release()

    def __enter__(self) -> Self:
        """Return the directory itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lock."""
        self.close()

    def _silence(self, status: Mapping[str, Any]) -> float:
        """Return the seconds since the last update of the status.

        The clock that stamped the text and the one that stamped the file may both differ from this
        machine's; the shorter time counts, so that no live run looks lost for one wrong clock.
        """
        try:
            written = (self.path / "status.json").stat().st_mtime
        except OSError:
            written = -math.inf
        return min(_age(status.get("updated")), time.time() - written)

    def _refuse_another_process(self, status: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
        there = {key: status.get(key) for key in mine}
        if status.get("state") != "queued" and there == mine:
            return
        who = (
            "it was queued again"
            if status.get("state") == "queued"
            else (f"process {there['pid']} on {there['host']} works on it")
        )
        raise TakenOver(f"{self.path}: {who}; this process ends without saving")

    def _has_metrics(self) -> bool:
        try:
            return bool(last_values(self.metrics_path))
        except UserError:
            return False

    def _write_config(self, config: Mapping[str, Any], digest: str) -> None:
        text = f"# config hash: {digest}\n{as_yaml(config)}"
        if not self.config_path.exists() or self.config_path.read_bytes() != text.encode():
            atomic_write(self.config_path, text)


def _age(stamp: Any) -> float:
    """Return the seconds since an ISO 8601 time, or infinity if it is not one."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(str(stamp))).total_seconds()
    except (ValueError, TypeError):
        return math.inf
