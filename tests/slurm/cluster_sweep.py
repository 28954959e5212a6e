"""A sweep on a cluster of these tests, and what its runs must equal."""

import contextlib
import csv
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from command_line import TINY, Done, environment, finish, rigor_train

from rigor.launch.manifest import read_manifest
from rigor.runs.directory import RunDirectory

LONG = (*TINY, "train.steps=800", "train.checkpoint_every=50", "train.log_every=0.02")
SLURM = ("hydra/launcher=slurm", "hydra.launcher.grace=5")
WALL_CLOCK = {"seconds", "steps_per_second"}
SOURCE = {"commit", "sources"}  # it may have been edited


def runs(out: Path) -> list[Path]:
    return sorted(path for path in out.glob("*-s*-*") if path.is_dir())


def states(out: Path) -> list[str]:
    return [RunDirectory(path).state() for path in runs(out)]


def newest(run: Path) -> int:
    """Return the step of a run's newest checkpoint; 0 if there is none."""
    return max((int(path.name[5:]) for path in run.glob("checkpoints/step_*")), default=0)


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]


class ClusterSweep:
    def __init__(self, slurm, place: Path) -> None:
        self.slurm, self.place, self.out = slurm, place, place / "out"

    @property
    def directory(self) -> Path:
        (found,) = (self.out / "sweeps").iterdir()
        return found

    def submit(self, *arguments: str, seeds: str = "0,1", **options) -> Done:
        command = (*LONG, f"seed={seeds}", "-m", *SLURM, "out=out", *arguments)
        done = rigor_train(*command, cwd=self.place, env=environment(**self.slurm.env), **options)
        assert done.code == 0, done
        return done

    def sweep(self, name: str, *more: str) -> Done:
        process = subprocess.Popen(
            # -P: like the command itself, without modules of the working directory
            [sys.executable, "-P", "-m", "rigor.cli.sweep", name, str(self.directory), *more],
            cwd=self.place,
            env=environment(**self.slurm.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return finish(process)

    def status(self) -> str:
        done = self.sweep("status")
        assert done.code == 0, done
        return done.out

    def jobs(self) -> list[str]:
        return [each.job for each in read_manifest(self.directory).submissions]

    @contextlib.contextmanager
    def at_work(self, n: int = 2, after: int = 0) -> Iterator[list[Path]]:
        """Wait until `n` runs have saved, and hold them there for the length of the block.

        They are short: the first would be done before the last has begun, or before what is done to
        the last. So each is stopped once it has saved at a step above `after`, and those whose
        process is still there continue at the block's end.
        """
        stopped: dict[Path, int] = {}

        def saved() -> list[Path] | None:
            for run in runs(self.out):
                working = run not in stopped and RunDirectory(run).state() == "running"
                if working and newest(run) > after:
                    with contextlib.suppress(ProcessLookupError):
                        pid = self.member(run)
                        os.kill(pid, signal.SIGSTOP)
                        stopped[run] = pid
            return sorted(stopped) if len(stopped) >= n else None

        try:
            yield self.slurm.until(saved)
        finally:
            for pid in stopped.values():
                with contextlib.suppress(ProcessLookupError):  # SLURM or the test has ended it
                    os.kill(pid, signal.SIGCONT)

    def member(self, run: Path) -> int:
        """Return the process id of a run."""
        return RunDirectory(run).status()["pid"]

    def retried(self) -> None:
        """Retry the sweep and wait for its end."""
        done = self.sweep("retry")
        assert done.code == 0, done
        assert "submitted" in done.out
        self.slurm.settled()


def same(found: list[Path], whole: list[Path]) -> None:
    """Assert that runs are done and equal undisturbed ones, with no step counted twice."""
    assert [run.name for run in found] == [run.name for run in whole]
    for mine, other in zip(found, whole, strict=True):
        assert RunDirectory(mine).state() == "done", (mine / "train.log").read_text()
        steps = [int(row["steps"]) for row in rows(mine)]
        assert all(a < b for a, b in itertools.pairwise(steps))
        assert rows(mine) == rows(other)
        left, right = (json.loads((run / "result.json").read_text()) for run in (mine, other))
        different = {key for key in left if left[key] != right[key]}
        assert different <= WALL_CLOCK | SOURCE
