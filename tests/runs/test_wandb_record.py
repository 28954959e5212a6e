from pathlib import Path

import pytest

from rigor.runs.wandb_record import MirrorRecord
from rigor.runs.wandb_sink import Sink

ROWS = "steps,loss,eval_score\n0,,1.0\n10,0.5,\n20,0.25,2.5\n"


@pytest.fixture
def run(tmp_path):
    """A run directory with three rows of metrics."""
    (tmp_path / "wandb").mkdir()
    (tmp_path / "metrics.csv").write_text(ROWS)
    return tmp_path


def session(run, name, *files) -> Path:
    folder = run / "wandb" / name
    folder.mkdir(parents=True)
    for file in ("run-x.wandb", *files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


class Mirror:
    """A W&B run that keeps its rows."""

    def __init__(self, run):
        self.rows, self.summary = [], {}
        self.dir = str(run / "wandb" / "offline-run-2-b" / "files")

    def log(self, row):
        self.rows.append(row)

    def finish(self, exit_code):
        pass


def test_the_rows_of_a_killed_session_are_sent_again(run):
    record = MirrorRecord(run / "wandb", "offline")
    record.begin()
    killed = session(run, "offline-run-1-a")
    again = MirrorRecord.read(run)
    assert (again.steps, again.unsettled()) == (-1, [killed])
    assert again.lacks_rows(run / "metrics.csv")
    again.begin()
    assert not killed.exists()
    mirror = Mirror(run)
    sink = Sink(mirror, run, print, "pong", record=again)
    sink.catch_up()
    assert mirror.rows == [
        {"steps": 0, "eval_score": 1.0, "score/pong": 1.0},
        {"steps": 10, "loss": 0.5},
        {"steps": 20, "loss": 0.25, "eval_score": 2.5, "score/pong": 2.5},
    ]
    sink.log({"steps": 30})
    sink.finish(0, {})
    (run / "metrics.csv").write_text(ROWS + "30,0.1,\n")
    settled = MirrorRecord.read(run)
    assert (settled.steps, settled.sessions) == (30, ["offline-run-2-b"])
    assert not settled.lacks_rows(run / "metrics.csv")


def test_rows_that_wandb_has_are_not_sent_again(run):
    record = MirrorRecord(run / "wandb", "offline", steps=10)
    mirror = Mirror(run)
    Sink(mirror, run, print, record=record).catch_up()
    assert [row["steps"] for row in mirror.rows] == [20]


def test_uploaded_files_and_tables_of_episodes_stay(run):
    record = MirrorRecord(run / "wandb", "offline", sessions=["offline-run-0-z"])
    kept = [
        session(run, "offline-run-0-z"),
        session(run, "offline-run-1-a", "run-x.wandb.synced"),
        session(run, "offline-run-2-b", "files/media/table/eval_episodes_1.json"),
        session(run, "run-3-c"),  # online
    ]
    record.begin()
    assert all(folder.exists() for folder in kept)
    assert MirrorRecord.read(run).unsettled() == []


@pytest.mark.parametrize(
    "text", ["", "{}", '{"mode": "no", "steps": 1, "sessions": []}', '{"mode": "offline"}']
)
def test_a_run_of_an_older_version_has_no_record(run, text):
    assert MirrorRecord.read(run) is None
    (run / "wandb" / "mirrored.json").write_text(text)
    assert MirrorRecord.read(run) is None
