"""A sweep on a SLURM cluster: arrays submitted by submitit, or shown before they are."""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigor.errors import RunFailed, UserError
from rigor.launch import sweep
from rigor.launch.board import Display, Standing
from rigor.launch.job import Job
from rigor.launch.sweep import Manifest, Submission
from rigor.launch.task import run_task
from rigor.launch.witness import queue, standings
from rigor.tracking.rundir import RunDirectory

if TYPE_CHECKING:
    from submitit import SlurmExecutor

STEPS_PER_SECOND = 80.0
"""Agent steps/s of one run of the paper's agent on Atari on one CPU core, from
docs/results/speed.md. No GPU was measured yet, so hours on one are an upper bound."""

MAX_ARRAY_SIZE = 1001
"""Tasks of one array where SLURM does not say, its own default."""

_LOOK_EVERY = 5.0  # seconds between questions to SLURM

ALLOCATION = re.compile(r"(SLURM|SBATCH|SRUN)_(?!CONF$)|SLURMD?_NODENAME$|CUDA_VISIBLE_DEVICES$")
"""What an allocation leaves in the environment and a job submitted from inside must not inherit."""


@dataclass
class Cluster:
    """How runs are submitted; None leaves a choice to the cluster.

    partition, account, qos, constraint, gres: as sbatch takes them.
    time: limit of a task as sbatch takes it, minutes or D-HH:MM:SS; a run that needs longer is
      requeued. grace: seconds before the limit at which runs are told to save.
    mem: memory of a task, such as 16G.
    runs_per_gpu: runs that share a task, and so its GPU, each a process. cpus_per_run: its cores.
    max_parallel: tasks that run at the same time.
    setup: shell lines before the runs start, such as `module load cuda`.
    extra: further options of sbatch, such as `{reservation: name}`.
    steps_per_second: agent steps/s of a run, for the hours that a dry run estimates.
    wait: whether the command ends with the sweep. dry_run: print what would be submitted, only.
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
    max_parallel: int | None = None
    setup: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    steps_per_second: float | None = None
    wait: bool = False
    dry_run: bool = False

    def refuse(self) -> None:
        """Refuse numbers that cannot be.

        Raises:
          UserError: naming the key.
        """
        for key in ("runs_per_gpu", "cpus_per_run", "max_parallel", "grace", "steps_per_second"):
            value = getattr(self, key)
            if value is not None and value <= 0:
                raise UserError(f"hydra.launcher.{key}={value}: must be above 0")


def check() -> None:
    """Refuse a machine without SLURM.

    Raises:
      UserError: its commands are not there.
    """
    missing = [name for name in ("sbatch", "srun", "squeue", "scontrol") if not shutil.which(name)]
    if missing:
        raise UserError(
            f"hydra/launcher=slurm: no {', '.join(missing)} here; submit from a cluster's login "
            "node, or use hydra/launcher=local"
        )


def submit(directory: Path, manifest: Manifest, numbers: Sequence[int], cluster: Cluster) -> str:
    """Submit some runs of a sweep, recording what was submitted as it happens.

    Args:
      directory: the sweep's. numbers: which of the manifest's runs, all of them queued.

    Returns:
      One line about the jobs.

    Raises:
      UserError: SLURM refuses.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    tasks = chunks(list(numbers), cluster.runs_per_gpu)
    arrays = chunks(tasks, max_array_size())
    if cluster.max_parallel:  # shared among the arrays
        cluster = replace(cluster, max_parallel=max(1, cluster.max_parallel // len(arrays)))
    jobs = []
    for array in arrays:
        # known by its name should this process die before SLURM's answer is on disk
        entry = Submission(f"{directory.name}.{len(manifest.submissions)}", None, array)
        manifest.submissions.append(entry)
        manifest.write(directory)
        members = [[str(manifest.runs[i].absolute()) for i in task] for task in array]
        try:
            # submitit repeats what sbatch says there
            with outside_allocation(), redirect_stderr(io.StringIO()):
                executor = _executor(directory, cluster, entry.name, len(array))
                submitted = executor.map_array(run_task, members)
        except (FailedJobError, FailedSubmissionError) as error:
            manifest.submissions.remove(entry)
            manifest.write(directory)
            reason = " ".join(str(error).split())
            raise UserError(f"hydra/launcher=slurm: sbatch refuses: {reason}") from error
        entry.job = submitted[0].job_id.partition("_")[0]
        manifest.write(directory)
        jobs.append(entry.job)
    return f"submitted {len(numbers)} runs in {len(tasks)} tasks: job {', '.join(jobs)}"


def launch(jobs: list[Job], overrides: list[list[str]], cluster: Cluster) -> None:
    """Submit what is neither done nor there already, and return at once unless told to wait.

    Raises:
      UserError: SLURM or a directory refuses. SweepFailed: of a sweep that was waited for.
    """
    if cluster.dry_run:
        print(preview(jobs, cluster))
        return
    directory = sweep.sweep_directory(jobs)
    with sweep.claimed(directory):
        manifest = sweep.new_manifest(jobs, overrides, describe(cluster), directory)
        there = queue(manifest)
        if there is None:
            raise UserError("hydra/launcher=slurm: squeue does not answer; is the cluster up?")
        # one that runs elsewhere may hold no lock that reaches here
        left = [
            one
            for i, one in enumerate(jobs)
            if i not in there and RunDirectory(one.path).state() != "running"
        ]
        sweep.queue(left, directory.name)
        states = {one.path: RunDirectory(one.path).state() for one in left}
        numbers = [i for i, one in enumerate(jobs) if states.get(one.path) == "queued"]
        if numbers:
            print(submit(directory, manifest, numbers, cluster))
        if len(numbers) < len(jobs):
            print(f"{len(jobs) - len(numbers)} runs are done, running or were submitted before")
    print(f"how it goes: rigor-sweep status {directory}", flush=True)
    if cluster.wait:
        wait(directory)


def describe(cluster: Cluster) -> dict[str, Any]:
    """Return what the manifest says of a launcher, so that a retry does the same."""
    return {"name": "slurm", **asdict(cluster)}


def cluster_of(manifest: Manifest) -> Cluster:
    """Return how a sweep was submitted."""
    return Cluster(**{key: value for key, value in manifest.launcher.items() if key != "name"})


def wait(directory: Path) -> None:
    """Show a sweep until nothing of it waits or runs any more.

    Raises:
      SweepFailed: not every run is done.
    """
    read = standings(directory)
    try:
        with Display(read, directory.name) as display:
            while _goes_on(read(), queue(sweep.read_manifest(directory))):
                display.look()
                time.sleep(_LOOK_EVERY)
    finally:
        sweep.summarise([one.path for one in read()], directory)
    ends: list[Exception | None] = [
        None if one.state == "done" else RunFailed(f"{one.state}: {one.error}; see {one.log}")
        for one in read()
    ]
    sweep.raise_failures(ends)


def _goes_on(found: Sequence[Standing], there: dict[int, str] | None) -> bool:
    """Tell whether a sweep may still move, by its files and by its tasks in SLURM, if it answers.

    SLURM finds out minutes later that a node has died, and only then requeues what is lost.
    """
    if all(one.state == "done" for one in found):
        return False
    return there is None or bool(there) or any(one.state == "running" for one in found)


def preview(jobs: Sequence[Job], cluster: Cluster) -> str:
    """Return what would be submitted: the script, the runs, the hours they take."""
    directory, runs = (
        sweep.sweep_directory(list(jobs)),
        [one for one in jobs if not RunDirectory(one.path).is_done(one.steps)],
    )
    tasks = chunks(runs, cluster.runs_per_gpu)
    n_tasks = min(len(tasks), max_array_size())
    executor = _executor(directory, cluster, directory.name, n_tasks)
    if n_tasks > 1:
        executor.parameters["map_count"] = n_tasks
    # submitit has no public way to show its script
    script = executor._make_submission_file_text(executor._submitit_command_str, "")
    rate = cluster.steps_per_second or STEPS_PER_SECOND
    hours = [max(one.steps for one in task) / rate / 3600 for task in tasks]
    lines = [script.rstrip(), "", "# runs"]
    for number, (task, length) in enumerate(zip(tasks, hours, strict=True)):
        for one in task:
            lines.append(f"task {number}  {length:,.2f} h  {one.path.name}  {one.steps:,} steps")
    source = (
        "hydra.launcher.steps_per_second"
        if cluster.steps_per_second
        else "of Atari on a CPU core; hydra.launcher.steps_per_second says otherwise"
    )
    lines += [
        "",
        f"{len(runs)} runs in {len(tasks)} tasks: about {sum(hours):,.2f} GPU-hours at {rate:g} "
        f"steps/s a run ({source}); nothing was submitted",
    ]
    return "\n".join(lines)


def max_array_size() -> int:
    """Return the most tasks that an array of this cluster may have."""
    asked = ["scontrol", "show", "config"]
    try:
        shown = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        shown = ""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", shown)
    return int(found.group(1)) if found else MAX_ARRAY_SIZE


@contextmanager
def outside_allocation() -> Iterator[None]:
    """Hide an enclosing allocation inside the block: a job would inherit its size and its GPUs."""
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
    """Return submitit's executor, with everything that sbatch is told."""
    from submitit import SlurmExecutor

    # -P: as for our own workers, no module of the user's comes before Python's
    python = f"{shlex.quote(sys.executable)} -P"
    executor = SlurmExecutor(folder=directory / "slurm", python=python)
    options = asdict(cluster)
    asked = {
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
        # as they are: submitit would take numbers only. SLURM requeues what a dead node ran.
        additional_parameters={"requeue": True, **asked, **cluster.extra},
    )
    return executor
