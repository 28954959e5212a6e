"""Exit codes and one-line errors of the commands."""

import os
import signal
import subprocess
import sys

import pytest
from command_line import environment

from rigor.cli import command
from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch.sweep import SweepFailed
from rigor.runs import disk


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Take back what a command sets for its process."""
    monkeypatch.setattr(disk, "way_out", disk.way_out)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (None, 0, ""),
        (UserError("a=1: no\n  good"), 2, "rigor-x: a=1: no good\n"),
        (RunFailed("a bug"), 1, "rigor-x: a bug\n"),
        (SweepFailed("2 failed", 2), 2, "rigor-x: 2 failed\n"),
        (Stopped(signal.SIGTERM, "saved"), 143, "rigor-x: saved\n"),
        (KeyboardInterrupt(), 130, "rigor-x: interrupted\n"),
    ],
)
def test_each_error_has_an_exit_code_and_at_most_one_line(capsys, error, code, line):
    def run(arguments):
        if error is not None:
            raise error

    with pytest.raises(SystemExit) as ended:
        command.end_with("rigor-x", run)
    assert ended.value.code == code
    assert capsys.readouterr().err == line


def test_a_wrong_argument_names_the_help():
    with pytest.raises(UserError, match=r"--b; see rigor-x --help$"):
        command.Parser("rigor-x", "").parse_args(["--b"])


def test_an_unknown_option_names_a_near_one():
    parser = command.Parser("rigor-eval", "", "")
    parser.add_argument("--risk-levels")
    with pytest.raises(UserError, match=r"did you mean --risk-levels\? See rigor-eval --help$"):
        parser.parse_args(["--risk-level=.1"])


def test_a_closed_pipe_ends_without_a_traceback():
    env = {key: value for key, value in environment().items() if key != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    code = "from rigor.cli import command; command.end_with('rigor-x', lambda _: print('a line'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_modules_in_the_working_directory_can_be_imported(tmp_path):
    (tmp_path / "my_choices.py").write_text("TEXT = 'found'")
    code = (
        "from rigor.cli import command\n"
        "def run(arguments):\n"
        "    import my_choices\n"
        "    print(my_choices.TEXT)\n"
        "command.end_with('rigor-x', run)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")
