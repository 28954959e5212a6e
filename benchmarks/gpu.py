"""`benchmarks/gpu.sh`: what one GPU does with both learners, in one run and in packed runs.

    python benchmarks/gpu.py [--smoke] [--out FILE]

Every run is a process of its own that trains on Breakout. Once all of a row's runs learn, they
train side by side for the same seconds; the figure is the sum of their agent steps over that time.
When the others have ended, the first of them measures its pieces. The rows are in order of value,
the file is written after each, and nothing starts that would end after `BUDGET`. `--smoke` does the
same on the CPU with two rows, shorter, so that it is tested where there is no GPU.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

SECONDS = 10.0
ONE_ROW = 75.0  # seconds after which runs that hang are killed
FIRST_ROW = 150.0  # of the first, which compiles the loss and loads the libraries from disk
BUDGET = 480.0  # seconds for everything
WARM_UP = 4000  # agent steps before the clock starts, of which the last quarter with updates
CALLS = 50  # of each piece


@dataclass(frozen=True)
class Row:
    """One measurement.

    case: actions x horizons x quantiles. graph: whether updates are to be recorded.
    threads: of the emulator in each run; None for an equal part of the cores.
    runs: processes at once. mps: whether they use the GPU at the same time.
    """

    case: str = "4x10x50"
    learner: str = "replay"
    precision: str = "fp32"
    graph: bool = True
    threads: int | None = None
    runs: int = 1
    mps: bool = False


ROWS = (
    Row(),
    Row(learner="parallel"),
    Row(graph=False),
    Row(runs=4),
    Row(runs=4, mps=True),
    Row(precision="bf16"),
    Row(learner="parallel", precision="bf16"),
    Row(precision="tf32"),
    Row(threads=1),
    Row(learner="parallel", graph=False),
    Row(learner="parallel", runs=4),
    Row(learner="parallel", runs=4, mps=True),
    Row(case="18x10x200"),
    Row(case="18x10x200", precision="bf16"),
    Row(runs=8, mps=True),
    Row(runs=2),
    Row(learner="parallel", threads=1),
)
SMOKE = (Row("4x10x1", graph=False, threads=1), Row("4x10x1", learner="parallel", runs=2))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="on the CPU, for a test")
    parser.add_argument("--out", type=Path, help="default: results/gpu.json, smoke.json")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        row, device, seconds = asked.child
        run(Row(**json.loads(row)), device, float(seconds))
        return
    from timing import machine

    from rigor.cores import cores

    device, seconds = ("cpu", 2.0) if asked.smoke else ("cuda", SECONDS)
    # a smoke test must not pass for a GPU in the estimate of the grid
    out = asked.out or HERE / "results" / ("smoke.json" if asked.smoke else "gpu.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    # the card is named by the first run: a context of this process would take memory
    found: dict[str, Any] = {"machine": machine() | {"cores": cores()}, "rows": []}
    began, no_mps = time.monotonic(), False
    for number, row in enumerate(SMOKE if asked.smoke else ROWS):
        if time.monotonic() - began > BUDGET - ONE_ROW:
            print(f"{name_of(row)}: left out, {BUDGET:.0f} s are all there is", flush=True)
            continue
        if row.mps and no_mps:
            print(f"{name_of(row)}: left out, MPS did not work before", flush=True)
            continue
        try:
            rates, pieces = side_by_side(row, device, seconds, ONE_ROW if number else FIRST_ROW)
        except (RuntimeError, OSError, ValueError) as error:
            no_mps = no_mps or row.mps
            print(f"{name_of(row)}: {error}", flush=True)
            continue
        found["machine"]["card"] = pieces.pop("card")
        measured = asdict(row) | pieces | {"steps_per_second": rates}
        found["rows"].append(measured)
        out.write_text(json.dumps(found, indent=1) + "\n")
        print(line(measured), flush=True)
    if not found["rows"]:
        sys.exit("nothing was measured")
    print(table(found))


def name_of(row: Row) -> str:
    """Return a row's name for the terminal."""
    ways = ["" if row.graph else "not recorded", "MPS" if row.mps else ""]
    threads = f"{row.threads} emulator thread" if row.threads else ""
    parts = [row.case, row.learner, row.precision, f"{row.runs} at once", threads, *ways]
    return ", ".join(part for part in parts if part)


