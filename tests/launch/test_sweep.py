import json
import os
from pathlib import Path

import numpy as np
import pytest

from rigor.errors import RunFailed, UserError
from rigor.launch import sweep
from rigor.launch.manifest import new_manifest
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash
from rigor.runs.job import Job


def make_job(out: Path, name: str, seed: int, env: str = "atari/pong") -> Job:
    plain = {"seed": seed, "risk": {"name": name}, "train": {"steps": 100}}
    plain["choices"] = {"env": env, "agent": "multihorizon", "risk": name}
    digest = config_hash(plain)
    path = out / f"pong-{name}-s{seed}-{digest[:8]}"
    return Job(plain, digest, path)


@pytest.fixture
def jobs(tmp_path):
    return [make_job(tmp_path, "mean", seed) for seed in (0, 1)] + [make_job(tmp_path, "cvar", 0)]


def overrides(jobs):
    return [[f"job={number}"] for number in range(len(jobs))]


LOCAL = {"name": "local", "n_jobs": 2}


def written(jobs) -> Path:
    """Write the manifest of some jobs and return its directory."""
    directory = sweep.sweep_directory(jobs)
    directory.mkdir(parents=True)
    new_manifest(jobs, overrides(jobs), LOCAL, directory)
    return directory


def test_a_sweep_is_named_by_the_common_options_of_its_jobs(jobs, tmp_path):
    found = sweep.sweep_directory(jobs)
    assert found.parent == tmp_path / "sweeps"
    assert found.name.startswith("pong-multihorizon-3runs-")  # they differ in the risk
    assert sweep.sweep_directory(jobs[:2]).name.startswith("pong-multihorizon-mean-2runs-")
    assert sweep.sweep_directory(jobs[::-1]) == found  # the order does not matter
    assert sweep.sweep_directory(jobs[:2]) != sweep.sweep_directory(jobs[1:])


def test_one_process_at_a_time_works_on_a_sweep(tmp_path):
    with (
        sweep.claimed(tmp_path / "sweep"),
        pytest.raises(UserError, match="another process runs there"),
        sweep.claimed(tmp_path / "sweep"),
    ):
        pass
    with sweep.claimed(tmp_path / "sweep"):
        pass


def test_duplicates_are_refused(jobs):
    duplicates = [*jobs, jobs[1]]
    with pytest.raises(UserError) as caught:
        sweep.refuse_duplicates(duplicates, overrides(duplicates))
    assert str(caught.value).startswith("jobs 1 (job=1) and 3 (job=3) are the same run; ")


def test_an_unwritable_directory_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="out=DIR"),
        sweep.claimed(tmp_path / "file" / "sweeps" / "x"),
    ):
        pass


def test_runs_that_are_neither_done_nor_running_are_queued(jobs):
    sweep.enqueue_all(jobs, "first")
    done, failed, running = (RunDirectory(job.path) for job in jobs)
    done.write_status("done", step=100)
    done.write_result({"objective": 1.0})
    failed.write_status("failed", step=30, error="ValueError: no")
    with RunDirectory.open(running.path, jobs[2].plain, jobs[2].digest):
        running.write_status("running")
        before = done.status(), running.status()
        sweep.enqueue_all(jobs, "second")
        assert (done.status(), running.status()) == before
    status = failed.status()
    assert (status["state"], status["step"], status["steps_total"]) == ("queued", 30, 100)
    assert status["error"] is None
    assert failed.config() == jobs[1].plain | {"sweep": "second"}
    launched = json.loads((failed.path / "job.json").read_text())
    assert launched == {"cwd": os.getcwd()}


def test_a_longer_run_is_queued_again(jobs):
    sweep.enqueue_all(jobs[:1], "first")
    RunDirectory(jobs[0].path).write_status("done", step=99)
    sweep.enqueue_all(jobs[:1], "second")
    assert RunDirectory(jobs[0].path).state() == "queued"


def test_a_directory_of_another_run_is_refused_before_anything_starts(jobs):
    jobs[0].path.mkdir(parents=True)
    (jobs[0].path / "config.yaml").write_text("seed: 7\n")
    with pytest.raises(UserError, match="holds a run of another config"):
        sweep.enqueue_all(jobs, "name")
    assert not jobs[1].path.exists()


