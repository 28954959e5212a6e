"""Taking a run over from a process that may still live on another machine.

A lock may not reach the other machine, its clock may be wrong, and SLURM believes that a node is
dead when only its daemon is. So a run is queued first, which a live process notices at its next
heartbeat (`RunDirectory.write_status`), and started when several heartbeats have passed. A
heartbeat that had begun before the run was queued can undo that; then the run is queued again, and
the wait is as long once more.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from rigor.errors import UserError
from rigor.runs.directory import SILENT, RunDirectory
from rigor.runs.progress import BEAT_EVERY

ALONE = 3 * BEAT_EVERY
"""Seconds after which a process that lives has noticed that its run was queued again."""

_POLL_EVERY = 0.5  # seconds

Status = Mapping[str, Any]


def wait_until_alone(
    run: RunDirectory, may_take: Callable[[Status], bool] = lambda status: False
) -> None:
    """Return when no earlier process can be at work in a run's directory, or the run is done.

    A run that this process takes over is queued, as often as its earlier process undoes that.

    Args:
      may_take: whether the run may be taken from the process that its status names. If the run is
        queued, it may.

    Raises:
      UserError: a process is at work that the run may not be taken from, or that does not end.
    """
    status, locked = run.status() or {}, run.is_locked()
    state = status.get("state")
    was_queued = state == "queued" and status.get("pid") is not None
    takes = was_queued or (state != "done" and may_take(status))
    waits = takes if locked else state in ("queued", "running") and _may_live(run, status)
    if not waits:
        return  # if it is locked, `RunDirectory.open` refuses it
    if not was_queued and takes:
        run.write_status("queued")
    print(f"{run.path}: waiting until {_named(status)} has ended or is silent", flush=True)
    began = time.monotonic()
    until = began + (SILENT if locked else ALONE)
    while time.monotonic() < until:
        time.sleep(_POLL_EVERY)
        found = run.status() or {}
        now = found.get("state")
        if now == "done" or (locked and run.is_locked() is False):
            return
        if now in ("preempted", "failed") and not locked:
            return
        if now is None or (now != "running" if takes else found == status):
            continue
        if not takes or not (_same_process(found, status) or may_take(found)):
            raise UserError(f"{run.path}: {_named(found)} runs there; wait for it or end it")
        run.write_status("queued")
        if not locked:
            until = min(time.monotonic() + ALONE, began + SILENT)
    if locked or time.monotonic() >= began + SILENT:
        reason = f"{_named(status)} still works there after {SILENT:.0f} s; end it, then try again"
        run.write_status("queued", error=reason)
        raise UserError(f"{run.path}: {reason}")


def _named(status: Status) -> str:
    return f"process {status.get('pid')} on {status.get('host')}"


def _same_process(one: Status, other: Status) -> bool:
    return all(one.get(key) == other.get(key) for key in ("host", "pid"))


def _may_live(run: RunDirectory, status: Status) -> bool:
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
