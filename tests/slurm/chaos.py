"""Disturb the runs of a sweep at random, and check that no step is lost or counted twice.

    python tests/slurm/chaos.py [RUNS [STRIKES [SEED]]]     (60 runs, 100 strikes, seed 0)

Needs root and SLURM. The results are in docs/results/cluster.md.
"""

import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `command_line` in a script

from command_line import TINY, environment, rigor_train
from node import Slurm, begin, end

from rigor.launch.manifest import read_manifest
from rigor.runs.directory import RunDirectory

WALL_CLOCK = {"seconds", "steps_per_second"}
RUN = (*TINY, "train.steps=300", "train.checkpoint_every=30", "train.log_every=0.02")
PATIENCE = 1800.0  # seconds


def chaos(slurm: Slurm, place: Path, n_runs: int, n_strikes: int, seed: int) -> Counter[str]:
    """Run a sweep undisturbed and disturbed, assert equal results, and count the events."""
    choose, counts = random.Random(seed), Counter[str]()
    seeds = ",".join(map(str, range(n_runs)))
    command = (*RUN, f"seed={seeds}", "-m")
    env = environment(**slurm.env)
    began = time.monotonic()
    assert rigor_train(*command, "out=whole", cwd=place, env=env, timeout=PATIENCE).code == 0
    counts["seconds undisturbed"] = round(time.monotonic() - began)
    began = time.monotonic()
    packed = ("hydra/launcher=slurm", "hydra.launcher.runs_per_gpu=2", "out=struck")
    assert rigor_train(*command, *packed, cwd=place, env=env).code == 0
    (directory,) = (place / "struck" / "sweeps").iterdir()
    strikes = 0
    while time.monotonic() < began + PATIENCE:
        running = [run for run in runs(place / "struck") if saved(run)]
        if running and strikes < n_strikes:
            kind = choose.choice(list(STRIKES))
            if STRIKES[kind](slurm, directory, choose.choice(running)):
                strikes += 1
                counts[kind] += 1
        if not slurm.hurry_all():
            if all(RunDirectory(run).state() == "done" for run in runs(place / "struck")):
                break
            counts["retries"] += 1
            again = [sys.executable, "-m", "rigor.cli.sweep", "retry", str(directory)]
            subprocess.run(again, env=env, cwd=place, check=True, stdout=subprocess.DEVNULL)
        time.sleep(choose.uniform(0.2, 1.0))
    counts["seconds struck"] = round(time.monotonic() - began)
    counts["strikes"] = strikes
    logs = [(run / "train.log").read_text() for run in runs(place / "struck")]
    counts["resumed"] = sum(log.count("resumed at step") for log in logs)
    for mine, whole in zip(runs(place / "struck"), runs(place / "whole"), strict=True):
        assert mine.name == whole.name
        assert RunDirectory(mine).state() == "done", f"{mine}: {RunDirectory(mine).state()}"
        found = rows(mine)
        steps = [int(row["steps"]) for row in found]
        assert steps == sorted(set(steps)), f"{mine}: {steps}"
        assert found == rows(whole), f"{mine}: different rows"
    return counts


def runs(out: Path) -> list[Path]:
    return sorted(path for path in out.glob("*-s*-*") if path.is_dir())


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]


def saved(run: Path) -> bool:
    """Return whether a run is running and has a checkpoint to resume from."""
    return RunDirectory(run).state() == "running" and any(run.glob("checkpoints/step_*"))


def task_of(directory: Path, run: Path) -> str:
    """Return SLURM's id of the newest task of a run."""
    manifest = read_manifest(directory)
    number = [path.name for path in manifest.runs].index(run.name)
    for entry in reversed(manifest.submissions):
        for index, members in enumerate(entry.tasks):
            if number in members:
                return f"{entry.job}_{index}" if len(entry.tasks) > 1 else str(entry.job)
    raise AssertionError(f"{run}: never submitted")


def kill_run(slurm: Slurm, directory: Path, run: Path) -> bool:
    return _kill(RunDirectory(run).status()["pid"])


def kill_task(slurm: Slurm, directory: Path, run: Path) -> bool:
    pid = RunDirectory(run).status()["pid"]
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return parent > 1 and _kill(parent)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _by_slurm(*command: str):
    """Return a strike by a command of SLURM; its exit code says whether it was in time."""

    def strike(slurm: Slurm, directory: Path, run: Path) -> bool:
        asked = [*command, task_of(directory, run)]
        env = os.environ | slurm.env
        try:
            return subprocess.run(asked, env=env, capture_output=True, timeout=4).returncode == 0
        except subprocess.TimeoutExpired:
            return False  # scancel repeats a signal that comes too late ten times, in 95 seconds

    return strike


STRIKES = {
    "kill -9 of a run": kill_run,
    "kill -9 of a task": kill_task,
    "SIGUSR2": _by_slurm("scancel", "--signal=USR2"),
    "SIGTERM": _by_slurm("scancel", "--signal=TERM"),
    "requeue": _by_slurm("scontrol", "requeue"),
    "scancel": _by_slurm("scancel"),
}


def main() -> None:
    n_runs, n_strikes, seed = [*map(int, sys.argv[1:]), *(60, 100, 0)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as place:
        slurm = begin(Path(place) / "slurm")
        try:
            for name, count in chaos(slurm, Path(place), n_runs, n_strikes, seed).items():
                print(f"{name}: {count}")
        finally:
            end(slurm)


if __name__ == "__main__":
    main()
