import json
import os
import subprocess
import sys

import pytest

from rigor.config.schemas import Tracker
from rigor.errors import UserError
from rigor.runs import wandb_sink
from rigor.runs.wandb_login import has_key
from rigor.runs.wandb_sink import Sink, open_sink

NAMES = {
    "group": "sweep",
    "name": "run · s0",
    "tags": ["mean", "x" * 70],
    "job_type": "train",
    "problem": "pong",
}

MIRROR = """
import json, os, signal, sys, time
from pathlib import Path
from rigor.config.schemas import Tracker
from rigor.runs.wandb_sink import open_sink
folder, kill = Path(sys.argv[1]), sys.argv[2] == "kill"
names = {"group": "sweep", "name": "run", "tags": ["mean"], "job_type": "train", "problem": "pong"}
sink = open_sink(Tracker("wandb", "auto", "project", True), folder, {"seed": 3}, names, print)
assert sink.active
for step in range(5):
    sink.log({"steps": 10 * step, "loss": 0.5, "eval_score": 3.0 - step, "empty": None})
sink.log_episodes(40, {"score": [1.0, 2.0], "length": [7, 9]})
if kill:
    import psutil
    for child in psutil.Process().children(recursive=True):
        child.kill()
    deadline = time.monotonic() + 10
    while sink.active and time.monotonic() < deadline:
        sink.log({"steps": 100, "loss": 0.5})
        time.sleep(0.01)
    assert not sink.active
(folder / "metrics.csv").write_text("steps,eval_score\\n0,9.0\\n40,-1.0\\n")
sink.finish(0, {"objective": 1.5, "scores": [1.0], "versions": {"a": "1"}, "device": "cpu"})
"""


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def mirror(folder, mode):
    return subprocess.run(
        [sys.executable, "-c", MIRROR, str(folder), mode],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_offline_run_is_written_into_the_run_directory(tmp_path):
    done = mirror(tmp_path, "keep")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (written,) = (tmp_path / "wandb").glob("offline-run-*")
    assert written.name.endswith((tmp_path / "wandb" / "id").read_text().strip())
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", written]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["state"] == "finished"
    assert found["config"]["seed"] == 3
    assert found["summary"]["steps"] == 40
    assert found["summary"]["loss"] == 0.5
    assert found["summary"]["objective"] == 1.5
    assert found["summary"]["score/pong"] == -1.0
    assert found["summary"]["device"] == "cpu"
    # of the whole run, including rows that this W&B session has not received
    assert found["summary"]["eval_score"] == {"max": 9.0, "last": -1.0}
    assert not {"empty", "scores", "versions"} & set(found["summary"])
    (table,) = written.glob("files/media/table/eval_episodes_*.json")
    kept = json.loads(table.read_text())
    assert (kept["columns"], kept["data"]) == (["score", "length"], [[1.0, 7.0], [2.0, 9.0]])


def test_variables_that_would_make_runs_one_are_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("WANDB_SWEEP_ID", "agent")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        done = mirror(folder, "keep")
        assert done.returncode == 0
        (written,) = (folder / "wandb").glob("offline-run-*")
        assert written.name.endswith((folder / "wandb" / "id").read_text().strip())
        assert "W&B: WANDB_RUN_ID=mine is ignored: every run has an id of its own" in done.stdout
        assert "W&B: WANDB_SWEEP_ID=agent is ignored" in done.stdout
    assert len({(folder / "wandb" / "id").read_text() for folder in folders}) == 2


def test_a_dead_service_does_not_stop_the_run(tmp_path):
    done = mirror(tmp_path, "kill")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("W&B: no longer mirrored") == 1
    assert "W&B" not in done.stderr


class Broken:
    summary: dict = {}  # noqa: RUF012

    def __init__(self):
        self.calls = 0

    def log(self, row):
        self.calls += 1
        raise RuntimeError("first line\nsecond line")

    def finish(self, exit_code):
        raise OSError("gone")


def test_a_failure_is_reported_once_and_ends_the_copy(tmp_path, caplog):
    run, notes = Broken(), []
    sink = Sink(run, tmp_path, notes.append)
    for step in range(3):
        sink.log({"steps": step})
    sink.finish(0, {})
    assert run.calls == 1
    assert not sink.active
    text = "W&B: no longer mirrored (RuntimeError: first line); metrics.csv has everything"
    assert notes == [text]
    # in a worker rigor's own records would double the line in train.log
    assert not [record for record in caplog.records if record.name.startswith("rigor")]


def test_tables_of_episodes_are_optional(tmp_path):
    run = Broken()
    Sink(run, tmp_path, print).log_episodes(0, {"score": [1.0]})
    assert run.calls == 0
    sink = Sink(run, tmp_path, print, episodes=True)
    sink.log_episodes(0, {"score": [1.0]})
    assert (run.calls, sink.active) == (1, False)


def test_a_failing_finish_is_reported(tmp_path):
    notes = []
    Sink(Broken(), tmp_path, notes.append).finish(1, {})
    assert "OSError: gone" in notes[0]


def test_a_failure_on_a_full_disk_does_not_stop_the_run(tmp_path):
    def note(text):
        raise UserError("no space left")

    sink = Sink(Broken(), tmp_path, note)
    sink.log({"steps": 0})
    assert not sink.active


def test_the_null_sink_does_nothing(tmp_path):
    sink = open_sink(Tracker("none", "auto", "p", False), tmp_path, {}, {}, print)
    sink.log({"steps": 1})
    sink.finish(0, {})
    assert not sink.active
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_directory_is_reported_and_no_other_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(wandb_sink.os, "access", lambda path, mode: False)
    notes = []
    sink = open_sink(Tracker("wandb", "offline", "p", False), tmp_path, {}, NAMES, notes.append)
    assert not sink.active
    assert "is not writable" in notes[0]
    (tmp_path / "wandb").rmdir()
    (tmp_path / "wandb").write_text("in the way")
    tracker = Tracker("wandb", "offline", "p", False)
    assert not open_sink(tracker, tmp_path, {}, NAMES, notes.append).active


def test_a_missing_wandb_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    tracker, notes = Tracker("wandb", "offline", "p", False), []
    assert not open_sink(tracker, tmp_path, {}, NAMES, notes.append).active
    assert "not mirrored (ModuleNotFoundError" in notes[0]


def test_the_key_is_looked_up_without_wandb(tmp_path, monkeypatch):
    assert not has_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai\n login user\n password secret\n")
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert has_key()
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "netrc").write_text("rubbish {{{")
    assert not has_key()


