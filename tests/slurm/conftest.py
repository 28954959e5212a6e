"""A real SLURM of one node, started for these tests and stopped after them."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun")


@dataclass
class Slurm:
    """The cluster; its commands find it by SLURM_CONF."""

    directory: Path

    @property
    def env(self) -> dict[str, str]:
        """What a command needs in its environment."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def ask(self, *command: str, check: bool = True) -> str:
        """Return what a command of SLURM says."""
        done = subprocess.run(
            command, env=os.environ | self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the state of every task that has not ended, by its name such as `7_0`."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def ended(self, job: str) -> dict[str, str]:
        """Return the last state of every task of a job, by its index (0 where it is no array)."""
        shown = self.ask("scontrol", "show", "job", "--oneliner", job).splitlines()
        states = {}
        for line in shown:
            index = re.search(r"ArrayTaskId=(\d+)", line)
            states[index.group(1) if index else "0"] = re.search(r"JobState=(\S+)", line).group(1)
        return states

    def until(self, what: Callable, seconds: float = 120):
        """Poll `what()` until it is true, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := what():
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s: {self.ask('scontrol', 'show', 'job')}")

    def settled(self, seconds: float = 180) -> None:
        """Wait until no task is left; a requeued one, which waits two minutes, starts at once."""

        def empty() -> bool:
            left = self.jobs()
            for job in [job for job, state in left.items() if state == "PENDING"]:
                self.ask("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
            return not left

        self.until(empty, seconds)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("SLURM's daemons start as root only")
    directory = tmp_path_factory.mktemp("slurm")
    ports = [str(free_port()), str(free_port())]
    started = subprocess.run(
        [HERE / "start.sh", directory, *ports], capture_output=True, text=True, check=False
    )
    try:
        if started.returncode:
            pytest.skip(f"no SLURM here: {started.stderr.strip()}")
        yield Slurm(directory)
    finally:
        subprocess.run(["scancel", "--user=root"], env=os.environ | Slurm(directory).env)
        subprocess.run([HERE / "stop.sh", directory], check=False)
