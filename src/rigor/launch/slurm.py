"""A sweep on a SLURM cluster, submitted as arrays by submitit, or previewed."""

import io
import itertools
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rigor.errors import STOPS, RunFailed, Stopped, UserError
from rigor.launch import sweep
from rigor.launch.display import Display
from rigor.launch.manifest import Manifest, Submission, new_manifest
from rigor.launch.squeue import SweepReader, Task, cancel_submitted, tasks_of
from rigor.launch.status import RunStatus
from rigor.launch.task import run_task
from rigor.runs.directory import RunDirectory, described
from rigor.runs.disk import disk_errors
from rigor.runs.job import Job

if TYPE_CHECKING:
    from submitit import SlurmExecutor

STEPS_PER_SECOND = {"replay": 80.0, "parallel": 300.0}
"""Agent steps/s of one run of the paper's agent on Atari on one CPU core by each learner, from
docs/results/speed.md and parallel.md. No GPU has been measured."""

MAX_ARRAY_SIZE = 1001
"""Largest number of tasks in an array if SLURM does not answer; SLURM's own default."""

_POLL_EVERY = 5.0  # seconds between two looks at the runs' files; squeue is asked less often
_UNLIMITED = ("0", "infinite", "unlimited")

ALLOCATION = re.compile(r"(SLURM|SBATCH|SRUN)_(?!CONF$)|SLURMD?_NODENAME$|CUDA_VISIBLE_DEVICES$")
"""Environment variables of an allocation, which jobs submitted from inside must not inherit."""


