"""How the commands beside `rigor-train` end."""

import os
import signal
import subprocess
import sys

import pytest
from cli import environment

from rigor import command
from rigor.errors import RunFailed, Stopped, UserError
from rigor.launch.sweep import SweepFailed


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (None, 0, ""),
        (UserError("a=1: no\n  good"), 2, "rigor-x: a=1: no good\n"),
        (RunFailed("ours"), 1, "rigor-x: ours\n"),
        (SweepFailed("2 failed", 2), 2, "rigor-x: 2 failed\n"),
        (Stopped(signal.SIGTERM, "saved"), 143, "rigor-x: saved\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_end_has_its_code_and_at_most_one_line(capsys, error, code, said):
    def run(arguments):
        if error is not None:
            raise error

    with pytest.raises(SystemExit) as ended:
        command.end_with("rigor-x", run)
    assert ended.value.code == code
    assert capsys.readouterr().err == said


def test_a_mistake_in_an_argument_says_where_to_read_more():
    with pytest.raises(UserError, match=r"--b; see rigor-x --help$"):
        command.Parser(prog="rigor-x").parse_args(["--b"])


def test_a_reader_that_has_gone_is_no_traceback():
    env = {key: value for key, value in environment().items() if key != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    code = "from rigor import command; command.end_with('rigor-x', lambda words: print('a line'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_users_own_module_is_found_where_the_command_is_typed(tmp_path):
    (tmp_path / "my_choices.py").write_text("SAID = 'found'")
    code = (
        "from rigor import command\n"
        "def run(words):\n"
        "    import my_choices\n"
        "    print(my_choices.SAID)\n"
        "command.end_with('rigor-x', run)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")
