import json
import logging
import os
import subprocess
import sys

import pytest

from rigor.errors import UserError
from rigor.tracking import wandb_sink
from rigor.tracking.wandb_sink import Sink, Tracker, has_key, open_sink

NAMES = {"group": "sweep", "name": "run · s0", "tags": ["mean"], "job_type": "train"}

MIRROR = """
import json, os, signal, sys, time
from pathlib import Path
from rigor.tracking.wandb_sink import Tracker, open_sink
folder, kill = Path(sys.argv[1]), sys.argv[2] == "kill"
names = {"group": "sweep", "name": "run", "tags": ["mean"], "job_type": "train"}
sink = open_sink(Tracker("wandb", "auto", "project"), folder, {"seed": 3}, names)
assert sink.active
for step in range(5):
    sink.log({"steps": 10 * step, "loss": 0.5, "empty": None})
if kill:
    import psutil
    for child in psutil.Process().children(recursive=True):
        child.kill()
    deadline = time.monotonic() + 10
    while sink.active and time.monotonic() < deadline:
        sink.log({"steps": 100, "loss": 0.5})
        time.sleep(0.01)
    assert not sink.active
sink.finish(0, {"objective": 1.5})
"""


@pytest.fixture(autouse=True)
def no_key(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def mirror(folder, what):
    return subprocess.run(
        [sys.executable, "-c", MIRROR, str(folder), what],
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
    assert "empty" not in found["summary"]


def test_a_dead_service_does_not_hurt_the_run(tmp_path):
    done = mirror(tmp_path, "kill")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "train.log").read_text().count("W&B: no longer mirrored") == 1
    assert done.stderr.count("W&B: no longer mirrored") == 1


class Broken:
    summary: dict = {}  # noqa: RUF012

    def __init__(self):
        self.calls = 0

    def log(self, row):
        self.calls += 1
        raise RuntimeError("first line\nsecond line")

    def finish(self, exit_code):
        raise OSError("gone")


def test_a_failure_is_told_once_and_ends_the_mirror(tmp_path, caplog):
    run = Broken()
    sink = Sink(run, tmp_path / "train.log")
    with caplog.at_level(logging.WARNING):
        for step in range(3):
            sink.log({"steps": step})
        sink.finish(0, {})
    assert run.calls == 1
    assert not sink.active
    text = "W&B: no longer mirrored (RuntimeError: first line); metrics.csv has everything"
    assert [record.message for record in caplog.records] == [text]
    assert (tmp_path / "train.log").read_text() == text + "\n"


def test_a_failing_finish_is_told_too(tmp_path):
    Sink(Broken(), tmp_path / "train.log").finish(1, {})
    assert "OSError: gone" in (tmp_path / "train.log").read_text()


def test_the_null_sink_does_nothing(tmp_path):
    sink = open_sink(Tracker("none", "auto", "p"), tmp_path, {}, {})
    sink.log({"steps": 1})
    sink.finish(0, {})
    assert not sink.active
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_told_and_nothing_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(wandb_sink.os, "access", lambda path, mode: False)
    sink = open_sink(Tracker("wandb", "offline", "p"), tmp_path, {}, NAMES)
    assert not sink.active
    assert "is not writable" in (tmp_path / "train.log").read_text()
    (tmp_path / "wandb").rmdir()
    (tmp_path / "wandb").write_text("in the way")
    assert not open_sink(Tracker("wandb", "offline", "p"), tmp_path, {}, NAMES).active


def test_a_missing_wandb_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert not open_sink(Tracker("wandb", "offline", "p"), tmp_path, {}, NAMES).active
    assert "not mirrored (ModuleNotFoundError" in (tmp_path / "train.log").read_text()


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
    assert wandb_sink._mode(Tracker("wandb", mode, "p")) == meant


def test_online_without_a_key_is_refused_rather_than_asked_for(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"tracker\.mode=online: there is no W&B key"):
        open_sink(Tracker("wandb", "online", "p"), tmp_path, {}, NAMES)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(UserError, match="WANDB_MODE=online"):
        open_sink(Tracker("wandb", "auto", "p"), tmp_path, {}, NAMES)


def test_what_init_is_asked_for(tmp_path, monkeypatch):
    import wandb

    asked = []

    class Run:
        def define_metric(self, name, step_metric=None):
            asked.append((name, step_metric))

    monkeypatch.setattr(wandb, "init", lambda **named: asked.append(named) or Run())
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    for _ in range(2):
        open_sink(Tracker("wandb", "auto", "p"), tmp_path, {"a": 1}, NAMES)
    first, *metrics = asked[:3]
    assert metrics == [("steps", None), ("*", "steps")]
    assert (first["mode"], first["resume"], first["reinit"]) == (
        "online",
        "allow",
        "finish_previous",
    )
    assert first["dir"] == str(tmp_path)
    assert asked[3]["id"] == first["id"]  # a resumed run stays one run
    open_sink(Tracker("wandb", "auto", "p"), tmp_path, {}, {**NAMES, "id": "mine"})
    assert asked[6]["id"] == "mine"


def test_the_schema_refuses_what_does_not_exist():
    with pytest.raises(ValueError, match=r"tracker\.name=wandbb: one of none, wandb"):
        Tracker("wandbb", "auto", "p")
    with pytest.raises(ValueError, match=r"tracker\.mode=on: one of auto, online, offline"):
        Tracker("wandb", "on", "p")
