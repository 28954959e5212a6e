import subprocess
import sys
from importlib.metadata import version

import pytest

from rigor.__main__ import COMMANDS


def rigor(*arguments, cwd=None):
    command = [sys.executable, "-m", "rigor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_the_module_lists_the_commands():
    done = rigor()
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == list(COMMANDS)


def test_the_module_runs_a_command():
    done = rigor("figure", "1c")
    assert done.returncode == 2
    assert done.stderr.startswith("rigor-figure: 1c: no such figure")


def test_an_unknown_command_is_refused():
    done = rigor("trian")
    assert done.returncode == 2
    assert done.stderr.startswith("rigor: trian: no such command; choose one of train, ")


@pytest.mark.parametrize("arguments", [[], ["train"], ["sweep"]])
def test_the_version_is_rigors(arguments):
    done = rigor(*arguments, "--version")
    assert (done.returncode, done.stdout) == (0, f"rigor {version('rigor-rl')}\n")


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["figure", "2", "out=/proc/x"], "choose another place with out=DIR"),
        (["report", ".", "--out", "/proc/x"], "choose another place with --out DIR"),
    ],
)
def test_the_way_out_of_a_bad_directory_is_the_commands_own(tmp_path, arguments, way_out):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "config.yaml").write_text("seed: 0\n")
    done = rigor(*arguments, cwd=tmp_path / "runs")
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.endswith(way_out)
