"""Questions to SLURM about a sweep: which tasks it has, and in which state."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rigor.errors import UserError
from rigor.launch.manifest import Manifest, read_manifest
from rigor.launch.status import RunStatus, StatusReader

ASK_EVERY = 30.0
"""Seconds between two calls of squeue by one process; a busy controller answers slowly."""

_ON_A_NODE = ("RUNNING", "COMPLETING", "SUSPENDED")
"""SLURM's states of a task that has a node; a task in any other state waits for one."""

_GONE = re.compile("Invalid job id|already completing or completed")
"""What scancel says of a task that has ended."""

_REASONS = {
    "PartitionTimeLimit": "hydra.launcher.time is above the limit of the partition, which "
    "`scontrol show partition` shows: the task never starts",
    "PartitionNodeLimit": "the partition does not allow so many nodes: the task never starts",
    "PartitionDown": "the partition starts no tasks at present",
    "PartitionInactive": "the partition starts no tasks at present",
    "QOSMaxWallDurationPerJobLimit": "hydra.launcher.time is above the limit of the QOS",
    "AssocMaxWallDurationPerJobLimit": "hydra.launcher.time is above the limit of the account",
    "BadConstraints": "no node fits hydra.launcher.constraint and the resources asked for",
    "ReqNodeNotAvail": "`sinfo --list-reasons` shows why nodes are down or drained",
    "Nodes required for job are DOWN": "`sinfo --list-reasons` shows why",
    "JobHeldUser": "`scontrol release JOB` lets it start",
    "JobHeldAdmin": "only an administrator can release it",
    "launch failed requeued held": "its node failed; `scontrol release JOB` tries again",
    "BeginTime": "requeued; SLURM waits about two minutes",
}
"""What SLURM's reasons for not starting a task mean, by their beginning."""


@dataclass(frozen=True)
class Task:
    """A task that SLURM has: its state, SLURM's reason if it waits, and its id for scancel."""

    state: str
    reason: str = "None"
    id: str = field(default="", compare=False)


class SweepReader:
    """Reads the status of a sweep's runs from their files and from SLURM.

    squeue is asked when a submission was added, and otherwise every `ASK_EVERY` seconds.

    tasks: the SLURM task of each run that SLURM has, by the run's index, from the newest answer;
      None if SLURM did not answer.
    """

    def __init__(self, directory: Path) -> None:
        self.tasks: dict[int, Task] | None = None
        self._directory, self._files = directory, StatusReader([])
        self._asked = -float("inf")
        self._submissions: object = None

    def read(self) -> list[RunStatus]:
        """Return the present status of every run."""
        manifest = read_manifest(self._directory)  # a retry may have added submissions
        self._files.paths = manifest.runs
        now = time.monotonic()
        if manifest.submissions != self._submissions or now - self._asked >= ASK_EVERY:
            self.tasks = tasks_of(manifest)
            self._asked, self._submissions = now, manifest.submissions
        statuses = self._files.read()
        return statuses if self.tasks is None else with_tasks(statuses, self.tasks, manifest)


def tasks_of(manifest: Manifest) -> dict[int, Task] | None:
    """Return the SLURM task of each run that SLURM still has, by the run's index.

    None means that SLURM does not answer. For a run that was submitted twice, the newest task
    counts.
    """
    # the name, which may hold any character, comes last
    shown = "--format=%F|%K|%T|%r|%j"
    command = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", shown]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found: dict[tuple[str, int], Task] = {}
    for line in done.stdout.splitlines():
        job, index, state, reason, name = line.split("|", 4)
        number = int(index) if index.isdigit() else 0  # a single task is not an array
        for key in (job, name):
            found[key, number] = Task(state, reason, f"{job}_{index}" if index.isdigit() else job)
    tasks: dict[int, Task] = {}
    for submission in manifest.submissions:
        for number, members in enumerate(submission.tasks):
            task = found.get((submission.job or submission.name, number))
            if task:
                tasks |= dict.fromkeys(members, task)
    return tasks


def with_tasks(
    statuses: Sequence[RunStatus], tasks: dict[int, Task], manifest: Manifest
) -> list[RunStatus]:
    """Return statuses corrected by the runs' SLURM tasks.

    A run that has saved while SLURM still has its task is queued, because the task is about to be
    requeued. A run whose task waits is queued, whatever happened to its last process; its `error`
    is the reason why SLURM does not start the task. A run whose files say queued but that has no
    task is lost.
    """
    submitted = {
        number
        for entry in manifest.submissions
        if entry.job
        for members in entry.tasks
        for number in members
    }
    corrected = []
    for number, status in enumerate(statuses):
        task = tasks.get(number)
        if task is None:
            if status.state == "queued":
                never = "it was not submitted to SLURM"
                error = _ENDED_EARLY if number in submitted else never
                status = replace(status, state="lost", error=status.error or error)
        elif status.state in ("queued", "preempted") or (
            status.state in ("lost", "running") and task.state not in _ON_A_NODE
        ):
            status = replace(status, state="queued", error=_waits_for(task))
        corrected.append(status)
    return corrected


_ENDED_EARLY = (
    "its SLURM task ended before the run began; `rigor-sweep logs` names the task's log, which is "
    "missing where the nodes do not share the directory out=DIR"
)


def _waits_for(task: Task) -> str | None:
    """Return why SLURM does not start a task, and what that means; None if it gives no reason."""
    if task.state in _ON_A_NODE or task.reason == "None":
        return None
    meaning = [text for reason, text in _REASONS.items() if task.reason.startswith(reason)]
    return ": ".join([task.reason, *meaning])


def cancel(manifest: Manifest, numbers: Sequence[int]) -> list[str]:
    """Cancel the tasks of some runs, and return the ids of the cancelled tasks.

    Raises:
      UserError: SLURM does not answer, or refuses.
    """
    tasks = tasks_of(manifest)
    if tasks is None:
        raise UserError("SLURM does not answer squeue, so nothing was cancelled; try again")
    ids = list(dict.fromkeys(tasks[number].id for number in numbers if number in tasks))
    if ids:  # a task may end before scancel names it, which is no failure
        done = subprocess.run(["scancel", *ids], capture_output=True, text=True, check=False)
        said = done.stderr.splitlines() if done.returncode else []
        if refused := [line for line in said if not _GONE.search(line)]:
            raise UserError(f"not all was cancelled; SLURM says: {refused[0].strip()}")
    return ids


def cancel_submitted(name: str, folder: Path) -> None:
    """Cancel the jobs of a name whose scripts were submitted from a folder, if SLURM answers."""
    shown = ("--noheader", f"--user={os.getuid()}", f"--name={name}", "--format=%F|%o")
    try:
        asked = ["squeue", *shown]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)
        scripts = [line.split("|", 1) for line in done.stdout.splitlines()]
        here = folder.resolve()
        mine = [job for job, script in scripts if Path(script).parent.resolve() == here]
        if mine:
            subprocess.run(["scancel", *mine], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return


def logs(directory: Path, manifest: Manifest, number: int) -> list[Path]:
    """Return the logs of the SLURM tasks of a run, oldest first."""
    found: list[Path] = []
    for submission in manifest.submissions:
        for index, members in enumerate(submission.tasks):
            if submission.job and number in members:
                task = f"_{index}" if len(submission.tasks) > 1 else ""
                found += sorted((directory / "slurm").glob(f"{submission.job}{task}_*_log.*"))
    return found
