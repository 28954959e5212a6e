"""A run directory: named by what was chosen, holding a hash of it, and never shared.

    config.yaml   the composed config            status.json   state, times, step, host, error
    metrics.csv   one row per log point          result.json   the final numbers
    checkpoints/  atomic, the last k             train.log     and the traceback if there is one
    job.json      of a member of a sweep: what else a worker needs

`RunDirectory(path)` reads a directory and takes no lock; `RunDirectory.open(...)` is for the one
process that runs in it.
"""

import json
import math
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rigor.errors import UserError
from rigor.tracking.disk import append_text, atomic_write, disk_errors
from rigor.tracking.identity import OUTSIDE_HASH, config_hash, difference, directory_name
from rigor.tracking.lock import Lock
from rigor.tracking.metrics import last_values
from rigor.tracking.provenance import commit, versions

__all__ = [
    "OUTSIDE_HASH",
    "STATES",
    "RunDirectory",
    "atomic_write",
    "commit",
    "config_hash",
    "directory_name",
    "versions",
]

STATES = ("queued", "running", "done", "failed", "preempted")

SILENT = 300.0
"""Seconds without a word after which a run is lost whose lock tells nothing, as one elsewhere."""

_SHOWN = 12  # digits of a hash in a message
_WHILE_RUNNING = ("steps_per_second", "seconds_left")


class RunDirectory:
    """The files of one run; see the module's docstring for what they are."""

    def __init__(self, path: Path | str) -> None:
        """Point at a directory, which need not exist, to read it; nothing is locked or created."""
        self.path = Path(path)
        self._lock = Lock(self.path)

    @classmethod
    def open(cls, path: Path | str, config: Mapping[str, Any], digest: str) -> Self:
        """Create or re-open the directory of the run with this config, and lock it.

        Args:
          path: the directory; its parents are created too.
          config: the resolved config as plain containers; it is written to `config.yaml`.
          digest: `config_hash(config)`.

        Raises:
          UserError: the directory holds a run with another hash, is locked by a live process, or
            cannot be written. A lock left behind by a dead process is no lock.
        """
        run = cls(path)
        with disk_errors(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        run._lock.acquire()
        try:
            run._refuse_another(config, digest)
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
        """The folder of checkpoints, which a learner makes."""
        return self.path / "checkpoints"

    def config(self) -> dict[str, Any]:
        """Return the config as plain containers; a missing or broken file is a `UserError`."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError  # type: ignore[import-untyped, unused-ignore]

        try:
            found = OmegaConf.to_container(OmegaConf.load(self.config_path))
        except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{self.config_path}: not a readable config ({reason})") from error
        if not isinstance(found, dict):
            raise UserError(f"{self.config_path}: not a config, but a {type(found).__name__}")
        return {str(key): value for key, value in found.items()}

    def status(self) -> dict[str, Any] | None:
        """Return `status.json`, or None when it is missing or broken."""
        return _read_json(self.path / "status.json")

    def write_status(self, state: str, **fields: Any) -> None:
        """Write `status.json` whole: what was there, with `fields` and the times on top.

        `started` is the time of the first `running`; `error` is kept only when given, and
        `steps_per_second` and `seconds_left` while it runs. Step counts are agent steps, times ISO
        8601 in UTC.
        """
        if state not in STATES:
            raise ValueError(f"state={state!r}: one of {', '.join(STATES)}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before = self.status() or {}
        status = {"state": state, "started": None, "updated": None, "step": 0, "steps_total": None}
        status |= before
        if state != "running":
            status |= dict.fromkeys(_WHILE_RUNNING)
        status |= {"state": state, "host": socket.gethostname(), "pid": os.getpid(), "error": None}
        status |= fields
        status["updated"] = now
        if state != "queued":
            status["started"] = status["started"] or now
        atomic_write(self.path / "status.json", as_json(status))

    def state(self) -> str:
        """Return what `status.json` says, but `lost` where that cannot be true.

        A run is lost that says it is running while no process holds its lock, and so is one whose
        directory or status is gone. Some file systems have no locks, and locks may not reach from
        one machine to another: where they cannot tell, a run is given up only once it has been
        silent for `SILENT` seconds.
        """
        status = self.status()
        if status is None or "state" not in status:
            begun = not self.path.is_dir() or self._has_metrics()
            return "lost" if begun and not self.is_locked() else "queued"
        said = str(status["state"])
        locked = self.is_locked()
        if said != "running" or locked:
            return said
        unknown = locked is None or status.get("host") != socket.gethostname()
        return said if unknown and _age(status.get("updated")) < SILENT else "lost"

    def is_done(self, steps: int) -> bool:
        """Tell whether the run finished with at least `steps` agent steps."""
        status = self.status()
        return (
            status is not None and status.get("state") == "done" and status.get("step", 0) >= steps
        )

    def result(self) -> dict[str, Any] | None:
        """Return `result.json`, or None when it is missing or broken."""
        return _read_json(self.path / "result.json")

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write `result.json` whole; numbers that are not finite become null."""
        atomic_write(self.path / "result.json", as_json(result))

    def write_traceback(self, text: str) -> None:
        """Append the traceback of a failure to `train.log`."""
        append_text(self.log_path, text)

    def is_locked(self) -> bool | None:
        """Tell whether a live process (this one too) runs in the directory; None: unknown."""
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

    def _has_metrics(self) -> bool:
        try:
            return bool(last_values(self.metrics_path))
        except UserError:
            return False

    def _refuse_another(self, config: Mapping[str, Any], digest: str) -> None:
        if not self.config_path.exists():
            return
        there = self.config()
        if config_hash(there) == digest:
            return
        raise UserError(
            f"{self.path}: holds a run of another config, hash {config_hash(there)[:_SHOWN]} "
            f"there and {digest[:_SHOWN]} here ({difference(there, config)}); "
            "choose another place with out=DIR, or move that directory away"
        )

    def _write_config(self, config: Mapping[str, Any], digest: str) -> None:
        from omegaconf import OmegaConf

        # OmegaConf on both sides: plain YAML would read 1e-3 as text.
        text = f"# config hash: {digest}\n{OmegaConf.to_yaml(OmegaConf.create(dict(config)))}"
        if not self.config_path.exists() or self.config_path.read_bytes() != text.encode():
            atomic_write(self.config_path, text)


def _age(stamp: Any) -> float:
    """Return the seconds since an ISO 8601 time, infinite where it is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(str(stamp))).total_seconds()
    except (ValueError, TypeError):
        return math.inf


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def as_json(values: Mapping[str, Any]) -> str:
    """Return values as JSON text: arrays as lists, numbers that are not finite as null."""
    return json.dumps(_plain(values), indent=2, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return what JSON can hold: arrays as lists, array scalars as numbers, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
