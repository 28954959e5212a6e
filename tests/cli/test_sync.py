"""`rigor-sync` with the real `wandb sync` and a fake server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, environment, rigor_train
from fake_wandb import KEY, served

from rigor.cli import sync
from rigor.errors import UserError
from rigor.runs.directory import RunDirectory
from rigor.runs.identity import config_hash
from rigor.runs.lock import Lock

CONFIG = {"seed": 3}
MIRROR = """
import sys
from pathlib import Path
from rigor.config.schemas import Tracker
from rigor.runs.wandb_sink import open_sink
folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
names = {"group": "sweep", "name": "run · s0", "tags": ["mean"], "job_type": "train"}
names["problem"] = "pong"
sink = open_sink(Tracker("wandb", "offline", "rigor", False), folder, {"seed": 3}, names, print)
for step in range(first, last):
    sink.log({"steps": 10 * step, "loss": 0.5})
sink.finish(0, {})
"""


def mirrored(path: Path, *starts: tuple[int, int]) -> Path:
    """Make a run directory with offline W&B files of one or more sessions."""
    RunDirectory.open(path, CONFIG, config_hash(CONFIG)).close()
    for first, last in starts:
        command = [sys.executable, "-c", MIRROR, str(path), str(first), str(last)]
        subprocess.run(command, check=True, env=environment())
    return path


def rigor_sync(*arguments, url="http://127.0.0.1:9", key=KEY):
    return subprocess.run(
        [sys.executable, "-m", "rigor.cli.sync", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(WANDB_BASE_URL=url, WANDB_API_KEY=key, NETRC="/nowhere"),
    )


@pytest.fixture(scope="module")
def server():
    with served() as running:
        yield running


@pytest.mark.slow
def test_a_resumed_run_is_one_curve_and_no_file_is_uploaded_twice(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 4), (4, 7))
    done = rigor_sync(run, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"1 uploaded to {server.url}/me/rigor"
    kept = server.runs[(run / "wandb" / "id").read_text().strip()]
    assert [row["steps"] for row in kept["history"]] == [0, 10, 20, 30, 40, 50, 60]
    assert (kept["groupName"], kept["displayName"], kept["tags"]) == ("sweep", "run · s0", ["mean"])

    again = rigor_sync(run, key="")  # no key is needed without new files
    assert (again.returncode, again.stdout, again.stderr) == (0, "1 already uploaded\n", "")

    mirrored(run, (7, 9))
    done = rigor_sync(tmp_path, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["steps"] for row in kept["history"]] == list(range(0, 90, 10))


@pytest.mark.slow
def test_complete_rows_of_a_killed_session_are_uploaded(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 5))
    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    file.write_bytes(file.read_bytes()[:-3])  # as after SIGKILL
    mirrored(run, (5, 7))
    done = rigor_sync(run, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"uploaded run\n1 uploaded to {server.url}/me/rigor\n"
    kept = server.runs[(run / "wandb" / "id").read_text().strip()]
    assert [row["steps"] for row in kept["history"]] == [0, 10, 20, 30, 40, 50, 60]
    assert rigor_sync(run, url=server.url).stdout == "1 already uploaded\n"


KILLED = """
import os, signal, sys
from pathlib import Path
from rigor.config.schemas import Tracker
from rigor.runs.wandb_sink import open_sink
folder = Path(sys.argv[1])
names = {"group": "sweep", "name": "run", "tags": [], "job_type": "train", "problem": "pong"}
sink = open_sink(Tracker("wandb", "offline", "rigor", False), folder, {"seed": 3}, names, print)
sink.log({"steps": 0, "loss": 0.5})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_run_is_uploaded_from_its_metrics_and_an_empty_file_stops_nothing(
    tmp_path, server
):
    config = CONFIG | {"agent": {"_target_": "rigor.config.schemas.Learner"}}
    config |= {"tracker": {"project": "rigor", "episodes": False}}
    config |= {"choices": {"env": "atari/pong", "variant": "time_aware"}, "sweep": "grid"}
    killed, early = tmp_path / "killed", tmp_path / "early"
    RunDirectory.open(killed, config, config_hash(config)).close()
    subprocess.run([sys.executable, "-c", KILLED, str(killed)], check=False, env=environment())
    (killed / "metrics.csv").write_text("steps,loss\n0,0.5\n10,0.25\n20,0.125\n")
    RunDirectory.open(early, CONFIG, config_hash(CONFIG)).close()
    empty = early / "wandb" / "offline-run-20260101_000000-1a2b" / "run-1a2b.wandb"
    empty.parent.mkdir(parents=True)
    empty.touch()
    broken = mirrored(tmp_path / "broken", (0, 2))
    (file,) = (broken / "wandb").glob("offline-run-*/*.wandb")
    file.write_bytes(b"no W&B file at all")
    whole = mirrored(tmp_path / "whole", (0, 2))

    done = rigor_sync(tmp_path, url=server.url)
    assert done.returncode == 1
    assert "killed: was killed, so its rows are sent from metrics.csv" in done.stdout
    assert "Failed to read" in done.stdout
    assert done.stderr.startswith("rigor-sync: 1 of 3 runs were not uploaded")
    rows = {
        path.name: [
            row["steps"]
            for row in server.runs[(path / "wandb" / "id").read_text().strip()]["history"]
        ]
        for path in (killed, whole)
    }
    assert rows == {"killed": [0, 10, 20], "whole": [0, 10]}
    kept = server.runs[(killed / "wandb" / "id").read_text().strip()]
    assert (kept["groupName"], kept["displayName"]) == ("grid", "pong · time_aware · s3")
    file.unlink()
    again = rigor_sync(tmp_path, key="")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == (
        "2 already uploaded, 1 killed before the first row, 1 without W&B files\n"
    )


