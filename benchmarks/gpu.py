"""`benchmarks/gpu.sh`: agent steps/s on one GPU, eager against recorded, one run and packed runs.

    python benchmarks/gpu.py [--smoke] [--out FILE]

Every run is a process of its own that trains on Breakout with 8 games. Once all of them learn, they
train side by side for the same seconds; the figure is the sum of their agent steps over that time.
The file is written after every row, and nothing starts that would end after `BUDGET`.
`--smoke` does the same on the CPU, shorter, so that it is tested where there is no GPU.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

PACKED = (1, 2, 4, 6)
SECONDS = 12.0
ONE_PLAN = 90.0  # seconds after which runs that hang are killed
BUDGET = 480.0  # seconds for everything
WARM_UP = 4000  # agent steps before the clock starts, of which the last quarter with updates


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="on the CPU, for a test")
    parser.add_argument("--out", type=Path, help="default: results/gpu.json, smoke.json")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        case, graph, device, seconds = asked.child
        run(case, graph, device, float(seconds))
        return
    device, seconds = ("cpu", 2.0) if asked.smoke else ("cuda", SECONDS)
    # a smoke test must not pass for a GPU in the estimate of the grid
    out = asked.out or HERE / "results" / ("smoke.json" if asked.smoke else "gpu.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": described(device), "rows": []}
    began = time.monotonic()
    for case in ("4x10x50",) if asked.smoke else ("4x10x50", "18x10x200"):
        plans = [("false", 1), *(("true", n) for n in ((2,) if asked.smoke else PACKED))]
        for graph, n in plans:
            if time.monotonic() - began > BUDGET - ONE_PLAN:
                print(f"{case}, {n} runs: left out, {BUDGET:.0f} s are all there is", flush=True)
                continue
            try:
                speeds = side_by_side(case, graph, n, device, seconds)
            except (RuntimeError, BrokenPipeError) as error:
                print(f"{case}, {n} runs: {error}", flush=True)
                continue
            way = "recorded" if graph == "true" else "eager"
            row = {"case": case, "way": way, "runs": n, "steps_per_second": speeds}
            found["rows"].append(row)
            out.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{case} {way} {n} runs: {sum(speeds):,.0f} agent steps/s", flush=True)
    print(table(found))
    if not found["rows"]:
        sys.exit("nothing was measured")


def described(device: str) -> dict[str, Any]:
    """Return the machine with the card's name."""
    import torch
    from timing import machine

    card = torch.cuda.get_device_name() if device == "cuda" else "no GPU: a smoke test"
    return machine() | {"card": card}


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    machine = found["machine"]
    lines = [
        f"{machine['card']}, {machine['cores']} cores of {machine['cpu']}, torch "
        f"{machine['torch']}, commit {machine['commit']}, {machine['date']}.",
        "",
        "| actions × horizons × quantiles | | runs at once | agent steps/s, all | of each |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        total, n = sum(row["steps_per_second"]), row["runs"]
        lines.append(f"| {row['case']} | {row['way']} | {n} | {total:,.0f} | {total / n:,.0f} |")
    return "\n".join(lines)


def side_by_side(case: str, graph: str, n: int, device: str, seconds: float) -> list[float]:
    """Return agent steps/s of each of n processes that train at the same time.

    Raises:
      RuntimeError: one of them ended early, or hung.
    """
    command = [sys.executable, __file__, "--child", case, graph, device, str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    children = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(n)
    ]
    watch = threading.Timer(ONE_PLAN, lambda: [child.kill() for child in children])
    watch.start()
    try:
        for child in children:  # each says that it learns
            if not _line(child):
                raise RuntimeError("a run ended before it learned")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [_line(child) for child in children]
        if not all(said):
            raise RuntimeError("a run ended before its time")
        return [float(line) for line in said]
    finally:
        watch.cancel()
        for child in children:
            child.kill()
            child.wait()


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def run(case: str, graph: str, device: str, seconds: float) -> None:
    """Train; say when it learns, wait for a word, and say agent steps/s of the time after it."""
    import torch
    from pieces import compose
    from training import settings

    from rigor.errors import Stopped
    from rigor.learning import loop
    from rigor.learning.milestones import COLUMNS, Outputs
    from rigor.learning.training import State, Training
    from rigor.runs.directory import RunDirectory
    from rigor.runs.metrics import MetricsFile
    from rigor.runs.progress import Progress
    from rigor.runs.trackers import Trackers

    torch.set_num_threads(1)
    warm_up = WARM_UP if device == "cuda" else 400
    threads = max(1, min(8, (os.cpu_count() or 1) // 2))
    clock: dict[str, float] = {}

    def stop(state: State) -> int | None:
        if state.steps < warm_up:
            return None
        if not clock:
            if device == "cuda":
                torch.cuda.synchronize()
            print("learns", flush=True)
            sys.stdin.readline()
            clock.update(began=time.perf_counter(), steps=state.steps)
        took = time.perf_counter() - clock["began"]
        if took < seconds:
            return None
        if device == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - clock["began"]
        print((state.steps - clock["steps"]) / took, flush=True)
        return 15

    with tempfile.TemporaryDirectory() as folder:
        one = compose(
            *settings(case, folder, learning_starts=3 * warm_up // 4),
            f"train.graph={graph}",
            f"env.threads={threads}",
        )
        with RunDirectory.open(one.path, one.plain, one.digest) as directory:
            training = Training(one.config, directory, torch.device(device))
            state = training.start(lambda line: None)
            progress = Progress(one.steps, "gpu", directory.log_path, enabled=False)
            metrics = MetricsFile(directory.metrics_path, COLUMNS).open(state.steps_logged)
            with metrics, progress, contextlib.suppress(Stopped):
                sink = Trackers([])
                loop.train(training, state, Outputs(metrics, progress, sink, lambda: stop(state)))


if __name__ == "__main__":
    main()
