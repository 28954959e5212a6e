"""A real SLURM of one node: its commands, and starting and stopping it."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
PATIENT = timedelta(seconds=5)  # a requeued task waits two minutes


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
        """Wait until no task is left; a requeued one, which waits two minutes, starts soon."""
        self.until(lambda: not self.hurry_all(), seconds)

    def hurry_all(self) -> list[str]:
        """Hurry every task that is to wait longer than SLURM needs; return all tasks.

        By when it is to start, not by what was done to it: SLURM may put it off after it was told.
        """
        asked = "--Format=JobArrayID:32,Reason:32,StartTime:32"
        lines = self.ask("squeue", "--noheader", "--array", asked).splitlines()
        for job, reason, starts in map(str.split, lines):
            # of any other reason it is an estimate, and to change it would put the task off
            if reason != "BeginTime" or starts == "N/A":
                continue
            if datetime.fromisoformat(starts) - datetime.now() > PATIENT:
                self.hurry(job)
        return lines

    def hurry(self, job: str) -> bool:
        """Let a requeued task start in two seconds; tell whether SLURM has agreed.

        Not at once: SLURM revokes the credentials of what it requeues for that second, and ends a
        task for good that starts with revoked ones.
        """
        told = ["scontrol", "update", f"JobId={job}", "StartTime=now+2"]
        return subprocess.run(told, env=os.environ | self.env, capture_output=True).returncode == 0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def begin(directory: Path) -> Slurm:
    """Start it, with its files in a new directory; what goes wrong is said in the exception."""
    directory.mkdir(parents=True, exist_ok=True)
    ports = [str(_free_port()), str(_free_port())]
    subprocess.run([HERE / "start.sh", directory, *ports], check=True, capture_output=True)
    return Slurm(directory)


def end(slurm: Slurm) -> None:
    """Cancel what is left and stop it."""
    slurm.ask("scancel", "--user=root", check=False)
    subprocess.run([HERE / "stop.sh", slurm.directory], check=False)
