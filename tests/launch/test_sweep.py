import json
import os
from pathlib import Path

import numpy as np
import pytest

from rigor.errors import RunFailed, UserError
from rigor.launch import sweep
from rigor.launch.job import Job
from rigor.tracking.rundir import RunDirectory, config_hash


def job(out: Path, name: str, seed: int, env: str = "atari/pong") -> Job:
    plain = {"seed": seed, "risk": {"name": name}, "train": {"steps": 100}}
    digest = config_hash(plain)
    path = out / f"pong-{name}-s{seed}-{digest[:8]}"
    return Job(plain, digest, path, {"env": env, "agent": "multihorizon", "risk": name})


@pytest.fixture
def jobs(tmp_path):
    return [job(tmp_path, "mean", seed) for seed in (0, 1)] + [job(tmp_path, "cvar", 0)]


def overrides(jobs):
    return [[f"job={number}"] for number in range(len(jobs))]


LOCAL = {"name": "local", "n_jobs": 2}


def written(jobs) -> Path:
    """Write the manifest of some jobs and return its directory."""
    directory = sweep.sweep_directory(jobs)
    directory.mkdir(parents=True)
    sweep.new_manifest(jobs, overrides(jobs), LOCAL, directory)
    return directory


def test_a_sweep_is_named_by_what_its_jobs_share(jobs, tmp_path):
    found = sweep.sweep_directory(jobs)
    assert found.parent == tmp_path / "sweeps"
    assert found.name.startswith("pong-multihorizon-3runs-")  # they differ in the risk
    assert sweep.sweep_directory(jobs[:2]).name.startswith("pong-multihorizon-mean-2runs-")
    assert sweep.sweep_directory(jobs[::-1]) == found  # the order of the values is no difference
    assert sweep.sweep_directory(jobs[:2]) != sweep.sweep_directory(jobs[1:])


def test_the_manifest_says_which_runs_belong_to_it(jobs, tmp_path):
    directory = written(jobs)
    assert [path.name for path in directory.iterdir()] == ["manifest.json"]
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest == {
        "launcher": LOCAL,
        "overrides": [["job=0"], ["job=1"], ["job=2"]],
        "runs": [f"../../{one.path.name}" for one in jobs],
        "hashes": [one.digest for one in jobs],
        "submissions": [],
    }
    found = sweep.read_manifest(directory)
    assert (found.runs, found.launcher) == ([one.path for one in jobs], LOCAL)


def test_what_was_submitted_before_stays_in_the_manifest(jobs):
    directory = written(jobs)
    manifest = sweep.read_manifest(directory)
    manifest.submissions.append(sweep.Submission("some.0", "17", [[0, 2], [1]]))
    manifest.write(directory)
    again = sweep.new_manifest(jobs, overrides(jobs), LOCAL, directory)
    assert again.submissions == manifest.submissions
    assert sweep.read_manifest(directory) == again


def test_the_same_sweep_in_another_order_keeps_its_tasks(jobs):
    directory = written(jobs)
    manifest = sweep.read_manifest(directory)
    manifest.submissions.append(sweep.Submission("some.0", "17", [[0, 2], [1]]))
    manifest.write(directory)
    turned = [jobs[1], jobs[2], jobs[0]]
    assert sweep.sweep_directory(turned) == directory
    again = sweep.new_manifest(turned, overrides(turned), LOCAL, directory)
    assert again.submissions == [sweep.Submission("some.0", "17", [[2, 1], [0]])]
    assert sweep.read_manifest(directory) == again
    # a run that is no member any more leaves its task, and no other task another number
    fewer = sweep.new_manifest([jobs[1]], [[]], LOCAL, directory)
    assert fewer.submissions == [sweep.Submission("some.0", "17", [[], [0]])]


def test_another_directory_is_no_sweep(tmp_path):
    for text in (None, "{", "[]", '{"hashes": []}'):
        if text is not None:
            (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(UserError, match="not a sweep's directory"):
            sweep.read_manifest(tmp_path)


def test_one_process_at_a_time_works_on_a_sweep(tmp_path):
    with (
        sweep.claimed(tmp_path / "sweep"),
        pytest.raises(UserError, match="another process runs there"),
        sweep.claimed(tmp_path / "sweep"),
    ):
        pass
    with sweep.claimed(tmp_path / "sweep"):
        pass


def test_twins_are_refused(jobs):
    twins = [*jobs, jobs[1]]
    with pytest.raises(UserError) as caught:
        sweep.refuse_twins(twins, overrides(twins))
    assert str(caught.value).startswith("jobs 1 (job=1) and 3 (job=3) are the same run; ")


def test_an_unwritable_place_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="out=DIR"),
        sweep.claimed(tmp_path / "file" / "sweeps" / "x"),
    ):
        pass


