from contextlib import nullcontext
from pathlib import Path

import pytest

from rigor.launch import slurm, sweep
from rigor.launch.board import Standing
from rigor.launch.job import Job
from rigor.launch.sweep import SweepFailed
from rigor.tracking.rundir import RunDirectory, config_hash


def jobs_in(out, n):
    made = []
    for seed in range(n):
        plain = {"seed": seed, "train": {"steps": 10}}
        digest = config_hash(plain)
        made.append(Job(plain, digest, out / f"x-s{seed}-{digest[:8]}", {"env": "x"}))
    return made


def test_what_waits_runs_or_is_done_is_not_submitted(tmp_path, monkeypatch, capsys):
    jobs = jobs_in(tmp_path, 5)
    for one, state in zip(jobs, ("queued", "done", "running", "running", "failed"), strict=True):
        one.path.mkdir()
        RunDirectory(one.path).write_status(state, step=10 if state == "done" else 3)
    # job 2 runs on another machine, from where no lock reaches here; job 3 has died here
    status = RunDirectory(jobs[2].path).path / "status.json"
    status.write_text(status.read_text().replace(slurm_host(jobs[2]), "elsewhere"))
    submitted = []

    def submit(directory, manifest, numbers, cluster):
        submitted.extend(numbers)
        return "submitted"

    monkeypatch.setattr(slurm, "submit", submit)
    monkeypatch.setattr(slurm, "queue", lambda manifest: {0: "PENDING"})
    slurm.launch(jobs, [[]] * 5, slurm.Cluster())
    assert submitted == [3, 4]
    assert RunDirectory(jobs[2].path).status()["state"] == "running"
    assert "\n3 runs are done, running or were submitted before\n" in capsys.readouterr().out


def slurm_host(one: Job) -> str:
    return RunDirectory(one.path).status()["host"]


@pytest.fixture
def watched(monkeypatch):
    """Let `wait` see these states of a run and of its task, a pair a look; return the looks."""

    def see(*pairs):
        left = list(pairs)
        looks = []
        said, there = left[0]

        def look(seconds):
            nonlocal said, there
            looks.append(seconds)
            assert left[1:], "looked on after the last"
            left.pop(0)
            said, there = left[0]

        def read():
            return [Standing(Path("run"), said, 0, 10, None, None, None, None, None)]

        monkeypatch.setattr(slurm, "standings", lambda directory: read)
        monkeypatch.setattr(slurm, "queue", lambda manifest: there)
        monkeypatch.setattr(sweep, "read_manifest", lambda directory: None)
        monkeypatch.setattr(slurm.time, "sleep", look)
        monkeypatch.setattr(sweep, "summarise", lambda paths, directory: None)
        monkeypatch.setattr(slurm, "Display", lambda *given: nullcontext(Silent()))
        return looks

    return see


class Silent:
    def look(self):
        pass


def test_a_sweep_is_waited_for_while_slurm_has_or_may_have_it(watched):
    looks = watched(
        ("running", {0: "RUNNING"}),
        ("lost", {0: "RUNNING"}),  # its node has died, which SLURM will find out
        ("queued", {0: "PENDING"}),
        ("preempted", None),  # SLURM does not answer for a moment
        ("running", {0: "RUNNING"}),
        ("done", {0: "COMPLETING"}),
    )
    slurm.wait(Path("sweeps/x"))
    assert len(looks) == 5


def test_a_sweep_that_nobody_has_any_more_is_not_waited_for(watched):
    watched(("preempted", {}))
    with pytest.raises(SweepFailed, match="1 of 1 runs failed"):
        slurm.wait(Path("sweeps/x"))
