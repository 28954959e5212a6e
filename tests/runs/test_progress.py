import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from rigor.errors import UserError
from rigor.runs import progress as module
from rigor.runs.progress import Progress

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

RUN = """
import sys, time
from rigor.runs.progress import Progress
name = "breakout-multihorizon-hyperbolic-mean-s0-1a2b3c4d"
with Progress(1_000_000, name, sys.argv[1], start=200_000) as progress:
    for step in range(200_000, 1_000_001, 100_000):
        time.sleep(0.08)
        progress.update(step, {"return": 12.345678, "loss": 0.0123456, "more": "x" * 90})
    progress.note("evaluation: \\x1b[31mreturn 3.2 [2.1, 4.4]\\x1b[0m")
"""


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def on_a_terminal(arguments, columns=80, **environment):
    """Run a program on a pseudo-terminal and return its output."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    env |= {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen(
        [sys.executable, "-c", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=env,
    )
    os.close(follower)
    output = b""
    while True:
        try:
            piece = os.read(leader, 65_536)
        except OSError:  # on Linux: the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(leader)
    assert process.wait() == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_bar_fits_the_terminal(tmp_path, columns):
    log = tmp_path / "train.log"
    output = on_a_terminal([RUN, str(log)], columns)
    updates = [ANSI.sub("", text) for text in re.split(r"[\r\n]+", output)]
    assert max(map(len, updates)) <= max(columns, len("evaluation: return 3.2 [2.1, 4.4]"))
    last = [picture for picture in updates if "100%" in picture][-1]
    assert last.startswith("breakout-multihoriz…")
    assert "evaluation: return 3.2 [2.1, 4.4]" in updates
    assert len(updates) < 25  # two updates a second, and those at both ends
    if columns >= 80:
        assert re.search(r"━ 100%  1M/1M  \d+[kM]/s  eta 0:00:00  return 12\.35", last)
    assert "\x1b" not in log.read_text()


def test_a_dumb_terminal_gets_plain_lines(tmp_path):
    output = on_a_terminal([RUN, str(tmp_path / "log")], TERM="dumb")
    assert "\x1b" not in output
    assert output.count("1,000,000/1,000,000 steps (100%)") == 1


def test_without_a_terminal_there_are_plain_lines(tmp_path):
    log = tmp_path / "train.log"
    env = {**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(log)], capture_output=True, text=True, env=env, check=True
    )
    assert "\x1b" not in done.stdout + done.stderr
    first, note, last = done.stdout.splitlines()
    assert first.startswith("breakout-multihorizon-hyperbolic-mean-s0-1a2b3c4d  200,000/1,000,000")
    assert note == "evaluation: return 3.2 [2.1, 4.4]"
    assert "1,000,000/1,000,000 steps (100%)" in last
    logged = log.read_text()
    assert "\x1b" not in logged
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  200,000/1,000,000 steps \(20%\)", logged)
    assert len(logged.splitlines()) == 3


def test_a_closed_pipe_does_not_end_the_run(tmp_path):
    command = f"{sys.executable} -c '{RUN}' {tmp_path / 'log'} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "100%" in (tmp_path / "log").read_text()
    assert "Traceback" not in done.stderr


def test_lines_are_printed_every_ten_seconds(tmp_path, clock, capsys):
    log = tmp_path / "log"
    with Progress(1000, "run", log) as progress:
        for step in range(1, 1001):  # 0.1 s each: 100 s
            clock.now += 0.1
            progress.update(step, {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(log.read_text().splitlines())
    assert 10 <= len(lines) <= 12
    assert "1/1,000 steps (0%)  - steps/s  eta -:--:--" in lines[0]  # too early for a rate
    assert "1,000/1,000 steps (100%)" in lines[-1]


def test_rate_and_time_left_count_this_session_only(tmp_path, clock, capsys):
    with Progress(1_000_000, "run", tmp_path / "log", start=500_000) as progress:
        for second in range(1, 101):
            clock.now += 1
            progress.update(500_000 + 100 * second, {})
    assert "510,000/1,000,000 steps (51%)  100 steps/s  eta 1:21:40" in capsys.readouterr().out


def test_rate_follows_a_change_of_pace(tmp_path, clock):
    with Progress(10**6, "run", tmp_path / "log") as progress:
        for second in range(200):  # filling the replay, then learning
            clock.now += 1
            progress.update(10_000 * min(second, 50) + 100 * max(0, second - 50), {})
        assert progress._rate() == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize("quiet", [False, True])
def test_returns_and_notes_are_in_the_log_and_on_the_console_unless_it_is_quiet(
    tmp_path, capsys, quiet
):
    with Progress(10, "run", tmp_path / "log", quiet=quiet) as progress:
        progress.update(10, {"return": 1.0})
        progress.note("evaluated")
    printed, logged = capsys.readouterr().out, (tmp_path / "log").read_text()
    for text in ("return 1", "evaluated"):
        assert text in logged
        assert (text in printed) is not quiet


def test_an_error_is_not_hidden_by_a_full_disk(tmp_path, monkeypatch):
    def refuse(path, text):
        raise UserError("no space left on device")

    progress = Progress(10, "run", tmp_path / "log")
    monkeypatch.setattr(module, "append_text", refuse)
    with pytest.raises(ZeroDivisionError), progress:
        raise ZeroDivisionError
    with pytest.raises(UserError), Progress(10, "run", tmp_path / "log"):
        pass


def test_a_heartbeat_comes_after_a_second_and_then_every_ten(tmp_path, clock):
    beats = []
    progress = Progress(
        1000, "x", tmp_path / "log", 100, beat=lambda *numbers: beats.append(numbers)
    )
    with progress:
        for step in range(100, 500, 10):
            progress.update(step, {})
            clock.now += 0.5
    # 20 steps/s from step 100 on
    assert beats == [(120, 20.0, 44.0), (320, 20.0, 34.0)]


def test_a_run_without_steps_sends_heartbeats(tmp_path, clock, capsys):
    beats = []
    progress = Progress(1000, "x", tmp_path / "log", 0, beat=lambda step, *rest: beats.append(step))
    with progress:
        progress.update(500, {})
        said = capsys.readouterr().out
        for _ in range(600):  # an evaluation of 300 s
            clock.now += 0.5
            progress.alive()
        assert capsys.readouterr().out == ""
    assert beats == [500] * 30
    assert "500/1,000 steps" in said
