import json
from pathlib import Path

import pytest

from rigor.errors import UserError
from rigor.launch.manifest import Submission, new_manifest, read_manifest
from rigor.launch.sweep import sweep_directory
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
    directory = sweep_directory(jobs)
    directory.mkdir(parents=True)
    new_manifest(jobs, overrides(jobs), LOCAL, directory)
    return directory


def test_the_manifest_lists_the_runs_of_the_sweep(jobs, tmp_path):
    directory = written(jobs)
    assert [path.name for path in directory.iterdir()] == ["manifest.json"]
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest == {
        "launcher": LOCAL,
        "overrides": [["job=0"], ["job=1"], ["job=2"]],
        "runs": [f"../../{job.path.name}" for job in jobs],
        "hashes": [job.digest for job in jobs],
        "submissions": [],
    }
    found = read_manifest(directory)
    assert (found.runs, found.launcher) == ([job.path for job in jobs], LOCAL)


def test_earlier_submissions_stay_in_the_manifest(jobs):
    directory = written(jobs)
    manifest = read_manifest(directory)
    manifest.submissions.append(Submission("some.0", "17", [[0, 2], [1]]))
    manifest.write(directory)
    again = new_manifest(jobs, overrides(jobs), LOCAL, directory)
    assert again.submissions == manifest.submissions
    assert read_manifest(directory) == again


def test_the_same_sweep_in_another_order_keeps_its_tasks(jobs):
    directory = written(jobs)
    manifest = read_manifest(directory)
    manifest.submissions.append(Submission("some.0", "17", [[0, 2], [1]]))
    manifest.write(directory)
    reordered = [jobs[1], jobs[2], jobs[0]]
    assert sweep_directory(reordered) == directory
    again = new_manifest(reordered, overrides(reordered), LOCAL, directory)
    assert again.submissions == [Submission("some.0", "17", [[2, 1], [0]])]
    assert read_manifest(directory) == again
    # a run that is no longer a member leaves its task, and the tasks keep their numbers
    fewer = new_manifest([jobs[1]], [[]], LOCAL, directory)
    assert fewer.submissions == [Submission("some.0", "17", [[], [0]])]


def test_another_directory_is_refused(tmp_path):
    whole = {"runs": ["a"], "launcher": LOCAL, "overrides": [[]], "hashes": ["1a"]}
    whole["submissions"] = [{"name": "some.0", "job": "17", "tasks": [[0]]}]
    others = [
        {"launcher": None},
        {"launcher": {}},
        {"runs": [3]},
        {"runs": "ab"},
        {"hashes": None},
        {"submissions": [{"name": "some.0", "job": "17", "tasks": [[1]]}]},
        {"submissions": [{"name": "some.0", "job": "17", "tasks": [["0"]]}]},
        {"submissions": [3]},
    ]
    texts = [json.dumps(whole | other) for other in others]
    for text in (None, "{", "[]", '{"hashes": []}', "[" * 100_000, *texts):
        if text is not None:
            (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(UserError, match="not a sweep's directory"):
            read_manifest(tmp_path)
