import json
import math
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from rigor.errors import UserError
from rigor.runs.directory import SILENT, RunDirectory, TakenOver, described
from rigor.runs.identity import config_hash
from rigor.runs.lock import Lock

CONFIG = {"seed": 0, "out": "runs", "train": {"steps": 100, "lr": 1e-3}}
DIGEST = config_hash(CONFIG)

HOLDER = """
import sys
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash
config = {"seed": 0, "out": "runs", "train": {"steps": 100, "lr": 1e-3}}
run = RunDirectory.open(sys.argv[1], config, config_hash(config))
run.write_status("running")
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that runs in the directory `run`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "holding\n"
    yield process
    process.kill()
    process.communicate()


def test_a_new_directory_holds_its_config(tmp_path):
    with RunDirectory.open(tmp_path / "a" / "b", CONFIG, DIGEST) as run:
        assert run.config() == CONFIG
        assert config_hash(run.config()) == DIGEST
        assert run.config_path.read_text().startswith(f"# config hash: {DIGEST}\n")
        assert run.checkpoints.parent == run.path
        assert (run.metrics_path.name, run.log_path.name) == ("metrics.csv", "train.log")
        assert run.status() is None
        assert run.result() is None


def test_the_same_config_reopens_and_updates_keys_outside_the_hash(tmp_path):
    RunDirectory.open(tmp_path, CONFIG, DIGEST).close()
    longer = {**CONFIG, "out": "other", "train": {"steps": 200, "lr": 1e-3}}
    with RunDirectory.open(tmp_path, longer, config_hash(longer)) as run:
        assert run.config() == longer
    before = os.stat(tmp_path / "config.yaml")
    RunDirectory.open(tmp_path, longer, config_hash(longer)).close()
    assert os.stat(tmp_path / "config.yaml").st_ino == before.st_ino  # not rewritten


def test_another_config_is_refused(tmp_path):
    RunDirectory.open(tmp_path, CONFIG, DIGEST).close()
    other = {**CONFIG, "seed": 1}
    with pytest.raises(UserError) as caught:
        RunDirectory.open(tmp_path, other, config_hash(other))
    message = str(caught.value)
    for part in (
        str(tmp_path),
        DIGEST[:8],
        config_hash(other)[:8],
        "seed: 0 there, 1 here",
        "out=",
    ):
        assert part in message
    assert "\n" not in message
    RunDirectory.open(tmp_path, CONFIG, DIGEST).close()  # the refusal left no lock


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "\x00\x01"])
def test_a_broken_config_is_refused(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: not a"):
        RunDirectory.open(tmp_path, CONFIG, DIGEST)


def test_a_live_process_excludes_others(tmp_path, holder):
    with pytest.raises(UserError, match=rf"another process runs there \(pid {holder.pid} on "):
        RunDirectory.open(tmp_path / "run", CONFIG, DIGEST)
    assert RunDirectory(tmp_path / "run").is_locked()


def test_a_killed_process_frees_the_directory(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not RunDirectory(tmp_path / "run").is_locked()
    with RunDirectory.open(tmp_path / "run", CONFIG, DIGEST) as run:
        assert run.status()["state"] == "running"
        assert f"pid {os.getpid()} on" in (run.path / ".lock").read_text()


def test_one_process_cannot_open_it_twice(tmp_path):
    with RunDirectory.open(tmp_path, CONFIG, DIGEST) as run:
        with pytest.raises(UserError, match="another process runs there"):
            RunDirectory.open(tmp_path, CONFIG, DIGEST)
        assert run.is_locked()
    assert not run.is_locked()
    run.close()


def test_a_check_of_the_lock_does_not_exclude_others(tmp_path):
    RunDirectory.open(tmp_path, CONFIG, DIGEST).close()
    for _ in range(20):
        assert not RunDirectory(tmp_path).is_locked()
        RunDirectory.open(tmp_path, CONFIG, DIGEST).close()


def test_an_unwritable_path_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match=r"not writable .*out=DIR"):
            RunDirectory.open(path, CONFIG, DIGEST)
    with pytest.raises(UserError, match="file name too long"):
        RunDirectory.open(tmp_path / ("x" * 300), CONFIG, DIGEST)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed")
def test_a_directory_of_another_user_is_refused():
    code = (
        "import os, sys; from rigor.runs.directory import RunDirectory; os.setuid(65534)\n"
        "try: RunDirectory.open('/etc/rigor-test', {}, '')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UserError /etc/rigor-test: not writable (permission denied)")


def test_status_has_its_fields_and_keeps_earlier_ones(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_status("queued", steps_total=100)
    queued = run.status()
    assert queued["started"] is None
    run.write_status("running", step=5)
    first = run.status()
    assert set(first) == {
        *("state", "started", "updated", "step", "steps_total", "host", "pid", "error"),
        *("steps_per_second", "seconds_left"),
    }
    run.write_status("running", steps_per_second=3.0, seconds_left=7.0)
    run.write_status("running", step=5)  # as a checkpoint does, between two heartbeats
    assert (run.status()["steps_per_second"], run.status()["seconds_left"]) == (3.0, 7.0)
    run.write_status("preempted")
    assert (run.status()["steps_per_second"], run.status()["seconds_left"]) == (None, None)
    assert (first["steps_total"], first["step"], first["pid"]) == (100, 5, os.getpid())
    assert first["started"].endswith("+00:00")
    stamped = {**first, "started": "2020-01-01T00:00:00+00:00"}
    (tmp_path / "status.json").write_text(json.dumps(stamped))
    run.write_status("failed", error="boom")
    assert run.status()["error"] == "boom"
    assert run.status()["started"] == "2020-01-01T00:00:00+00:00"
    run.write_status("running")
    assert run.status()["error"] is None
    assert run.status()["step"] == 5
    with pytest.raises(ValueError, match="state='lost'"):
        run.write_status("lost")


def test_a_run_whose_status_broke_is_still_known_as_its_tasks(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_status("running", task="7", restarts=1)
    (tmp_path / "status.json").write_text('{"state": "runn')
    run.write_status("running", step=5)
    assert (run.status()["task"], run.status()["restarts"]) == ("7", 1)
    RunDirectory(tmp_path).write_status("queued")  # by another process
    assert (run.status()["task"], run.status()["restarts"]) == ("7", 1)


def age(run, stamp, file=None, **fields):
    """Make a status `stamp` seconds old by its text, and `file` seconds old by its file."""
    updated = datetime.now(UTC) - timedelta(seconds=stamp)
    path = run.path / "status.json"
    path.write_text(json.dumps(run.status() | {"updated": updated.isoformat()} | fields))
    written = time.time() - (stamp if file is None else file)
    os.utime(path, (written, written))


def test_a_run_on_another_host_is_lost_without_updates(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_status("running")
    assert run.state() == "lost"  # on this host the lock is evidence
    for seconds, state in ((SILENT - 60, "running"), (SILENT + 60, "lost")):
        age(run, seconds, host="elsewhere")
        assert run.state() == state


def test_without_locks_a_run_is_lost_without_updates(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path)
    run.write_status("running")
    monkeypatch.setattr(Lock, "is_held", lambda self: None)
    assert run.is_locked() is None
    for seconds, state in ((SILENT - 60, "running"), (SILENT + 60, "lost")):
        age(run, seconds)
        assert run.state() == state
    run.write_status("preempted")
    assert run.state() == "preempted"
    assert described("preempted", "stopped by SIGTERM") == "stopped by SIGTERM"
    assert described("failed", "no space left") == "failed: no space left"
    assert described("done", None) == "done"


def test_a_wrong_clock_does_not_make_a_live_run_lost(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_status("running")
    for stamp, file in ((SILENT + 60, 5), (5, SILENT + 60)):  # of the node, of the file server
        age(run, stamp, file, host="elsewhere")
        assert run.state() == "running"


@pytest.mark.parametrize("state", ["running", "done", "preempted", "failed"])
def test_a_process_whose_run_was_queued_again_writes_nothing_more(tmp_path, state):
    mine, other = RunDirectory(tmp_path), RunDirectory(tmp_path)
    mine.write_status("running", step=5)
    mine.write_status("running", step=6)
    other.write_status("queued")
    before = other.status()
    assert (before["pid"], before["step"]) == (os.getpid(), 6)  # it may still be alive
    for _ in range(2):
        with pytest.raises(TakenOver, match="queued again; this process ends without saving"):
            mine.write_status(state, step=7)
    assert other.status() == before
    other.write_status("preempted")
    other.write_status("queued")
    assert (other.status()["pid"], other.status()["host"]) == (None, None)


def test_a_process_whose_run_another_process_runs_writes_nothing_more(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_status("running")
    age(run, 0, host="elsewhere", pid=7)
    with pytest.raises(TakenOver, match="process 7 on elsewhere works on it"):
        run.write_status("done")
    assert run.status()["state"] == "running"
    (tmp_path / "status.json").unlink()  # by the user; no other process
    run.write_status("done")


def test_a_run_that_holds_its_lock_is_never_lost(tmp_path):
    with RunDirectory.open(tmp_path, CONFIG, DIGEST) as run:
        run.write_status("running")
        assert run.state() == "running"
    assert run.state() == "lost"


def test_a_run_is_done_only_with_enough_steps(tmp_path):
    run = RunDirectory(tmp_path)
    assert not run.is_done(0)
    run.write_status("running", step=100)
    assert not run.is_done(100)
    run.write_status("done", step=100)
    assert not run.is_done(100)  # its result is missing
    run.write_result({"objective": 1.0})
    run.config_path.write_text("seed: 0\n")
    assert run.is_done(100)
    assert not run.is_done(101)


@pytest.mark.parametrize("content", [b"", b'{"state": "do', b"[]", b"\xff\x00"])
def test_broken_json_reads_as_none(tmp_path, content):
    for name in ("status.json", "result.json"):
        (tmp_path / name).write_bytes(content)
    run = RunDirectory(tmp_path)
    assert run.status() is None
    assert run.result() is None
    run.write_status("running")
    assert run.status()["state"] == "running"


def test_result_holds_arrays_and_null_for_numbers_that_are_not_finite(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_result(
        {
            "objective": np.float64(1 / 3),
            "scores": np.array([1.5, np.nan]),
            "episodes": np.int64(3),
            "bound": -math.inf,
            "path": Path("x"),
            "nested": {"a": (1, 2)},
        }
    )
    assert run.result() == {
        "objective": 1 / 3,
        "scores": [1.5, None],
        "episodes": 3,
        "bound": None,
        "path": "x",
        "nested": {"a": [1, 2]},
    }


def test_the_traceback_is_appended(tmp_path):
    run = RunDirectory(tmp_path)
    run.log_path.write_text("before\n")
    run.write_traceback("Traceback\nboom")
    assert run.log_path.read_text() == "before\nTraceback\nboom\n"


def test_importing_is_quick():
    code = (
        "import sys, rigor.runs.directory, rigor.runs.metrics, rigor.runs.progress, "
        "rigor.report.data.labels, rigor.report.figures.learning_curves; "
        "print({'torch', 'pandas', 'matplotlib', 'wandb', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