@pytest.mark.slow
def test_a_trained_sweep_is_uploaded_as_a_group(tmp_path, server):
    tiny = [text.replace("tracker=none", "tracker=wandb") for text in TINY]
    done = rigor_train(*tiny, "agent=singlehorizon", "seed=0,1", "-m", "out=out", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    (sweep,) = (tmp_path / "out" / "sweeps").iterdir()
    done = rigor_sync(sweep, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"2 uploaded to {server.url}/me/rigor"
    for path in (tmp_path / "out").glob("cartpole-*"):
        kept = server.runs[(path / "wandb" / "id").read_text().strip()]
        result = json.loads((path / "result.json").read_text())
        assert kept["groupName"] == sweep.name
        assert kept["summary"]["objective"] == result["objective"]
        assert kept["config"]["choices"]["variant"] == "time_consistent"
        assert kept["config"]["train"]["steps"] == 300
        assert kept["config"]["versions"]["wandb"] == result["versions"]["wandb"]
        assert kept["config"]["commit"] == result["commit"]


@pytest.mark.slow
def test_a_refused_run_can_be_uploaded_later(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 2))
    server.refuses = True
    try:
        done = rigor_sync(run, url=server.url)
    finally:
        server.refuses = False
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rigor-sync: 1 of 1 runs were not uploaded (ERROR ")
    assert "error 403" in done.stderr
    assert rigor_sync(run, url=server.url).returncode == 0


@pytest.fixture
def pending(tmp_path, monkeypatch):
    """Return a run with a W&B file to upload."""
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    folder = tmp_path / "run" / "wandb" / "offline-run-20260101_000000-1a2b"
    folder.mkdir(parents=True)
    (folder / "run-1a2b.wandb").write_bytes(b":W&B\0\0\0 and records")
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    return tmp_path / "run"


def test_without_a_key_no_data_is_lost(pending):
    with pytest.raises(
        UserError, match=r"no W&B key: run `wandb login` .* 1 run is not uploaded; no data"
    ):
        sync.run([str(pending)])


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_without_a_network_no_data_is_lost(pending, monkeypatch, url):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", url)
    with pytest.raises(
        UserError, match=rf"{url}: no answer \(.*\); .* 1 run is not uploaded; no data"
    ):
        sync.run([str(pending)])


def test_active_runs_and_runs_without_wandb_files_are_skipped(pending, tmp_path, capsys):
    RunDirectory.open(tmp_path / "other", {"seed": 1}, "").close()
    lock = Lock(pending)
    lock.acquire()
    try:
        sync.run([str(tmp_path)])
    finally:
        lock.release()
    assert capsys.readouterr().out == "1 still active, 1 without W&B files\n"


def test_a_second_rigor_sync_is_refused(pending, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    lock = Lock(pending / "wandb")
    lock.acquire()
    try:
        with served() as server:
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            with pytest.raises(UserError, match="another process runs there"):
                sync.run([str(pending)])
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "no directory named"),
        (["--all"], "--all: no such option"),
        (["nowhere"], "no such directory"),
    ],
)
def test_mistakes(arguments, part):
    with pytest.raises(UserError, match=part):
        sync.run(arguments)


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    done = rigor_sync(tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rigor-sync: {tmp_path / 'nowhere'}: no such directory\n"


def test_help(capsys):
    sync.run(["--help"])
    out = capsys.readouterr().out
    assert "rigor-sync DIR..." in out
    assert all(len(line) <= 80 for line in out.splitlines())
