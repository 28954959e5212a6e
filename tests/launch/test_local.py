import pytest
from command_line import TINY, choices, composed

from rigor.errors import RunFailed
from rigor.launch import local
from rigor.launch.sweep import SweepFailed, sweep_directory
from rigor.runs.directory import RunDirectory
from rigor.runs.job import job


@pytest.fixture
def jobs(tmp_path):
    configs = [composed(*TINY, f"out={tmp_path}", f"seed={seed}") for seed in (0, 1)]
    return [job(config, choices(config)) for config in configs]


def finish_alone(job):
    """Write a directory as `rigor-train` does without a sweep: it has no `job.json`."""
    with RunDirectory.open(job.path, job.plain, job.digest) as run:
        run.write_status("done", step=job.steps, steps_total=job.steps)
        run.write_result({"objective": 1.0})


def test_finished_runs_are_not_started(jobs, monkeypatch, capsys):
    started = []

    def run_pool(paths, n_jobs, on_end, on_poll):
        started.extend(paths)
        return [None] * len(paths)

    monkeypatch.setattr(local, "run_pool", run_pool)
    finish_alone(jobs[0])
    local.launch(jobs, [["seed=0"], ["seed=1"]], 1)
    assert started == [jobs[1].path]
    finish_alone(jobs[1])
    local.launch(jobs, [["seed=0"], ["seed=1"]], 1)
    assert started == [jobs[1].path]
    shown = capsys.readouterr().out
    assert "1 of 2 runs are done, skipped\n" in shown
    assert "2 of 2 runs are done, skipped\n" in shown
    assert shown.count(f"results: {sweep_directory(jobs)}") == 2


def test_a_failure_counts_among_all_runs_of_the_sweep(jobs, monkeypatch):
    monkeypatch.setattr(local, "run_pool", lambda paths, *more: [RunFailed("boom") for _ in paths])
    finish_alone(jobs[0])
    with pytest.raises(SweepFailed, match=r"^1 of 2 runs failed, the first with: boom"):
        local.launch(jobs, [["seed=0"], ["seed=1"]], 1)


@pytest.mark.parametrize(
    ("device", "visible", "build", "at_once"),
    [
        ("auto", ["0", "1"], "2.13.0+cu130", 2),
        ("auto", ["0", "1"], "2.13.0+cpu", 8),
        ("cpu", ["0", "1"], "2.13.0+cu130", 8),
        ("auto", [], "2.13.0+cu130", 8),
    ],
)
def test_by_default_as_many_runs_as_gpus_or_cores(
    tmp_path, monkeypatch, device, visible, build, at_once
):
    config = composed(*TINY, f"out={tmp_path}", f"device={device}")
    asked = []

    def run_pool(paths, n_jobs, on_end, on_poll):
        asked.append(n_jobs)
        return [None] * len(paths)

    monkeypatch.setattr(local, "run_pool", run_pool)
    monkeypatch.setattr(local, "cores", lambda: 8)
    monkeypatch.setattr(local, "visible_gpus", lambda: visible)
    monkeypatch.setattr("rigor.runs.gpus.metadata.version", lambda name: build)
    local.launch([job(config, choices(config))], [[]], None)
    assert asked == [at_once]
