import json

import pytest
from synthetic import config_of, make_run, make_sweep

from rigor.errors import UserError
from rigor.report.data.runs import NAMED, find, load
from rigor.runs import job


def test_names_have_the_config_groups_of_jobs():
    assert NAMED == job.NAMED


def test_directories_of_runs_and_of_sweeps(tmp_path):
    pong, gone = make_run(tmp_path, "pong", "time_aware", 0, 3.0), tmp_path / "gone-s1-1a2b3c4d"
    qbert = make_run(tmp_path, "qbert", "time_aware", 0, 3.0)
    sweep = make_sweep(tmp_path, [pong, gone])
    assert find([sweep]) == [pong, gone]
    assert find([qbert]) == [qbert]
    assert find([tmp_path]) == [pong, qbert]  # sweeps/ is not a run
    assert find([sweep, tmp_path, pong]) == [pong, gone, qbert]  # each once


def test_one_run_in_two_places_is_refused(tmp_path):
    """It would count as two seeds."""
    first, second = (make_run(tmp_path / place, "pong", "time_aware", 0, 3.0) for place in "ab")
    with pytest.raises(UserError, match=f"^{second}: the same run as {first}; give one of the two"):
        find([tmp_path / "a", tmp_path / "b"])
    for place in "ab":  # a name of the user's says nothing of the run
        (tmp_path / place / "mine").mkdir()
        (tmp_path / place / "mine" / "config.yaml").write_text("")
    assert len(find([tmp_path / "a" / "mine", tmp_path / "b" / "mine"])) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"runs": 3}', "{}"])
def test_a_broken_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json: not the manifest of a sweep"):
        find([tmp_path])


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no such directory"):
        find([tmp_path / "nowhere"])
    with pytest.raises(UserError, match=r"holds no runs; give the directory of out=DIR"):
        find([tmp_path])


def test_a_finished_run(tmp_path):
    run = load(make_run(tmp_path, "pong", "time_aware", 2, 17.5, rows=100))
    assert run.choices == dict(
        zip(NAMED, ("pong", "multihorizon", "hyperbolic", "mean", "time_aware"), strict=True)
    )
    assert (run.seed, run.state, run.problem, run.is_scored) == (2, "done", "", True)
    assert (run.step, run.steps_total, run.seconds) == (10_000_000, 10_000_000, 7200.0)
    assert run.settings["discount.k"] == 0.05
    assert run.result["score"] == 17.5
    assert list(run.curve["steps"]) == [500_000 * i for i in range(1, 21)]
    assert run.curve["eval_objective"].notna().all()


def test_unfinished_runs(tmp_path):
    queued = load(make_run(tmp_path, "pong", "time_aware", 0, state="queued"))
    assert (queued.state, queued.step, queued.is_scored, len(queued.curve)) == (
        "queued",
        0,
        False,
        0,
    )
    error = "CUDA error: out of memory\nmore\n"
    failed = load(make_run(tmp_path, "pong", "time_aware", 1, state="failed", error=error))
    assert (failed.state, failed.problem) == ("failed", "CUDA error: out of memory")
    killed = load(make_run(tmp_path, "pong", "time_aware", 2, 3.0, state="running"))
    assert (killed.state, killed.problem) == (
        "lost",
        "no process runs it, and its status is not final",
    )
    assert killed.step == 10_000_000  # from the metrics; the status is as old as the checkpoint
    missing = load(tmp_path / "pong-multihorizon-hyperbolic-mean-time_aware-s7-1a2b3c4d")
    assert (missing.state, missing.problem, missing.seed) == ("lost", "its directory is missing", 7)
    assert missing.choices["variant"] == "time_aware"


def test_broken_files_are_reported_and_left_out(tmp_path):
    path = make_run(tmp_path, "pong", "time_aware", 0, 3.0)
    (path / "config.yaml").write_text("a: [")
    (path / "metrics.csv").write_text("junk\n")
    (path / "result.json").write_text("{")
    run = load(path)
    for part in ("not a readable config", "not a metrics file", "result.json is missing or broken"):
        assert part in run.problem
    assert "\n" not in run.problem
    assert (run.settings, run.result, run.is_scored) == ({}, {}, False)


def test_only_finite_numbers_of_a_result_are_kept(tmp_path):
    path = make_run(tmp_path, "pong", "time_aware", 0, 3.0)
    (path / "result.json").write_text(
        '{"score": null, "seconds": "<b>", "regret": 1e999, "objective": 2, "versions": [],'
        ' "commit": "0123456789abcdef+dirty"}'
    )
    run = load(path)
    assert (run.result, run.is_scored, run.seconds) == ({"objective": 2.0}, False, 7200.0)
    assert run.made_by == {
        "commit": "0123456789ab+dirty",
        "device": "not known",
        "versions": "",
    }


def test_a_renamed_directory_is_read_from_its_config(tmp_path):
    path = make_run(tmp_path, "pong", "time_aware", 4, 3.0)
    run = load(path.rename(tmp_path / "mine"))
    assert (run.seed, run.choices["env"], run.choices["discount"]) == (4, "pong", "hyperbolic")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "status.json").write_text(json.dumps({"state": "queued"}))
    assert load(tmp_path / "other").choices["env"] == "other"
    assert config_of("pong", "x", 0)["variant"] == {"_target_": "rigor.config.schemas.Variant"}
