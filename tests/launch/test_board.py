import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from rigor.launch import board
from rigor.launch.board import Standing, Watch, standing, totals
from rigor.tracking.rundir import RunDirectory, config_hash

NAME = "pong-multihorizon-hyperbolic-mean-time_consistent-s{}-1a2b3c4d"


def at(number, state, step=0, **more) -> Standing:
    values = {
        "rate": None,
        "seconds_left": None,
        "host": "node7",
        "gpu": None,
        "error": None,
    } | more
    return Standing(Path(NAME.format(number)), state, step, 1000, **values)


def drawn(standings, width=80, height=24) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None)
    console.print(board.board(standings, "a sweep", width, height))
    return text.getvalue().splitlines()


def test_a_standing_is_read_from_the_runs_own_files(tmp_path):
    config = {"seed": 0}
    with RunDirectory.open(tmp_path, config, config_hash(config)) as run:
        run.write_status("running", step=30, steps_total=90, steps_per_second=2.0, seconds_left=30)
        run.write_status("running", gpu="1 H100 80GB HBM3")
        one = standing(tmp_path)
        assert (one.state, one.step, one.steps_total, one.rate) == ("running", 30, 90, 2.0)
        assert (one.seconds_left, one.log) == (30, tmp_path / "train.log")
        assert (one.host, one.gpu) == (os.uname().nodename, "1 H100 80GB HBM3")
    assert standing(tmp_path).state == "lost"
    assert standing(tmp_path).rate is None  # it has none any more
    assert standing(tmp_path).gpu is None


def test_the_totals_count_every_run_and_every_step():
    line = totals(
        [
            at(0, "done", 1000),
            at(1, "running", 400, rate=10.0),
            at(2, "running", 900, rate=10.0),
            at(3, "queued"),
            at(4, "failed", 10),
        ]
    )
    # 600 + 100 + 1000 steps are left to running and queued runs, at 20 steps/s
    assert line == ("2 running, 1 queued, 1 done, 1 failed of 5  2.3k/5k steps  20/s  eta 0:01:25")
    assert totals([at(0, "done", 1000)]) == "1 done of 1  1k/1k steps"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (200, 50)])
def test_hundreds_of_runs_fit_a_screen(width, height):
    runs = [at(n, "running", n, rate=1.0, seconds_left=60.0) for n in range(100)]
    runs += [at(n, "failed", error="ValueError: " + "x" * 300) for n in range(100, 120)]
    runs += [at(n, "queued") for n in range(120, 450)]
    lines = drawn(runs, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "100 running, 330 queued, 20 failed of 450"[: width - 1] in text
    assert "more running" in text
    assert "more failed" in text
    assert "failed s100: ValueError" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_gpus_are_shown_where_there_are_any_and_fit(width):
    place = {"rate": 1234.5, "seconds_left": 360_000.0, "host": "a-node-of-14-c"}
    runs = [
        at(0, "running", 123, gpu="1 H100 80GB HBM3", **place),
        at(1, "running", 456, gpu="MIG-4f0f4a6c-1f0a-5b7c A100-SXM4-40GB MIG 1g.5gb", **place),
        at(2, "running", 789, **place),
    ]
    runs[0].path = Path(NAME.format(0).replace("pong", "montezuma_revenge"))
    lines = drawn(runs, width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    if width >= 80:
        for part in ("gpu", "1 H100 80…", "MIG-4f0f4…", "123/1k", "100:00:00", "a-node-of-14-c"):
            assert part in text
    whole = "\n".join(drawn(runs, 10_000, None))
    assert "gpu" not in "\n".join(drawn([at(2, "running", 789, **place)], width))
    assert "a-node-of-14-c  -" in whole


def test_without_a_screen_nothing_is_left_out():
    runs = [at(n, "running", n, rate=1.0) for n in range(40)]
    runs += [at(n, "failed", error=f"error {n}") for n in range(40, 80)]
    text = "\n".join(drawn(runs, 10_000, None))
    assert all(f"s{n} " in text or f"s{n}:" in text for n in range(80))
    assert "error 79" in text
    assert "more" not in text


def test_what_is_done_is_read_once(tmp_path):
    done, other = RunDirectory(tmp_path / "a"), RunDirectory(tmp_path / "b")
    for run in (done, other):
        run.path.mkdir()
        run.write_status("done")
    other.write_status("failed")
    watch = Watch([done.path, other.path])
    assert [one.state for one in watch.read()] == ["done", "failed"]
    for run in (done, other):
        run.write_status("queued")
    assert [one.state for one in watch.read()] == ["done", "queued"]
