import pytest

from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash, directory_name
from rigor.runs.job import Job
from rigor.runs.relatives import hint


def made(out, seed=0, steps=100, schedule=None, code=None, lr=1e-3):
    train = {"steps": steps, "schedule_steps": schedule or steps, "learning_rate": lr}
    plain = {"env": {"k": 1}, "train": train, "seed": seed}
    plain |= {"code": code} if code else {}
    digest = config_hash(plain)
    return Job(plain, digest, out / directory_name({"env": "cartpole"}, seed, digest))


@pytest.fixture
def finished(tmp_path):
    """A run of 100 steps with code of the user."""
    old = made(tmp_path, code={"my_choices": "1234567890123456"})
    RunDirectory.open(old.path, old.plain, old.digest).close()
    return old


def test_raised_steps_name_the_run_that_could_be_extended(tmp_path, finished):
    same = finished.plain["code"]
    line = hint([made(tmp_path, 1, 200, code=same), made(tmp_path, 0, 200, code=same)])
    assert line.startswith(f"{finished.path} is the same run with a schedule of 100 steps; ")
    assert "add train.schedule_steps=100, and train.restart_schedule=true" in line
    assert hint([made(tmp_path, 0, 200, schedule=100, code=same)]) is None  # it extends the run
    assert hint([made(tmp_path, 0, 50, code=same)]) is None
    assert hint([made(tmp_path, 0, 200, code=same, lr=1e-2)]) is None


def test_edited_code_names_the_run_of_the_old_code(tmp_path, finished):
    line = hint([made(tmp_path, code={"my_choices": "fedc"})])
    assert line.startswith(f"{finished.path} is the same run with other code of my_choices; this ")
    assert hint([made(tmp_path, code={"my_choices": "fedc"}, lr=1e-2)]) is None


def test_a_known_run_and_a_new_place_have_no_hint(tmp_path, finished):
    assert hint([finished]) is None
    assert hint([made(tmp_path / "new", 0, 200)]) is None
