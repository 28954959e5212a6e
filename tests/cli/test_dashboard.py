import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios

import pytest
from command_line import environment
from fake_wandb import KEY, served
from synthetic import config_of, make_run, make_sweep

from rigor.cli import dashboard
from rigor.config.schemas import Tracker
from rigor.errors import UserError
from rigor.runs.wandb_sink import open_sink

TRACKER = {"name": "wandb", "mode": "offline", "project": "rigor", "episodes": False}


def command(*arguments, url="http://127.0.0.1:9", key=""):
    return subprocess.run(
        [sys.executable, "-m", "rigor.cli.dashboard", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(WANDB_BASE_URL=url, WANDB_API_KEY=key, NETRC="/nowhere"),
    )


@pytest.fixture
def sweep(tmp_path):
    runs = [
        make_run(
            tmp_path,
            "pong",
            variant,
            0,
            9.0,
            config=config_of("pong", variant, 0) | {"tracker": TRACKER},
        )
        for variant in ("time_consistent", "time_inconsistent")
    ]
    return make_sweep(tmp_path, runs)


def submitted(sweep):
    """Complete the manifest: a report needs fewer keys than this command."""
    path = sweep / "manifest.json"
    found = json.loads(path.read_text()) | {"launcher": {"name": "basic"}, "submissions": []}
    path.write_text(json.dumps(found))
    return sweep


def test_the_outline_is_printed_without_a_login(sweep):
    done = command(submitted(sweep))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("grid\nproject rigor, 2 runs, by choices.variant\n")
    assert "  curve  pong: score/pong\n" in done.stdout


def test_json_is_the_workspace_as_sent_to_wandb(sweep):
    done = command(submitted(sweep), "--json")
    found = json.loads(done.stdout)
    assert (found["displayName"], found["project"]) == ("grid", "rigor")
    sections = found["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections][::4] == ["Scores by environment", "Throughput"]
    assert all(section["panels"] for section in sections)


@pytest.mark.slow
def test_saving_again_replaces_the_view(sweep):
    with served() as server:
        for _ in range(2):
            done = command(submitted(sweep), "--save", url=server.url, key=KEY)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(f"{server.url}/me/rigor?nw=")
        ((name, view),) = server.views.items()
        assert (view["entityName"], view["displayName"], view["id"]) == ("me", "grid", "view")
        assert json.loads((sweep / "dashboard.json").read_text())["name"] == name
        server.refuses = True
        done = command(submitted(sweep), "--save", url=server.url, key=KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("rigor-dashboard: W&B refused: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_runs_are_shown_in_a_terminal(sweep, tmp_path):
    names = {"group": "grid", "name": "run", "tags": [], "job_type": "train", "problem": "pong"}
    for path in tmp_path.glob("pong-*"):
        sink = open_sink(Tracker("wandb", "offline", "rigor", False), path, {}, names, print)
        sink.log({"steps": 1, "loss": 0.5})
        sink.finish(0, {})
    keyboard, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "rigor.cli.dashboard", str(submitted(sweep)), "--live"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(TERM="xterm-256color", HOME=str(tmp_path), TMPDIR=str(tmp_path)),
        start_new_session=True,
    )
    os.close(terminal)
    screen = b""
    try:
        while b"[2 items]" not in screen:
            ready, _, _ = select.select([keyboard], [], [], 60)
            assert ready, screen
            screen += os.read(keyboard, 65536)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(keyboard)


def test_live_without_a_terminal_or_files_is_refused(sweep, tmp_path):
    assert "no run of the sweep has W&B files yet" in command(submitted(sweep), "--live").stderr
    for path in tmp_path.glob("pong-*"):
        (path / "wandb" / "offline-run-20260101_000000-1a2b").mkdir(parents=True)
    done = command(sweep, "--live")
    assert (done.returncode, done.stderr) == (2, "rigor-dashboard: --live needs a terminal\n")


def test_saving_without_a_key_is_refused(sweep):
    done = command(submitted(sweep), "--save")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "rigor-dashboard: no W&B key: run `wandb login` or set WANDB_API_KEY; "
        "the dashboard is not saved\n"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "required: SWEEP_DIR"),
        (["nowhere"], "nowhere: not a sweep's directory"),
        (["nowhere", "--sav"], "unrecognized arguments: --sav"),
        (["nowhere", "--save", "--json"], "not allowed with argument"),
    ],
)
def test_mistakes(arguments, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=part):
        dashboard.run(arguments)


def test_help_is_quick():
    code = (
        "import sys; from rigor.cli.dashboard import _parser; print(_parser().format_help()); "
        "assert not {'wandb', 'hydra', 'numpy', 'torch', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "SWEEP_DIR" in done.stdout
