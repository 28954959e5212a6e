"""Taking a run over from a process that may still live on another machine.

A lock may not reach the other machine, its clock may be wrong, and SLURM believes that a node is
dead when only its daemon is. So a run is queued first, which a live process notices at its next
heartbeat (`RunDirectory.write_status`), and started when several heartbeats have passed. A
heartbeat that had begun before the run was queued can undo that; then the run is queued again.
"""

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from rigor.errors import UserError
from rigor.runs.directory import SILENT, RunDirectory
from rigor.runs.progress import BEAT_EVERY

ALONE = 3 * BEAT_EVERY
"""Seconds after which a process that lives has noticed that its run was queued again."""

_POLL_EVERY = 0.5  # seconds


def wait_until_alone(run: RunDirectory, queued: bool = False) -> None:
    """Return when no earlier process can be at work in a run's directory.

    Args:
      queued: whether the run was queued for this process, even if its status is another one.

    Raises:
      UserError: one is at work.
    """
    status = run.status() or {}
    if status.get("state") not in ("queued", "running") or not _may_live(run, status):
        return
    holder = f"process {status.get('pid')} on {status.get('host')}"
    queued = queued or status["state"] == "queued"
    locked = run.is_locked()
    if locked and not queued:
        return  # `RunDirectory.open` refuses it
    began = time.monotonic()
    print(f"{run.path}: waiting until {holder} has ended or is silent", flush=True)
    while time.monotonic() - began < (SILENT if locked else ALONE):
        time.sleep(_POLL_EVERY)
        found = run.status() or {}
        if not queued and found != status:
            raise UserError(f"{run.path}: {holder} runs there; wait for it or end it")
        its_own = all(found.get(key) == status.get(key) for key in ("host", "pid"))
        if queued and found.get("state") == "running" and its_own:
            run.write_status("queued")
            began = time.monotonic()
        if locked and run.is_locked() is False:
            return
    if locked:
        raise UserError(f"{run.path}: {holder} still holds its lock after {SILENT:.0f} s; end it")


def _may_live(run: RunDirectory, status: Mapping[str, Any]) -> bool:
    """Return whether the process that a status names may be alive; it may be this one."""
    pid, locked = status.get("pid"), run.is_locked()
    if pid is None:
        return False
    if locked or status.get("host") != socket.gethostname():
        return True
    if locked is False or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