@pytest.mark.parametrize(
    ("mode", "variable", "key", "meant"),
    [
        ("auto", None, None, "offline"),
        ("auto", None, "secret", "online"),
        ("auto", "disabled", "secret", "disabled"),
        ("auto", "offline", "secret", "offline"),
        ("offline", "online", "secret", "offline"),
        ("online", "offline", "secret", "online"),
    ],
)
def test_modes(monkeypatch, mode, variable, key, meant):
    if variable:
        monkeypatch.setenv("WANDB_MODE", variable)
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    assert wandb_sink._mode(Tracker("wandb", mode, "p", False)) == meant


def test_online_without_a_key_is_refused_without_a_prompt(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"tracker\.mode=online: there is no W&B key"):
        open_sink(Tracker("wandb", "online", "p", False), tmp_path, {}, NAMES, print)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(UserError, match="WANDB_MODE=online"):
        open_sink(Tracker("wandb", "auto", "p", False), tmp_path, {}, NAMES, print)


def test_what_init_is_asked_for(tmp_path, monkeypatch):
    import wandb

    asked, metrics = [], {}

    class FakeRun:
        def define_metric(self, name, **how):
            metrics[name] = how

    monkeypatch.setattr(wandb, "init", lambda **named: asked.append(named) or FakeRun())
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    for mode in ("auto", "offline"):
        open_sink(Tracker("wandb", mode, "p", False), tmp_path, {"commit": "1a2b"}, NAMES, print)
    best = {"step_metric": "steps", "summary": "max,last"}
    assert metrics == {
        "steps": {},
        "frames": {"step_metric": "steps"},
        "*": {"step_metric": "steps"},
        **dict.fromkeys(("eval_score", "eval_objective", "train_score"), best),
    }
    first, second = asked
    assert (first["mode"], first["reinit"]) == ("online", "finish_previous")
    assert first["dir"] == str(tmp_path)
    assert first["tags"] == ["mean", "x" * 64]
    assert first["settings"].git_commit == "1a2b"
    # a resumed run stays one run, also after `wandb sync` of its offline files
    assert second["id"] == first["id"]
    assert second["resume"] == first["resume"] == "allow"


def test_the_schema_refuses_unknown_values():
    with pytest.raises(ValueError, match=r"tracker\.name=wandbb: choose one of none, wandb, "):
        Tracker("wandbb", "auto", "p", False)
    with pytest.raises(ValueError, match=r"tracker\.mode=on: choose one of auto, online, offline"):
        Tracker("wandb", "on", "p", False)
