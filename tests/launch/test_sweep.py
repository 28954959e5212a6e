import json
from pathlib import Path

import numpy as np
import pytest
from hydra.core.utils import JobReturn, JobStatus

from rigor.errors import RunFailed, UserError
from rigor.launch import sweep
from rigor.launch.job import Job
from rigor.tracking.rundir import RunDirectory


class Steps:
    """Stands for the only part of a config that is read here."""

    def __init__(self, steps: int) -> None:
        self.train = self
        self.steps = steps


def job(out: Path, name: str, seed: int, env: str = "atari/pong") -> Job:
    digest = f"{name}{seed}".encode().hex()
    path = out / f"pong-{name}-s{seed}-{digest[:8]}"
    return Job(Steps(100), {}, digest, path, {"env": env, "agent": "multihorizon", "risk": name})


@pytest.fixture
def jobs(tmp_path):
    return [job(tmp_path, "mean", seed) for seed in (0, 1)] + [job(tmp_path, "cvar", 0)]


def overrides(jobs):
    return [[f"job={number}"] for number in range(len(jobs))]


def test_a_sweep_is_named_by_what_its_jobs_share(jobs, tmp_path):
    found = sweep.sweep_directory(jobs)
    assert found.parent == tmp_path / "sweeps"
    assert found.name.startswith("pong-multihorizon-3runs-")  # they differ in the risk
    assert sweep.sweep_directory(jobs[:2]).name.startswith("pong-multihorizon-mean-2runs-")
    assert sweep.sweep_directory(jobs[::-1]) == found  # the order of the values is no difference
    assert sweep.sweep_directory(jobs[:2]) != sweep.sweep_directory(jobs[1:])


def test_the_manifest_says_which_runs_belong_to_it(jobs, tmp_path):
    directory = sweep.write_manifest(jobs, overrides(jobs))
    assert [path.name for path in directory.iterdir()] == ["manifest.json"]
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest == {
        "overrides": [["job=0"], ["job=1"], ["job=2"]],
        "runs": [f"../../{one.path.name}" for one in jobs],
        "hashes": [one.digest for one in jobs],
    }


def test_twins_are_refused_before_anything_is_written(jobs, tmp_path):
    twins = [*jobs, jobs[1]]
    with pytest.raises(UserError) as caught:
        sweep.write_manifest(twins, overrides(twins))
    assert str(caught.value).startswith("jobs 1 (job=1) and 3 (job=3) are the same run; ")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_the_users_to_mend(tmp_path):
    (tmp_path / "file").write_text("")
    one = job(tmp_path / "file", "mean", 0)
    with pytest.raises(UserError, match="out=DIR"):
        sweep.write_manifest([one], [["seed=0"]])


def test_runs_that_have_not_begun_are_queued_and_others_left_alone(jobs):
    done = RunDirectory(jobs[0].path)
    done.path.mkdir()
    done.write_status("done", step=100)
    before = done.status()
    sweep.queue(jobs)
    assert done.status() == before
    status = RunDirectory(jobs[1].path).status()
    assert (status["state"], status["step"], status["steps_total"]) == ("queued", 0, 100)
    assert status["started"] is None


def test_the_summary_is_shown_and_written(jobs, capsys):
    directory = sweep.write_manifest(jobs, overrides(jobs))
    sweep.queue(jobs)
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
    directory = sweep.write_manifest(jobs, overrides(jobs))
    sweep.queue(jobs)
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
    directory = sweep.write_manifest(jobs, overrides(jobs))
    sweep.queue(jobs)
    for one in jobs[:2]:  # the last has not begun
        solved(one)
    assert shown(jobs, directory, capsys) == ["outcomes.png"]
    assert (directory / "table.txt").read_text().count(" exact ") == 2


def test_exact_and_learned_runs_show_both(jobs, capsys):
    directory = sweep.write_manifest(jobs, overrides(jobs))
    sweep.queue(jobs)
    solved(jobs[0])
    RunDirectory(jobs[1].path).metrics_path.write_text("steps,eval_score\n100,3.0\n")
    assert shown(jobs, directory, capsys) == ["outcomes.png", "learning_curves.png"]


def test_a_broken_file_hides_no_other_run(jobs, capsys):
    directory = sweep.write_manifest(jobs, overrides(jobs))
    sweep.queue(jobs)
    for one in jobs[:2]:
        solved(one)
    (jobs[0].path / "outcomes.npz").write_bytes(b"half a file")
    sweep.summarise([one.path for one in jobs], directory)
    out = capsys.readouterr().out
    assert "outcomes.npz: not the outcomes of a run" in out
    assert f"picture: {directory / 'outcomes.png'}" in out


def returned(value: object) -> JobReturn:
    failed = isinstance(value, Exception)
    result = JobReturn(status=JobStatus.FAILED if failed else JobStatus.COMPLETED)
    result.return_value = value
    return result


def test_no_failure_raises_nothing():
    sweep.raise_failures([returned(1.0), returned(2.0)])
    sweep.raise_failures([])


def test_our_failure_is_code_1_and_the_users_alone_code_2():
    user, ours = UserError("device=cuda: no GPU"), RunFailed("ValueError: boom")
    with pytest.raises(sweep.SweepFailed, match=r"^1 of 2 runs failed.*no GPU") as caught:
        sweep.raise_failures([returned(user), returned(1.0)])
    assert caught.value.code == 2
    with pytest.raises(sweep.SweepFailed, match=r"^2 of 3 runs failed.*boom") as caught:
        sweep.raise_failures([returned(user), returned(ours), returned(1.0)])
    assert caught.value.code == 1