def test_the_summary_is_printed_and_written(jobs, capsys):
    directory = written(jobs)
    sweep.enqueue_all(jobs, "name")
    run = RunDirectory(jobs[0].path)
    run.metrics_path.write_text(
        "steps,eval_score,eval_score_low,eval_score_high\n100,3.0,2.0,4.0\n"
    )
    run.write_result({"score": 3.0, "score_low": 2.0, "score_high": 4.0, "objective": 1.5})
    run.write_status("done", step=100)
    RunDirectory(jobs[2].path).write_status("failed", error="ValueError: no")
    sweep.summarise([job.path for job in jobs], directory)
    shown = capsys.readouterr().out
    for text in (shown, (directory / "table.txt").read_text()):
        assert "\x1b" not in text
        for part in ("done", "queued", "failed", "ValueError: no", "3 [2, 4]", "1.5"):
            assert part in text
    assert f"figure: {directory / 'learning_curves.png'}" in shown
    assert (directory / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_without_a_started_run_can_be_summarised(jobs, capsys):
    directory = written(jobs)
    sweep.enqueue_all(jobs, "name")
    sweep.summarise([job.path for job in jobs], directory)
    assert capsys.readouterr().out.count("queued") == 3


def solve(job: Job) -> None:
    """Write the files of an exact agent."""
    run = RunDirectory(job.path)
    run.write_status("done", step=0, steps_total=0)
    run.write_result({"objective": 3.0})
    run.metrics_path.write_text("steps,eval_score\n0,3.0\n")
    np.savez(run.path / "outcomes.npz", returns=[0.0, 4.0], probabilities=[0.25, 0.75])


def shown(jobs, directory, capsys) -> list[str]:
    """Return the names of the figures that a summary shows and writes."""
    sweep.summarise([job.path for job in jobs], directory)
    lines = capsys.readouterr().out.splitlines()
    figures = [Path(line.removeprefix("figure: ")) for line in lines if "figure: " in line]
    assert sorted(figures) == sorted(directory.glob("*.png"))
    return [path.name for path in figures]


def test_exact_runs_show_their_return_distributions(jobs, capsys):
    directory = written(jobs)
    sweep.enqueue_all(jobs, "name")
    for job in jobs[:2]:  # the last has not started
        solve(job)
    assert shown(jobs, directory, capsys) == ["outcomes.png"]
    assert (directory / "table.txt").read_text().count(" exact ") == 2


def test_exact_and_learned_runs_show_both(jobs, capsys):
    directory = written(jobs)
    sweep.enqueue_all(jobs, "name")
    solve(jobs[0])
    RunDirectory(jobs[1].path).metrics_path.write_text("steps,eval_score\n100,3.0\n")
    assert shown(jobs, directory, capsys) == ["outcomes.png", "learning_curves.png"]


def test_a_broken_file_does_not_affect_other_runs(jobs, capsys):
    directory = written(jobs)
    sweep.enqueue_all(jobs, "name")
    for job in jobs[:2]:
        solve(job)
    (jobs[0].path / "outcomes.npz").write_bytes(b"half a file")
    sweep.summarise([job.path for job in jobs], directory)
    out = capsys.readouterr().out
    assert "outcomes.npz: not the outcomes of a run" in out
    assert f"figure: {directory / 'outcomes.png'}" in out


def test_without_a_failure_no_error_is_raised():
    sweep.raise_failures([None, None])
    sweep.raise_failures([])


def test_a_bug_has_exit_code_1_and_mistakes_of_the_user_code_2():
    user, bug = UserError("device=cuda: no GPU"), RunFailed("ValueError: boom")
    with pytest.raises(sweep.SweepFailed, match=r"^1 of 2 runs failed.*no GPU") as caught:
        sweep.raise_failures([user, None])
    assert caught.value.code == 2
    with pytest.raises(sweep.SweepFailed, match=r"^2 of 3 runs failed.*boom") as caught:
        sweep.raise_failures([user, None, bug])
    assert caught.value.code == 1
