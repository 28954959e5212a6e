"""Disturb the runs of a sweep at random, and check that no step is lost or counted twice.

    python tests/slurm/chaos.py [RUNS [STRIKES [SEED [NODES [TOGETHER]]]]]

By default 60 runs, 100 strikes, seed 0, one node, two runs together in a task.

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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `command_line` in a script

from command_line import TINY, environment, finish, rigor_train, start
from node import Slurm, begin, end

from rigor.launch.manifest import read_manifest
from rigor.runs.directory import RunDirectory

WALL_CLOCK = {"seconds", "steps_per_second"}
RUN = (*TINY, "train.steps=600", "train.checkpoint_every=30", "train.log_every=0.02")
OFTEN = 15.0  # seconds between two looks for runs that have no task any more
BURST = 3  # strikes one after the other, at most
TOLD = 60.0  # seconds between two lines that say how far it is
SOON = 4.0  # seconds after which a full disk is emptied and a lost node comes back


class Chaos:
    """A sweep on a cluster, and all that can befall it.

    Args:
      disk: a file system of its own, which can be filled; None: no disk is filled.
    """

    def __init__(self, slurm: Slurm, place: Path, disk: Path | None, seed: int) -> None:
        self.slurm, self.place, self.disk = slurm, place, disk
        self.out = (disk or place) / "struck"
        self.choose = random.Random(seed)
        self.counts = Counter[str]()
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._done = set[Path]()
        self._last_retry, self._retry = time.monotonic(), None
        self.strikes: dict[str, Callable[[Path], bool]] = {
            "kill -9 of a run": self.kill_run,
            "kill -9 of a task": self.kill_task,
            "SIGINT": self.by_slurm("scancel", "--signal=INT"),
            "SIGUSR2": self.by_slurm("scancel", "--signal=USR2"),
            "SIGTERM": self.by_slurm("scancel", "--signal=TERM"),
            "requeue": self.by_slurm("scontrol", "requeue"),
            "scancel": self.by_slurm("scancel"),
            "a node that is drained": self.drain,
            "a new slurmctld": self.restart_controller,
            "a status cut in half": self.cut_status,
        }
        if disk is not None:
            self.strikes["a full disk"] = self.fill_disk
        if len(slurm.nodes()) > 1:
            self.strikes["a lost node"] = self.lose_node

    @property
    def sweep(self) -> Path:
        """The directory of the sweep."""
        (found,) = (self.out / "sweeps").iterdir()
        return found

    def unfinished(self) -> list[Path]:
        """Return the runs that are not done."""
        self._done |= {run for run in runs(self.out) if run not in self._done and done(run)}
        if len(self._done) == len(runs(self.out)):  # a status may have been cut since
            self._done = {run for run in self._done if done(run)}
        return [run for run in runs(self.out) if run not in self._done]

    def strike(self) -> bool:
        """Strike one of the runs that can resume, if there is one; return whether it was struck."""
        struck = [run for run in self.unfinished() if saved(run)]
        if not struck:
            return False
        kind = self.choose.choice(list(self.strikes))
        with suppress(OSError, TypeError, KeyError):  # the run or its status is just gone
            if self.strikes[kind](self.choose.choice(struck)):
                self.counts[kind] += 1
                return True
        return False

    def undo(self, now: float) -> None:
        """Undo what was to last until now, and what SLURM did to nodes and tasks because of it."""
        due = [undo for until, undo in self._later if until <= now]
        self._later = [(until, undo) for until, undo in self._later if until > now]
        for undo in due:
            undo()
        self.counts["tasks that SLURM held"] += self.slurm.release_held()
        drained = [node for node, state in self.slurm.nodes().items() if state.startswith("drain")]
        for node in drained if not self._later else ():
            self.counts["nodes that SLURM drained"] += 1
            self._update(node, "State=RESUME")

    def retry(self) -> None:
        """Start `rigor-sweep retry` in the background when it is due, and count an ended one."""
        log = self.place / "retry.log"
        if self._retry and self._retry.poll() is not None:
            # on a full disk nothing can be queued
            if self._retry.returncode or "nothing to retry" not in log.read_text():
                kind = "retries" if self._retry.returncode == 0 else "retries that were refused"
                self.counts[kind] += 1
            self._last_retry, self._retry = time.monotonic(), None
        often = max(OFTEN, len(runs(self.out)) / 5)  # of many runs, one has always just ended
        if self._retry is None and time.monotonic() > self._last_retry + often:
            command = [sys.executable, "-m", "rigor.cli.sweep", "retry", str(self.sweep)]
            env = environment(**self.slurm.env)
            with open(log, "wb") as file:
                self._retry = subprocess.Popen(
                    command, env=env, cwd=self.place, stdout=file, stderr=file
                )

    def close(self) -> None:
        """Undo what lasts, and wait for a retry that still runs."""
        self.undo(float("inf"))
        if self._retry:
            self._retry.wait(300)

    # --- what can befall a run

    def kill_run(self, run: Path) -> bool:
        return _kill(RunDirectory(run).status()["pid"])

    def kill_task(self, run: Path) -> bool:
        pid = RunDirectory(run).status()["pid"]
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent > 1 and _kill(parent)

    def by_slurm(self, *command: str) -> Callable[[Path], bool]:
        """Return a strike by a command of SLURM; its exit code says whether it was in time."""

        def strike(run: Path) -> bool:
            asked = [*command, task_of(self.sweep, run)]
            env = os.environ | self.slurm.env
            try:
                return (
                    subprocess.run(asked, env=env, capture_output=True, timeout=4).returncode == 0
                )
            except subprocess.TimeoutExpired:
                return False  # scancel repeats a late signal ten times, in 95 seconds

        return strike

    def cut_status(self, run: Path) -> bool:
        path = run / "status.json"
        os.truncate(path, path.stat().st_size // 2)
        return True

    def drain(self, run: Path) -> bool:
        node = RunDirectory(run).status()["host"]
        self._update(node, "State=DRAIN", "Reason=chaos")
        self._then(lambda: self._update(node, "State=RESUME"))
        return True

    def lose_node(self, run: Path) -> bool:
        node = RunDirectory(run).status()["host"]
        self.slurm.kill_node(node)
        self._update(node, "State=DOWN", "Reason=chaos")
        self._then(lambda: self.return_node(node))
        return True

    def return_node(self, node: str) -> None:
        with priority(0):  # its runs must not inherit this script's
            self.slurm.start_node(node)

    def restart_controller(self, run: Path) -> bool:
        with priority(0):
            self.slurm.restart_controller()
        return True

    def fill_disk(self, run: Path) -> bool:
        filler = self.disk / "filler"
        with suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        self._then(lambda: filler.unlink(missing_ok=True))
        return True

    def _update(self, node: str, *values: str) -> None:
        self.slurm.ask("scontrol", "update", f"NodeName={node}", *values, check=False)

    def _then(self, undo: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + SOON, undo))


def chaos(
    slurm: Slurm,
    place: Path,
    disk: Path | None,
    n_runs: int,
    n_strikes: int,
    seed: int,
    together: int = 2,
) -> Counter[str]:
    """Run a sweep undisturbed and disturbed, assert equal results, and count the events."""
    patience = 900.0 + 20.0 * n_runs + 5.0 * n_strikes
    command = (*RUN, f"seed={','.join(map(str, range(n_runs)))}", "-m")
    undisturbed = start(*command, "out=whole", cwd=place)
    mine = Chaos(slurm, place, disk, seed)
    packed = (
        "hydra/launcher=slurm",
        "hydra.launcher.gres=gpu:1",  # a node has two
        f"hydra.launcher.runs_per_gpu={together}",
        f"out={mine.out}",
    )
    at_once = 2 * together * len(slurm.nodes())
    env = environment(**slurm.env)
    began = told = time.monotonic()
    submitted = rigor_train(*command, *packed, cwd=place, env=env)
    assert submitted.code == 0, submitted
    with priority(-10), closing(mine):  # many runs leave this script no time
        while time.monotonic() < began + patience:
            mine.undo(time.monotonic())
            left = len(mine.unfinished())
            due = n_strikes * (n_runs - left + at_once) / n_runs  # so that they befall all runs
            for _ in range(BURST):
                if mine.counts["strikes"] < min(due, n_strikes) and mine.strike():
                    mine.counts["strikes"] += 1
            if not slurm.hurry_all() and not left:
                break
            if time.monotonic() > told + TOLD:
                told = time.monotonic()
                strikes = f"{mine.counts['strikes']} of {n_strikes} strikes"
                print(f"{told - began:.0f} s: {left} of {n_runs} runs left, {strikes}", flush=True)
            mine.retry()
            time.sleep(mine.choose.uniform(0.2, 1.0))
    counts = mine.counts
    counts["seconds"] = round(time.monotonic() - began)
    assert finish(undisturbed, patience).code == 0
    logs = [(run / "train.log").read_text() for run in runs(mine.out)]
    counts["resumed"] = sum(log.count("resumed at step") for log in logs)
    for run, whole in zip(runs(mine.out), runs(place / "whole"), strict=True):
        assert run.name == whole.name
        assert done(run), f"{run}: {RunDirectory(run).state()}"
        found = rows(run)
        steps = [int(row["steps"]) for row in found]
        assert steps == sorted(set(steps)), f"{run}: {steps}"
        assert found == rows(whole), f"{run}: different rows"
    return counts


def runs(out: Path) -> list[Path]:
    return sorted(path for path in out.glob("*-s*-*") if path.is_dir())


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]


def done(run: Path) -> bool:
    """Return whether a run is done."""
    return RunDirectory(run).state() == "done"


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


@contextmanager
def priority(nice: int) -> Iterator[None]:
    """Give this process and those that it starts another nice value, where the system allows it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path | None]:
    """Yield a file system of its own, None where nothing can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def main() -> None:
    """Print what befell the runs, and raise an error if a run differs from an undisturbed one."""
    defaults = (60, 100, 0, 1, 2)
    given = [*map(int, sys.argv[1:]), *defaults[len(sys.argv) - 1 :]]
    n_runs, n_strikes, seed, n_nodes, together = given
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        # before the nodes start, which see no later mount
        with small_disk(place / "disk", 100 + n_runs) as disk:
            slurm = begin(place / "slurm", n_nodes)
            try:
                for what, count in chaos(
                    slurm, place, disk, n_runs, n_strikes, seed, together
                ).items():
                    print(f"{what}: {count}")
            finally:
                end(slurm)


if __name__ == "__main__":
    main()