@dataclass
class Cluster:
    """Options of a submission; None means the cluster's default.

    partition, account, qos, constraint, gres: passed to sbatch.
    time: time limit of a task, in minutes or as D-HH:MM:SS; a run that needs longer is requeued.
    grace: seconds before the time limit at which runs save.
    mem: memory of a task, such as 16G.
    runs_per_gpu: runs, each a process, that share a task and its GPU. cpus_per_run: cores of a run.
    mps: whether the runs of a task use its GPU at the same time, by NVIDIA's MPS; see `launch.mps`.
    max_parallel: largest number of tasks that run at the same time.
    setup: shell lines before the runs start, such as `module load cuda`.
    python: shell command of Python on a node, such as `apptainer exec --nv rigor.sif python`; None
      is the Python of this process.
    requeue: whether tasks may be requeued; otherwise `rigor-sweep retry` resumes stopped runs.
    extra: further options of sbatch, such as `{reservation: name}`.
    steps_per_second: agent steps/s of a run, for the hours that a dry run estimates.
    wait: whether the command waits for the end of the sweep. dry_run: print the submission only.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gres: str | None = None
    time: str = "1-00:00:00"
    grace: int = 90
    mem: str | None = None
    runs_per_gpu: int = 1
    cpus_per_run: int = 1
    mps: bool = False
    max_parallel: int | None = None
    setup: list[str] = field(default_factory=list)
    python: str | None = None
    requeue: bool = True
    extra: dict[str, Any] = field(default_factory=dict)
    steps_per_second: float | None = None
    wait: bool = False
    dry_run: bool = False

    def refuse(self) -> None:
        """Refuse numbers that are not positive, and a time limit within the grace time.

        Raises:
          UserError: names the key.
        """
        for key in ("runs_per_gpu", "cpus_per_run", "max_parallel", "grace", "steps_per_second"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise UserError(f"hydra.launcher.{key}={value}: must be above 0")
        if seconds_of(self.time) <= self.grace:
            raise UserError(
                f"hydra.launcher.time={self.time}: not longer than hydra.launcher.grace="
                f"{self.grace} seconds, so a task would be told to save as soon as it starts, and "
                "be requeued for ever; raise the time or lower the grace"
            )


def seconds_of(limit: str) -> float:
    """Return a time limit of SLURM in seconds; infinity for no limit.

    Raises:
      UserError: the limit is not one.
    """
    if str(limit).lower() in _UNLIMITED:
        return math.inf
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", str(limit))
    if found is None:
        raise UserError(
            f"hydra.launcher.time={limit}: not a time limit; give minutes, HH:MM:SS or D-HH:MM:SS"
        )
    days, *parts = found.groups()
    first, second, third = (int(part or 0) for part in parts)
    if days is not None:  # D-HH, D-HH:MM, D-HH:MM:SS
        return 86400.0 * int(days) + 3600 * first + 60 * second + third
    if parts[2] is not None:
        return 3600.0 * first + 60 * second + third
    return 60.0 * first + second


def check() -> None:
    """Refuse a machine without SLURM.

    Raises:
      UserError: a command of SLURM is missing.
    """
    missing = [name for name in ("sbatch", "srun", "squeue", "scontrol") if not shutil.which(name)]
    if missing:
        raise UserError(
            f"hydra/launcher=slurm: {', '.join(missing)} not found; submit from a cluster's login "
            "node, or use hydra/launcher=local"
        )


def submit(directory: Path, manifest: Manifest, numbers: Sequence[int], cluster: Cluster) -> str:
    """Submit queued runs of a sweep, and write each submission into the manifest at once.

    Args:
      directory: the sweep's. numbers: indices of the runs in the manifest.

    Returns:
      One line about the jobs.

    Raises:
      UserError: sbatch refuses the jobs, or the disk is full; what sbatch accepted is cancelled.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    tasks = chunks(list(numbers), cluster.runs_per_gpu)
    arrays = chunks(tasks, max_array_size())
    if cluster.max_parallel:  # all arrays together
        cluster = replace(cluster, max_parallel=max(1, cluster.max_parallel // len(arrays)))
    jobs = []
    for k, array in enumerate(arrays):
        # written before sbatch runs: if this process dies, squeue knows the job by its name
        submission = Submission(f"{directory.name}.{len(manifest.submissions)}", None, array)
        manifest.submissions.append(submission)
        manifest.write(directory)
        members = [[str(manifest.runs[i].absolute()) for i in task] for task in array]
        try:
            # submitit prints the output of sbatch on standard error too
            with disk_errors(directory), outside_allocation(), redirect_stderr(io.StringIO()):
                executor = _executor(directory, cluster, submission.name, len(array))
                submitted = executor.map_array(run_task, members, [cluster.mps] * len(members))
            submission.job = submitted[0].job_id.partition("_")[0]
            manifest.write(directory)
        except (FailedJobError, FailedSubmissionError) as error:
            cancel_submitted(submission.name, directory / "slurm")  # sbatch may only have timed out
            manifest.submissions.remove(submission)
            manifest.write(directory)
            reason = f"sbatch refuses: {' '.join(str(error).split())}"
            for i in itertools.chain.from_iterable(itertools.chain(*arrays[k:])):
                RunDirectory(manifest.runs[i]).write_status("failed", error=reason)
            raise UserError(f"hydra/launcher=slurm: {reason}") from error
        except BaseException:  # what sbatch accepted would wait for files that are not there
            cancel_submitted(submission.name, directory / "slurm")
            raise
        jobs.append(submission.job)
    return f"submitted {_runs_in_tasks(len(numbers), len(tasks))}: job {', '.join(jobs)}"


def launch(jobs: list[Job], overrides: list[list[str]], cluster: Cluster) -> None:
    """Submit the runs that are neither done nor submitted, and return unless `wait` is set.

    Raises:
      UserError: SLURM or a directory is refused. SweepFailed: `wait` is set and a run failed.
    """
    if cluster.dry_run:
        print(preview(jobs, cluster))
        return
    directory = sweep.sweep_directory(jobs)
    is_new = not directory.exists()
    with sweep.claimed(directory):
        manifest = new_manifest(jobs, overrides, launcher_entry(cluster), directory)
        tasks = tasks_of(manifest)
        if tasks is None:
            if is_new:
                sweep.remove(directory)
            raise UserError("hydra/launcher=slurm: squeue does not answer; is the cluster up?")
        # the state too, because the lock of a run on another machine may not reach this one
        left = [
            job
            for i, job in enumerate(jobs)
            if i not in tasks and RunDirectory(job.path).state() != "running"
        ]
        sweep.enqueue_all(left, directory.name)
        states = {job.path: RunDirectory(job.path).state() for job in left}
        numbers = [i for i, job in enumerate(jobs) if states.get(job.path) == "queued"]
        if numbers:
            print(submit(directory, manifest, numbers, cluster))
        if len(numbers) < len(jobs):
            print(f"{len(jobs) - len(numbers)} runs are done, running or already submitted")
    print(f"progress: rigor-sweep status {directory}", flush=True)
    if cluster.wait:
        wait(directory)


def launcher_entry(cluster: Cluster) -> dict[str, Any]:
    """Return the manifest's entry for the launcher, which a retry reads."""
    return {"name": "slurm", **asdict(cluster)}


def cluster_of(manifest: Manifest) -> Cluster:
    """Return the options with which a sweep was submitted."""
    return Cluster(**{key: value for key, value in manifest.launcher.items() if key != "name"})


def wait(directory: Path) -> None:
    """Show a sweep until none of its runs is queued or running.

    Raises:
      SweepFailed: a run is not done. Stopped: a signal came, which does not stop the jobs.
    """
    reader = SweepReader(directory)
    statuses = reader.read()
    with _jobs_continue(directory), Display(lambda: statuses, directory.name) as display:
        while _can_change(statuses, reader.tasks):
            display.update()
            time.sleep(_POLL_EVERY)
            statuses = reader.read()
    sweep.summarise([status.path for status in statuses], directory)
    sweep.raise_failures([_failure(status) for status in statuses])


@contextmanager
def _jobs_continue(directory: Path) -> Iterator[None]:
    """Let a signal inside the block end it with a line that says that the jobs continue."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(
            number,
            f"stopped waiting, but the jobs continue; rigor-sweep status {directory} shows them, "
            f"rigor-sweep cancel {directory} stops them",
        )

    before = {number: signal.signal(number, stop) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _failure(status: RunStatus) -> Exception | None:
    if status.state == "done":
        return None
    return RunFailed(f"{described(status.state, status.error)}; see {status.log}")


def _can_change(statuses: Sequence[RunStatus], tasks: dict[int, Task] | None) -> bool:
    """Return whether a run is running or SLURM has tasks of the sweep; None: no answer.

    A lost run can change too: SLURM notices a dead node minutes later, and then requeues its tasks.
    """
    if all(status.state == "done" for status in statuses):
        return False
    return tasks is None or bool(tasks) or any(status.state == "running" for status in statuses)


def preview(jobs: Sequence[Job], cluster: Cluster) -> str:
    """Return the text of a dry run: the script, the runs and an estimate of their hours."""
    directory = sweep.sweep_directory(list(jobs))
    runs = [job for job in jobs if not RunDirectory(job.path).is_done(job.steps)]
    tasks = chunks(runs, cluster.runs_per_gpu)
    n_tasks = min(len(tasks), max_array_size())
    executor = _executor(directory, cluster, directory.name, n_tasks)
    if n_tasks > 1:
        executor.parameters["map_count"] = n_tasks
    # submitit has no public way to show its script
    script = executor._make_submission_file_text(executor._submitit_command_str, "")
    own = cluster.steps_per_second
    rates = {job.digest: own or STEPS_PER_SECOND[job.learner] for job in runs}
    hours = [max(job.steps / rates[job.digest] for job in task) / 3600 for task in tasks]
    lines = [script.rstrip(), "", "# runs"]
    for number, (task, length) in enumerate(zip(tasks, hours, strict=True)):
        for job in task:
            lines.append(f"task {number}  {length:,.2f} h  {job.path.name}  {job.steps:,} steps")
    source = (
        "hydra.launcher.steps_per_second"
        if own
        else "Atari on a CPU core; set hydra.launcher.steps_per_second to your own rate"
    )
    rate = " or ".join(f"{rate:g}" for rate in sorted(set(rates.values())))
    unit = "GPU-hours" if "gpu" in f"{cluster.gres} {cluster.extra}".lower() else "hours"
    lines += [
        "",
        f"{_runs_in_tasks(len(runs), len(tasks))}: about {sum(hours):,.2f} {unit} at {rate} "
        f"steps/s a run ({source}); nothing was submitted",
    ]
    limit = seconds_of(cluster.time) / 3600
    if (n := sum(one > limit for one in hours)) and cluster.requeue:
        lines.append(
            f"{n} of the tasks need more than hydra.launcher.time={cluster.time}: they save, are "
            "requeued and go on"
        )
    return "\n".join(lines)


def _runs_in_tasks(n_runs: int, n_tasks: int) -> str:
    runs, tasks = (
        f"{n} {name}{'s' * (n != 1)}" for n, name in ((n_runs, "run"), (n_tasks, "task"))
    )
    return f"{runs} in {tasks}"


def max_array_size() -> int:
    """Return the largest number of tasks that an array may have on this cluster."""
    command = ["scontrol", "show", "config"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        shown = ""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", shown)
    return int(found.group(1)) if found else MAX_ARRAY_SIZE


@contextmanager
def outside_allocation() -> Iterator[None]:
    """Hide an enclosing allocation inside the block; jobs would inherit its size and GPUs."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    hidden = {key: os.environ.pop(key) for key in list(os.environ) if ALLOCATION.match(key)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def chunks(items: list[Any], size: int) -> list[list[Any]]:
    """Cut a list into pieces of at most `size`."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def _executor(directory: Path, cluster: Cluster, name: str, n_tasks: int) -> "SlurmExecutor":
    """Return submitit's executor with all options of sbatch."""
    from submitit import SlurmExecutor

    # -P: as in `pool.start`
    python = f"{cluster.python or shlex.quote(sys.executable)} -P"
    executor = SlurmExecutor(folder=directory / "slurm", python=python)
    options = asdict(cluster)
    given = {
        key: options[key]
        for key in ("partition", "account", "qos", "constraint", "gres", "time", "mem")
        if options[key] is not None
    }
    executor.update_parameters(
        job_name=name,
        cpus_per_task=cluster.cpus_per_run * cluster.runs_per_gpu,
        ntasks_per_node=1,
        signal_delay_s=cluster.grace,
        array_parallelism=cluster.max_parallel or n_tasks,
        setup=cluster.setup,
        # here, because submitit's own parameters accept numbers only; `requeue` lets SLURM requeue
        # the tasks of a dead node
        additional_parameters={
            "requeue" if cluster.requeue else "no-requeue": True,
            **given,
            **cluster.extra,
        },
    )
    return executor
