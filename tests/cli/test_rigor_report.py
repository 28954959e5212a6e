import subprocess
import sys

import pytest
from synthetic import make_run

from rigor.cli import report
from rigor.errors import UserError


def command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "rigor.cli.report", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def test_help_is_quick():
    code = (
        "import sys; from rigor.cli.report import _parser; print(_parser().format_help()); "
        "assert not {'matplotlib', 'hydra', 'numpy', 'torch', 'jinja2'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--baseline KEY=VALUE" in done.stdout


def test_the_page_is_written_into_the_directory(tmp_path):
    run = make_run(tmp_path, "pong", "time_aware", 0, state="queued")
    done = command(str(run))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run}/report/report.html: 1 queued\n"
    report.run([str(run), "--out", str(tmp_path / "elsewhere")])
    assert (tmp_path / "elsewhere/report.html").is_file()


def test_the_page_of_several_directories_is_written_into_the_working_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    runs = [str(make_run(tmp_path, "pong", "time_aware", seed, state="queued")) for seed in (0, 1)]
    report.run(runs)
    assert (tmp_path / "report/report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["required: DIR"]),
        (["nowhere"], ["nowhere: no such directory"]),
        (["."], ["holds no runs"]),
        ([".", "--baseline", "variant"], ["variant: must be KEY=VALUE"]),
        ([".", "--watch", "0"], ["0: must be a whole number of seconds"]),
        (
            [".", "--bseline", "a=b"],
            ["unrecognized arguments: --bseline a=b", "rigor-report --help"],
        ),
    ],
)
def test_refusals(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        report.run(arguments)
    for part in parts:
        assert part in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_line_and_code_2(tmp_path):
    done = command("nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rigor-report: nowhere: no such directory\n"


def test_watching_ends_when_all_runs_have_ended(tmp_path, monkeypatch):
    run = make_run(tmp_path, "pong", "time_aware", 0, state="queued")
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        assert 'content="7"' in (run / "report/report.html").read_text()
        if len(pauses) == 2:
            (run / "status.json").write_text('{"state": "failed", "error": "x"}')

    monkeypatch.setattr(report.time, "sleep", sleep)
    report.run([str(run), "--watch", "7"])
    assert pauses == [7, 7]
    assert "refresh" not in (run / "report/report.html").read_text()