HEADINGS = (
    "actions × horizons × quantiles | learner | precision | | emulator threads | runs at once "
    "| agent steps/s, all | of each | update, ms | act, ms | emulator, steps/s | torch's memory, MB"
)


def table(found: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    machine = found["machine"]
    return "\n".join(
        [
            f"{machine['card']}, {machine['cores']} cores of {machine['cpu']}, torch "
            f"{machine['torch']}, commit {machine['commit']}, {machine['date']}.",
            "",
            f"| {HEADINGS} |",
            "|---" * (HEADINGS.count("|") + 1) + "|",
            *map(line, found["rows"]),
        ]
    )


def line(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    total, n = sum(row["steps_per_second"]), row["runs"]
    way = "recorded" if row["recorded"] else "eager" if not row["graph"] else "not recorded"
    way += ", compiled loss" * row["compiled"]
    cells = [
        row["case"],
        row["learner"],
        row["precision"],
        way + ", MPS" * row["mps"],
        row["emulator_threads"],
        n,
        f"{total:,.0f}",
        f"{total / n:,.0f}",
        f"{row['update_ms']:.2f}",
        f"{row['act_ms']:.2f}",
        f"{row['emulator_steps_per_second']:,.0f}",
        f"{row['memory_mb']:,.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def side_by_side(
    row: Row, device: str, seconds: float, longest: float
) -> tuple[list[float], dict[str, Any]]:
    """Return agent steps/s of each of a row's processes, and the pieces of the first.

    Args:
      seconds: over which they train at the same time. longest: after which they are killed.

    Raises:
      RuntimeError: one of them ended early or hung, or MPS does not work. OSError, ValueError: one
        of them is gone, or has written something else.
    """
    from rigor import cores
    from rigor.errors import UserError
    from rigor.launch.mps import processes_share_gpus
    from rigor.runs.memory import RUNS_ON_GPU

    if row.mps and not shutil.which("nvidia-cuda-mps-control"):
        raise RuntimeError("no MPS on this machine")
    command = [sys.executable, __file__, "--child", json.dumps(asdict(row)), device, str(seconds)]
    try:
        with processes_share_gpus(row.mps), contextlib.ExitStack() as after:
            environment = os.environ | cores.share(row.runs) | {RUNS_ON_GPU: str(row.runs)}
            environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            children = [
                subprocess.Popen(command, env=environment, **pipes) for _ in range(row.runs)
            ]
            for child in children:
                after.callback(child.wait)
                after.callback(child.kill)  # after the last word of each, or an error
            longest *= 1 if device == "cuda" else 4  # CPUs are shared
            watch = threading.Timer(longest, lambda: [child.kill() for child in children])
            after.callback(watch.cancel)
            watch.start()
            for child in children:  # each says that it learns
                if not _line(child):
                    raise RuntimeError("a run ended before it learned")
            if row.mps and not servers():
                raise RuntimeError("MPS has started, and the runs do not use it")
            for child in children:
                _say(child, "go")
            rates = [float(_line(child) or "nan") for child in children]
            if any(map(math.isnan, rates)):
                raise RuntimeError("a run ended before its time")
            for child in reversed(children):  # the first measures its pieces by itself
                _say(child, "pieces" if child is children[0] else "end")
                said = _line(child)
                child.wait(longest)
            return rates, json.loads(said)
    except UserError as error:
        raise RuntimeError(str(error)) from error


def servers() -> list[str]:
    """Return the process ids of the servers of MPS, which begin with their first client."""
    command = ["nvidia-cuda-mps-control"]
    asked = subprocess.run(command, input="get_server_list\n", capture_output=True, text=True)
    return [] if asked.returncode else [word for word in asked.stdout.split() if word.isdigit()]


def _say(child: subprocess.Popen[str], word: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{word}\n")
    child.stdin.flush()


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def run(row: Row, device: str, seconds: float) -> None:
    """Train; say when it learns, wait for a word, and say what was measured after it."""
    import torch
    from training import settings

    from rigor.cores import cores_of_run
    from rigor.learning.training import State

    warm_up = WARM_UP if device == "cuda" else 400
    clock: dict[str, float] = {}

    def stop(state: State) -> int | None:
        if state.updates == 0 or state.steps < warm_up:
            return None
        if not clock:
            _settle(device)
            print("learns", flush=True)
            sys.stdin.readline()
            clock.update(began=time.perf_counter(), steps=state.steps)
        if time.perf_counter() - clock["began"] < seconds:
            return None
        _settle(device)
        clock["rate"] = (state.steps - clock["steps"]) / (time.perf_counter() - clock["began"])
        return 15

    with tempfile.TemporaryDirectory() as folder:
        given = settings(row.case, folder, learning_starts=3 * warm_up // 4)
        if row.learner == "parallel":  # it has no warm-up, and its own number of copies
            own = ("train.learning_", *(["env.num_envs"] if device == "cuda" else []))
            given = [one for one in given if not one.startswith(own)]
        given += [f"learner={row.learner}", f"train.precision={row.precision}"]
        given += [f"train.graph={row.graph}", f"env.threads={row.threads or 'null'}"]
        training, state = _trained(given, torch.device(device), stop)
        print(clock["rate"], flush=True)
        if sys.stdin.readline().strip() == "end":
            return
        threads = row.threads or cores_of_run()
        measured = {
            "card": torch.cuda.get_device_name(0) if device == "cuda" else "no GPU: a smoke test",
            "emulator_threads": min(threads, training.env.n_envs),
            "compiled": getattr(training.agent.values, "_kernel", None) is not None,
            "memory_mb": torch.cuda.max_memory_reserved() / 1e6 if device == "cuda" else 0.0,
        } | _pieces(training, state, device)
        print(json.dumps(measured), flush=True)


def _trained(given: list[str], device: Any, stop: Callable[[Any], int | None]) -> tuple[Any, Any]:
    """Train until `stop` says so, without a checkpoint at the end."""
    from pieces import compose

    from rigor.errors import Stopped
    from rigor.learning import loop, parallel_loop
    from rigor.learning.milestones import COLUMNS, Outputs
    from rigor.learning.training import Training
    from rigor.runs.directory import RunDirectory
    from rigor.runs.metrics import MetricsFile
    from rigor.runs.progress import Progress
    from rigor.runs.trackers import Trackers

    one = compose(*given)
    with RunDirectory.open(one.path, one.plain, one.digest) as directory:
        training = Training(one.config, directory, device)
        state = training.start(lambda line: None)
        training.save = lambda state, wait=True: None
        progress = Progress(one.steps, "gpu", directory.log_path, quiet=True)
        metrics = MetricsFile(directory.metrics_path, COLUMNS).open(state.steps_logged)
        with metrics, progress, contextlib.suppress(Stopped):
            train = parallel_loop.train if training.memory is None else loop.train
            outputs = Outputs(metrics, progress, Trackers([]), lambda: stop(state))
            train(training, state, outputs)
    return training, state


def _pieces(training: Any, state: Any, device: str) -> dict[str, float]:
    """Return the milliseconds of an update and of acting, and the emulator's agent steps/s.

    Also whether the GPU has recorded them.
    """
    from rigor.learning.parallel import Rollouts

    agent, env, spec = training.agent, training.env, training.config.train
    now = state.observation, state.t, state.stock
    if training.memory is None:
        rollouts = Rollouts(agent, env, spec)
        rollouts._t.fill_(env.frame_stack)  # all frames of the stacks are read
        rows = agent.engine.upload(np.arange(spec.batch_size))
        parts = rollouts.greedy_on_device, rollouts.gradient_step_on_device
        act = _milliseconds(lambda: rollouts.predict(0, *now), device)
        update = _milliseconds(lambda: rollouts.gradient_step_on_device(rows), device)
    else:
        sample = training.memory.replay.sample
        parts = agent.greedy_on_device, agent.gradient_step_on_device
        act = _milliseconds(lambda: agent.greedy(*now), device)
        update = _milliseconds(
            lambda: agent.update(sample(spec.batch_size, training.sampling)), device
        )
    actions = agent.greedy(*now)
    step = _milliseconds(lambda: env.step(actions), device)
    return {
        "recorded": all(part.n_recorded for part in parts),
        "update_ms": update,
        "act_ms": act,
        "emulator_steps_per_second": 1e3 * env.n_envs / step,
    }


def _milliseconds(call: Callable[[], Any], device: str) -> float:
    for _ in range(5):
        call()
    _settle(device)
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    _settle(device)
    return 1e3 * (time.perf_counter() - began) / CALLS


def _settle(device: str) -> None:
    """Wait until the GPU has done what it was given."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
