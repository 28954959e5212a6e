import io
from pathlib import Path

import pytest
from rich.console import Console

from rigor.launch.display import status_table
from rigor.launch.status import RunStatus

NAME = "pong-multihorizon-hyperbolic-mean-time_consistent-s{}-1a2b3c4d"


def at(number, state, step=0, **more) -> RunStatus:
    values = {
        "rate": None,
        "seconds_left": None,
        "host": "node7",
        "gpu": None,
        "error": None,
    } | more
    return RunStatus(Path(NAME.format(number)), state, step, 1000, **values)


def drawn(statuses, width=80, height=24) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, color_system=None)
    console.print(status_table(statuses, "a sweep", height))
    return text.getvalue().splitlines()


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


def test_without_a_screen_no_run_is_left_out():
    runs = [at(n, "running", n, rate=1.0) for n in range(40)]
    runs += [at(n, "failed", error=f"error {n}") for n in range(40, 80)]
    text = "\n".join(drawn(runs, 10_000, None))
    assert all(f"s{n} " in text or f"s{n}:" in text for n in range(80))
    assert "error 79" in text
    assert "more" not in text
