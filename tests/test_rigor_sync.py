"""The real `wandb sync` against a server of our own, on runs that the sink has mirrored."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli import TINY, environment, rigor_train
from fake_wandb import KEY, served

from rigor import sync
from rigor.errors import UserError
from rigor.tracking.lock import Lock
from rigor.tracking.rundir import RunDirectory, config_hash

CONFIG = {"seed": 3}
MIRROR = """
import sys
from pathlib import Path
from rigor.tracking.wandb_sink import Tracker, open_sink
folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
names = {"group": "sweep", "name": "run · s0", "tags": ["mean"], "job_type": "train"}
names["problem"] = "pong"
sink = open_sink(Tracker("wandb", "offline", "rigor", False), folder, {"seed": 3}, names)
for step in range(first, last):
    sink.log({"steps": 10 * step, "loss": 0.5})
sink.finish(0, {})
"""


def mirrored(path: Path, *starts: tuple[int, int]) -> Path:
    """Make a run directory that W&B mirrored offline, in one or more starts."""
    RunDirectory.open(path, CONFIG, config_hash(CONFIG)).close()
    for first, last in starts:
        command = [sys.executable, "-c", MIRROR, str(path), str(first), str(last)]
        subprocess.run(command, check=True, env=environment())
    return path


def rigor_sync(*arguments, url="http://127.0.0.1:9", key=KEY):
    return subprocess.run(
        [sys.executable, "-m", "rigor.sync", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(WANDB_BASE_URL=url, WANDB_API_KEY=key, NETRC="/nowhere"),
    )


@pytest.fixture(scope="module")
def server():
    with served() as one:
        yield one


@pytest.mark.slow
def test_a_resumed_run_is_one_curve_and_nothing_goes_up_twice(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 4), (4, 7))
    done = rigor_sync(run, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"1 uploaded to {server.url}/me/rigor"
    kept = server.runs[(run / "wandb" / "id").read_text().strip()]
    assert [row["steps"] for row in kept["history"]] == [0, 10, 20, 30, 40, 50, 60]
    assert (kept["groupName"], kept["displayName"], kept["tags"]) == ("sweep", "run · s0", ["mean"])

    again = rigor_sync(run, key="")  # there is nothing to ask W&B for
    assert (again.returncode, again.stdout, again.stderr) == (0, "1 uploaded before\n", "")

    mirrored(run, (7, 9))
    done = rigor_sync(tmp_path, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["steps"] for row in kept["history"]] == list(range(0, 90, 10))


@pytest.mark.slow
def test_a_killed_start_goes_up_as_far_as_it_is_whole(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 5))
    (file,) = (run / "wandb").glob("offline-run-*/*.wandb")
    file.write_bytes(file.read_bytes()[:-3])  # what SIGKILL leaves
    mirrored(run, (5, 7))
    done = rigor_sync(run, url=server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"uploaded run\n1 uploaded to {server.url}/me/rigor\n"
    kept = server.runs[(run / "wandb" / "id").read_text().strip()]
    assert [row["steps"] for row in kept["history"]] == [0, 10, 20, 30, 40, 50, 60]
    assert rigor_sync(run, url=server.url).stdout == "1 uploaded before\n"


@pytest.mark.slow
def test_a_trained_sweep_is_uploaded_as_a_group(tmp_path, server):
    tiny = ["tracker=wandb" if one == "tracker=none" else one for one in TINY]
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
def test_what_is_refused_is_told_and_waits(tmp_path, server):
    run = mirrored(tmp_path / "run", (0, 2))
    server.refuses = True
    try:
        done = rigor_sync(run, url=server.url)
    finally:
        server.refuses = False
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rigor-sync: 1 of 1 runs did not reach W&B (ERROR ")
    assert "error 403" in done.stderr
    assert rigor_sync(run, url=server.url).returncode == 0


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """Return a run with something to upload, which no W&B has written."""
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    folder = tmp_path / "run" / "wandb" / "offline-run-20260101_000000-1a2b"
    folder.mkdir(parents=True)
    (folder / "run-1a2b.wandb").write_bytes(b"")
    (tmp_path / "run" / "config.yaml").write_text("seed: 0\n")
    return tmp_path / "run"


def test_without_a_key_nothing_is_lost(waiting):
    with pytest.raises(UserError, match=r"no W&B key: run `wandb login` .* 1 run waits, nothing"):
        sync.run([str(waiting)])


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_without_a_network_nothing_is_lost(waiting, monkeypatch, url):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_BASE_URL", url)
    with pytest.raises(UserError, match=rf"{url}: no answer \(.*\); .* 1 run waits, nothing"):
        sync.run([str(waiting)])


def test_a_run_at_work_and_one_without_wandb_are_left_alone(waiting, tmp_path, capsys):
    RunDirectory.open(tmp_path / "other", {"seed": 1}, "").close()
    lock = Lock(waiting)
    lock.acquire()
    try:
        sync.run([str(tmp_path)])
    finally:
        lock.release()
    assert capsys.readouterr().out == "1 still at work, 1 never mirrored\n"


def test_two_at_a_time_would_upload_twice(waiting, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    lock = Lock(waiting / "wandb")
    lock.acquire()
    try:
        with served() as server:
            monkeypatch.setenv("WANDB_BASE_URL", server.url)
            with pytest.raises(UserError, match="another process runs there"):
                sync.run([str(waiting)])
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [([], "which runs"), (["--all"], "--all: no such option"), (["nowhere"], "no such directory")],
)
def test_mistakes(arguments, part):
    with pytest.raises(UserError, match=part):
        sync.run(arguments)


def test_the_command_says_a_mistake_in_one_line(tmp_path):
    done = rigor_sync(tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rigor-sync: {tmp_path / 'nowhere'}: no such directory\n"


def test_help(capsys):
    sync.run(["--help"])
    out = capsys.readouterr().out
    assert "rigor-sync DIR..." in out
    assert all(len(line) <= 80 for line in out.splitlines())