def test_what_is_neither_done_nor_running_is_queued_with_all_a_worker_needs(jobs):
    sweep.queue(jobs, "first")
    done, failed, running = (RunDirectory(one.path) for one in jobs)
    done.write_status("done", step=100)
    failed.write_status("failed", step=30, error="ValueError: no")
    with RunDirectory.open(running.path, jobs[2].plain, jobs[2].digest):
        running.write_status("running")
        before = done.status(), running.status()
        sweep.queue(jobs, "second")
        assert (done.status(), running.status()) == before
    status = failed.status()
    assert (status["state"], status["step"], status["steps_total"]) == ("queued", 30, 100)
    assert status["error"] is None
    assert failed.config() == jobs[1].plain | {"sweep": "second"}
    beside = json.loads((failed.path / "job.json").read_text())
    assert beside == {"choices": jobs[1].choices, "cwd": os.getcwd()}


def test_a_longer_run_is_queued_again(jobs):
    sweep.queue(jobs[:1], "first")
    RunDirectory(jobs[0].path).write_status("done", step=99)
    sweep.queue(jobs[:1], "second")
    assert RunDirectory(jobs[0].path).state() == "queued"


def test_a_directory_of_another_run_is_refused_before_anything_starts(jobs):
    jobs[0].path.mkdir(parents=True)
    (jobs[0].path / "config.yaml").write_text("seed: 7\n")
    with pytest.raises(UserError, match="holds a run of another config"):
        sweep.queue(jobs, "name")
    assert not jobs[1].path.exists()


def test_the_summary_is_shown_and_written(jobs, capsys):
    directory = written(jobs)
    sweep.queue(jobs, "name")
    run = RunDirectory(jobs[0].path)
    run.metrics_path.write_text(
        "steps,eval_score,eval_score_low,eval_score_high\n100,3.0,2.0,4.0\n"
    )
    run.write_result({"return_mean": 3.0, "return_low": 2.0, "return_high": 4.0, "objective": 1.5})
    run.write_status("done", step=100)
    RunDirectory(jobs[2].path).write_status("failed", error="ValueError: no")
    sweep.summarise([one.path for one in jobs], directory)
    shown = capsys.readouterr().out
    for text in (shown, (directory / "table.txt").read_text()):
        assert "\x1b" not in text
        for part in ("done", "queued", "failed", "ValueError: no", "3 [2, 4]", "1.5"):
            assert part in text
    assert f"picture: {directory / 'learning_curves.png'}" in shown
    assert (directory / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_which_nothing_has_begun_can_be_shown(jobs, capsys):
    directory = written(jobs)
    sweep.queue(jobs, "name")
    sweep.summarise([one.path for one in jobs], directory)
    assert capsys.readouterr().out.count("queued") == 3


def solved(one: Job) -> None:
    """Leave behind what an exact agent does."""
    run = RunDirectory(one.path)
    run.write_status("done", step=0, steps_total=0)
    run.metrics_path.write_text("steps,eval_score\n0,3.0\n")
    np.savez(run.path / "outcomes.npz", returns=[0.0, 4.0], probabilities=[0.25, 0.75])


def shown(jobs, directory, capsys) -> list[str]:
    """Return the names of the pictures that a summary shows and writes."""
    sweep.summarise([one.path for one in jobs], directory)
    lines = capsys.readouterr().out.splitlines()
    pictures = [Path(line.removeprefix("picture: ")) for line in lines if "picture: " in line]
    assert sorted(pictures) == sorted(directory.glob("*.png"))
    return [path.name for path in pictures]


def test_exact_runs_show_their_outcomes(jobs, capsys):
    directory = written(jobs)
    sweep.queue(jobs, "name")
    for one in jobs[:2]:  # the last has not begun
        solved(one)
    assert shown(jobs, directory, capsys) == ["outcomes.png"]
    assert (directory / "table.txt").read_text().count(" exact ") == 2


def test_exact_and_learned_runs_show_both(jobs, capsys):
    directory = written(jobs)
    sweep.queue(jobs, "name")
    solved(jobs[0])
    RunDirectory(jobs[1].path).metrics_path.write_text("steps,eval_score\n100,3.0\n")
    assert shown(jobs, directory, capsys) == ["outcomes.png", "learning_curves.png"]


def test_a_broken_file_hides_no_other_run(jobs, capsys):
    directory = written(jobs)
    sweep.queue(jobs, "name")
    for one in jobs[:2]:
        solved(one)
    (jobs[0].path / "outcomes.npz").write_bytes(b"half a file")
    sweep.summarise([one.path for one in jobs], directory)
    out = capsys.readouterr().out
    assert "outcomes.npz: not the outcomes of a run" in out
    assert f"picture: {directory / 'outcomes.png'}" in out


def test_no_failure_raises_nothing():
    sweep.raise_failures([None, None])
    sweep.raise_failures([])


def test_our_failure_is_code_1_and_the_users_alone_code_2():
    user, ours = UserError("device=cuda: no GPU"), RunFailed("ValueError: boom")
    with pytest.raises(sweep.SweepFailed, match=r"^1 of 2 runs failed.*no GPU") as caught:
        sweep.raise_failures([user, None])
    assert caught.value.code == 2
    with pytest.raises(sweep.SweepFailed, match=r"^2 of 3 runs failed.*boom") as caught:
        sweep.raise_failures([user, None, ours])
    assert caught.value.code == 1
