"""A real SLURM of one node or several: start, stop and commands."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
PATIENT = timedelta(seconds=5)  # a requeued task would wait two minutes


TOLD = ("JobId", "JobState", "Reason", "Restarts", "ExitCode", "StartTime", "EndTime", "NodeList")


@dataclass
class Slurm:
    """The cluster, which SLURM's commands find by SLURM_CONF."""

    directory: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of its commands."""
        return {"SLURM_CONF": str(self.directory / "slurm.conf")}

    def ask(self, *command: str, check: bool = True) -> str:
        """Return the output of a command of SLURM."""
        done = subprocess.run(
            command, env=os.environ | self.env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def nodes(self) -> dict[str, str]:
        """Return the state of each node, such as `idle`, `down*` or `mixed`."""
        shown = self.ask("sinfo", "--noheader", "--Node", "--partition=gpu", "--format=%N %T")
        return dict(line.split() for line in shown.splitlines())

    def stop_daemon(self, node: str) -> None:
        """Kill a node's slurmd; its jobs go on, which SLURM does not know."""
        os.kill(self._daemon(node), signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """Kill every process of a node that has a host name of its own."""
        namespace = os.readlink(f"/proc/{self._daemon(node)}/ns/uts")
        assert namespace != os.readlink("/proc/self/ns/uts")
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may have ended
                if os.readlink(process / "ns/uts") == namespace:
                    os.kill(int(process.name), signal.SIGKILL)

    def restart_controller(self) -> None:
        """End slurmctld, which saves, and start it again."""
        controller = int((self.directory / "slurmctld.pid").read_text())
        os.kill(controller, signal.SIGTERM)
        self.until(lambda: not Path(f"/proc/{controller}").exists())
        subprocess.run(["slurmctld"], env=os.environ | self.env, check=True)
        self.until(lambda: " is UP" in self.ask("scontrol", "ping", check=False))

    def launchers(self, node: str) -> list[int]:
        """Return the process ids of every `srun` of a node's tasks."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it may have ended
                mine = f"SLURMD_NODENAME={node}\0".encode() in (process / "environ").read_bytes()
                if mine and (process / "comm").read_text().strip() == "srun":
                    found.append(int(process.name))
        return found

    def start_node(self, node: str) -> None:
        """Start a node's slurmd unless it runs, and let SLURM use the node again."""
        if not Path(f"/proc/{self._daemon(node)}").exists():
            subprocess.run([HERE / "node.sh", self.directory, node], check=True)
        self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)

    def _daemon(self, node: str) -> int:
        return int((self.directory / f"slurmd-{node}.pid").read_text())

    def jobs(self) -> dict[str, str]:
        """Return the state of every unfinished task, by its id such as `7_0`."""
        lines = self.ask("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split() for line in lines)

    def ended(self, job: str) -> dict[str, str]:
        """Return the last state of every task of a job, by its index (0 where it is no array).

        A task runs for a moment after its runs are done.
        """
        return self.until(lambda: self._last_states(job))

    def _last_states(self, job: str) -> dict[str, str] | None:
        """Return the states of a job's tasks, None while one of them goes on."""
        shown = self.ask("scontrol", "show", "job", "--oneliner", job).splitlines()
        states = {}
        for line in shown:
            index = re.search(r"ArrayTaskId=(\d+)", line)
            states[index.group(1) if index else "0"] = re.search(r"JobState=(\S+)", line).group(1)
        return None if set(states.values()) & {"PENDING", "RUNNING", "COMPLETING"} else states

    def until(self, what: Callable, seconds: float = 240):
        """Poll `what()` until it is true, and return it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := what():
                return found
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds} s\n{self._told()}")

    def _told(self) -> str:
        """Return what is known of every task, and the last lines of the logs of those not done."""
        lines = []
        for job in self.ask("scontrol", "show", "job", "--oneliner").splitlines():
            of = dict(re.findall(r"(\S+?)=(\S*)", job))
            lines.append(" ".join(f"{key}={of.get(key)}" for key in TOLD))
            if of.get("JobState") != "COMPLETED":
                lines += [last_lines(Path(of[key])) for key in ("StdOut", "StdErr") if key in of]
        return "\n".join([*lines, *map(last_lines, self.directory.glob("slurm*.log"))])

    def settled(self, seconds: float = 180) -> None:
        """Wait until no task is left; requeued tasks start soon instead of after two minutes."""
        self.until(lambda: not self.hurry_all(), seconds)

    def hurry_all(self) -> list[str]:
        """Hurry every task that would wait longer than SLURM needs; return all tasks.

        Tasks are chosen by their start time, because SLURM may delay a hurried task again.
        """
        asked = "--Format=JobArrayID:32,Reason:32,StartTime:32"
        lines = self.ask("squeue", "--noheader", "--array", asked).splitlines()
        for line in lines:
            job, *reason, starts = line.split()  # a reason may have several words
            # for any other reason the time is an estimate, and changing it would delay the task
            if reason != ["BeginTime"] or starts == "N/A":
                continue
            if datetime.fromisoformat(starts) - datetime.now() > PATIENT:
                self.hurry(job)
        return lines

    def release_held(self) -> int:
        """Release the tasks that SLURM holds after a failed launch, as their user would."""
        asked = "--Format=JobArrayID:32,Reason:64"
        held = [
            line.split()[0]
            for line in self.ask("squeue", "--noheader", "--array", asked).splitlines()
            if "held" in line.lower()
        ]
        for job in held:
            self.ask("scontrol", "release", job, check=False)
        return len(held)

    def hurry(self, job: str) -> bool:
        """Let a requeued task start in two seconds; return whether SLURM agreed.

        SLURM revokes the credentials of a requeued task for one second, and a task that starts with
        revoked credentials fails for good.
        """
        command = ["scontrol", "update", f"JobId={job}", "StartTime=now+2"]
        return (
            subprocess.run(command, env=os.environ | self.env, capture_output=True).returncode == 0
        )


def last_lines(log: Path, n: int = 20) -> str:
    """Return a log's name and last lines."""
    text = log.read_text() if log.is_file() else "(no file)"
    return "\n".join([f"{log.name}:", *text.splitlines()[-n:]])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def begin(directory: Path, n_nodes: int = 1) -> Slurm:
    """Start a cluster with its files in a new directory; an exception holds the error output."""
    directory.mkdir(parents=True, exist_ok=True)
    ports = [str(_free_port()) for _ in range(n_nodes + 1)]
    subprocess.run([HERE / "start.sh", directory, *ports], check=True, capture_output=True)
    return Slurm(directory)


def end(slurm: Slurm) -> None:
    """Cancel all tasks and stop the cluster."""
    slurm.ask("scancel", "--user=root", check=False)
    subprocess.run([HERE / "stop.sh", slurm.directory], check=False)
