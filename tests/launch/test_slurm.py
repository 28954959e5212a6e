import json
import math
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
from command_line import TINY, choices, composed
from submitit.core.utils import FailedJobError

from rigor.errors import Stopped, UserError
from rigor.launch import slurm, sweep
from rigor.launch.manifest import Manifest, read_manifest
from rigor.launch.squeue import Task
from rigor.launch.status import RunStatus
from rigor.launch.sweep import SweepFailed
from rigor.runs import job as jobs
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash
from rigor.runs.job import Job


def jobs_in(out, n):
    jobs = []
    for seed in range(n):
        plain = {"seed": seed, "train": {"steps": 10}, "choices": {"env": "x"}}
        digest = config_hash(plain)
        jobs.append(Job(plain, digest, out / f"x-s{seed}-{digest[:8]}"))
    return jobs


def test_runs_that_wait_run_or_are_done_are_not_submitted(tmp_path, monkeypatch, capsys):
    jobs = jobs_in(tmp_path, 5)
    for job, state in zip(jobs, ("queued", "done", "running", "running", "failed"), strict=True):
        job.path.mkdir()
        RunDirectory(job.path).write_status(state, step=10 if state == "done" else 3)
        RunDirectory(job.path).write_result({"objective": 1.0})
        (job.path / "config.yaml").write_text(json.dumps(job.plain))
    # job 2 runs on another machine whose locks do not reach this one; job 3 died here
    status = RunDirectory(jobs[2].path).path / "status.json"
    status.write_text(status.read_text().replace(host_of(jobs[2]), "elsewhere"))
    submitted = []

    def submit(directory, manifest, numbers, cluster):
        submitted.extend(numbers)
        return "submitted"

    monkeypatch.setattr(slurm, "submit", submit)
    monkeypatch.setattr(slurm, "tasks_of", lambda manifest: {0: Task("PENDING")})
    slurm.launch(jobs, [[]] * 5, slurm.Cluster())
    assert submitted == [3, 4]
    assert RunDirectory(jobs[2].path).status()["state"] == "running"
    assert "\n3 runs are done, running or already submitted\n" in capsys.readouterr().out


def host_of(job: Job) -> str:
    return RunDirectory(job.path).status()["host"]


@pytest.fixture
def watched(monkeypatch):
    """Let `wait` see states of a run and its task, one pair each time; return its pauses."""

    def see(*pairs):
        left = list(pairs)
        pauses = []
        state, tasks = left[0]

        def sleep(seconds):
            nonlocal state, tasks
            pauses.append(seconds)
            assert left[1:], "waited after the last pair"
            left.pop(0)
            state, tasks = left[0]

        class Reader:
            @property
            def tasks(self):
                return tasks

            def read(self):
                return [RunStatus(Path("run"), state, 0, 10, None, None, None, None, None)]

        monkeypatch.setattr(slurm, "SweepReader", lambda directory: Reader())
        monkeypatch.setattr(slurm.time, "sleep", sleep)
        monkeypatch.setattr(sweep, "summarise", lambda paths, directory: None)
        monkeypatch.setattr(slurm, "Display", lambda *given: nullcontext(SilentDisplay()))
        return pauses

    return see


class SilentDisplay:
    def update(self):
        pass


def test_wait_lasts_while_slurm_has_or_may_have_a_task(watched):
    pauses = watched(
        ("running", {0: Task("RUNNING")}),
        ("lost", {0: Task("RUNNING")}),  # its node is dead, which SLURM will notice
        ("queued", {0: Task("PENDING")}),
        ("preempted", None),  # SLURM does not answer for a moment
        ("running", {0: Task("RUNNING")}),
        ("done", {0: Task("COMPLETING")}),
    )
    slurm.wait(Path("sweeps/x"))
    assert len(pauses) == 5


def test_wait_ends_when_no_task_is_left(watched):
    watched(("preempted", {}))
    with pytest.raises(SweepFailed, match="1 of 1 runs failed"):
        slurm.wait(Path("sweeps/x"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_wait_says_that_the_jobs_continue(watched, monkeypatch, number):
    before = signal.getsignal(number)
    watched(("running", {0: Task("RUNNING")}))
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: signal.raise_signal(number))
    with pytest.raises(Stopped, match="the jobs continue; rigor-sweep status sweeps/x") as caught:
        slurm.wait(Path("sweeps/x"))
    assert caught.value.signal == number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("30", 1800),
        ("30:10", 1810),
        ("2:00:05", 7205),
        ("1-00", 86400),
        ("1-02:30", 86400 + 9000),
        ("2-00:00:01", 2 * 86400 + 1),
        ("UNLIMITED", math.inf),
        ("0", math.inf),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(limit, seconds):
    assert slurm.seconds_of(limit) == seconds


@pytest.mark.parametrize(("limit", "grace"), [("1", 60), ("00:01:30", 90), ("1-00:00:00", 86400)])
def test_a_time_limit_within_the_grace_time_is_refused(limit, grace):
    with pytest.raises(UserError, match=f"time={limit}: .*grace={grace} .*raise the time or lower"):
        slurm.Cluster(time=limit, grace=grace).refuse()
    slurm.Cluster(time=limit, grace=grace - 1).refuse()


@pytest.mark.parametrize("limit", ["1d", "-5", "1:2:3:4", "", "24h"])
def test_a_wrong_time_limit_is_refused(limit):
    with pytest.raises(UserError, match=f"hydra.launcher.time={limit}: not a time limit; give"):
        slurm.Cluster(time=limit).refuse()


def test_a_sweep_that_squeue_does_not_answer_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "tasks_of", lambda manifest: None)
    config = composed(*TINY, f"out={tmp_path}/out")
    with pytest.raises(UserError, match="squeue does not answer"):
        slurm.launch([jobs.job(config, choices(config))], [[]], slurm.Cluster())
    assert list(tmp_path.iterdir()) == []


def test_runs_that_slurm_refuses_have_failed_with_its_reason(tmp_path, monkeypatch):
    paths = [tmp_path / f"run{number}" for number in range(3)]
    for path in paths:
        path.mkdir()
        RunDirectory(path).write_status("queued")
    manifest = Manifest(paths, {"name": "slurm"}, [[]] * 3, list("abc"))

    class RefusingSbatch:
        left = 1

        def map_array(self, function, *members):
            if not self.left:
                raise FailedJobError("sbatch: error: invalid\n account")
            self.left -= 1
            return [type("Submitted", (), {"job_id": "7_0"})]

    executor = RefusingSbatch()
    monkeypatch.setattr(slurm, "_executor", lambda *given: executor)
    monkeypatch.setattr(slurm, "max_array_size", lambda: 1)
    with pytest.raises(UserError, match="sbatch refuses: sbatch: error: invalid account"):
        slurm.submit(tmp_path, manifest, [0, 1, 2], slurm.Cluster())
    assert [entry.job for entry in read_manifest(tmp_path).submissions] == ["7"]
    states = [(RunDirectory(path).state(), RunDirectory(path).status()["error"]) for path in paths]
    refusal = ("failed", "sbatch refuses: sbatch: error: invalid account")
    assert states == [("queued", None), refusal, refusal]
