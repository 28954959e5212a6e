import pytest
from cli import TINY, choices, composed

from rigor.errors import RunFailed
from rigor.launch import local
from rigor.launch.job import job
from rigor.launch.sweep import SweepFailed, sweep_directory
from rigor.tracking.rundir import RunDirectory


@pytest.fixture
def jobs(tmp_path):
    made = [composed(*TINY, f"out={tmp_path}", f"seed={seed}") for seed in (0, 1)]
    return [job(one, choices(one)) for one in made]


def done_alone(one):
    """Leave a directory as plain `rigor-train` does: without `job.json`."""
    with RunDirectory.open(one.path, one.plain, one.digest) as run:
        run.write_status("done", step=one.steps, steps_total=one.steps)


def test_what_is_done_already_is_not_started(jobs, monkeypatch, capsys):
    started = []

    def run_pool(paths, n_jobs, told, look):
        started.extend(paths)
        return [None] * len(paths)

    monkeypatch.setattr(local, "run_pool", run_pool)
    done_alone(jobs[0])
    local.launch(jobs, [["seed=0"], ["seed=1"]], 1)
    assert started == [jobs[1].path]
    done_alone(jobs[1])
    local.launch(jobs, [["seed=0"], ["seed=1"]], 1)
    assert started == [jobs[1].path]
    shown = capsys.readouterr().out
    assert "1 of 2 runs are done, skipped\n" in shown
    assert "2 of 2 runs are done, skipped\n" in shown
    assert shown.count(f"results: {sweep_directory(jobs)}") == 2


def test_a_failure_counts_among_all_runs_of_the_sweep(jobs, monkeypatch):
    monkeypatch.setattr(local, "run_pool", lambda paths, *more: [RunFailed("boom") for _ in paths])
    done_alone(jobs[0])
    with pytest.raises(SweepFailed, match=r"^1 of 2 runs failed, the first with: boom"):
        local.launch(jobs, [["seed=0"], ["seed=1"]], 1)
