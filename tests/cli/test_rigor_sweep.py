"""`rigor-sweep`, and sweeps in several processes, from the real command line."""

import csv
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, Done, environment, finish, refused, rigor_train, start, wait_for

from rigor.cli import sweep
from rigor.launch import squeue
from rigor.launch.manifest import Manifest, Submission
from rigor.launch.sweep import SweepFailed
from rigor.runs.directory import RunDirectory
from rigor.runs.lock import Lock

LOCAL = ("hydra/launcher=local", "hydra.launcher.n_jobs=2")
WALL_CLOCK = {"seconds", "steps_per_second"}
SOURCE = {"commit", "sources"}  # it may have been edited


def rigor_sweep(*arguments: str, cwd: Path) -> Done:
    process = subprocess.Popen(
        [sys.executable, "-m", "rigor.cli.sweep", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return finish(process)


def runs(out: Path) -> list[Path]:
    return sorted(path for path in out.glob("*-s*-*") if path.is_dir())


def states(out: Path) -> list[str]:
    return [RunDirectory(path).state() for path in runs(out)]


def directory_of(out: Path) -> Path:
    (found,) = (out / "sweeps").iterdir()
    return found


def rows(run: Path) -> list[dict[str, str]]:
    with open(run / "metrics.csv") as file:
        return [
            {key: value for key, value in row.items() if key not in WALL_CLOCK}
            for row in csv.DictReader(file)
        ]


@pytest.mark.slow
def test_parallel_runs_equal_serial_runs_bit_for_bit(tmp_path):
    command = (*TINY, "train.steps=400", "-m", "seed=0,1,2")
    serial = rigor_train(*command, "out=serial", cwd=tmp_path)
    pooled = rigor_train(*command, *LOCAL, "out=pooled", cwd=tmp_path)
    assert (serial.code, serial.err) == (pooled.code, pooled.err) == (0, "")
    pairs = list(zip(runs(tmp_path / "pooled"), runs(tmp_path / "serial"), strict=True))
    assert len(pairs) == 3
    for pair in pairs:
        assert pair[0].name == pair[1].name
        assert rows(pair[0]) == rows(pair[1])
        assert rows(pair[0])[-1]["steps"] == "400"
        left, right = (json.loads((run / "result.json").read_text()) for run in pair)
        assert {key for key in left if left[key] != right[key]} <= WALL_CLOCK | SOURCE
    left, right = directory_of(tmp_path / "pooled"), directory_of(tmp_path / "serial")
    assert left.name == right.name
    assert {path.name for path in left.iterdir()} == {path.name for path in right.iterdir()}
    manifest = json.loads((left / "manifest.json").read_text())
    assert manifest["launcher"] == {"name": "local", "n_jobs": 2, "mps": False}
    assert pooled.out.count("done: cartpole-") == 3
    assert pooled.out.count(" done ") == 3  # in the table
    assert f"figure: {left.relative_to(tmp_path) / 'learning_curves.png'}" in pooled.out
    assert "\x1b" not in pooled.out

    shown = rigor_sweep("status", left, cwd=tmp_path)
    assert (shown.code, shown.err) == (0, "")
    assert "3 done of 3  1.2k/1.2k steps" in shown.out
    assert shown.out.endswith(f"the results: rigor-report {left}\n")
    nothing = rigor_sweep("retry", left, cwd=tmp_path)
    assert (nothing.code, nothing.out) == (0, f"nothing to retry: {shown.out.splitlines()[1]}\n")


FRAGILE = """
import os

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Fragile(CartPoleEnv):
    steps = 0

    def __init__(self, at=None):
        super().__init__()
        self.at = at

    def step(self, action):
        Fragile.steps += 1
        if Fragile.steps == self.at and not os.path.exists("mended"):
            raise ValueError("the pole broke")
        return super().step(action)


gymnasium.register("Fragile-v0", entry_point=Fragile, max_episode_steps=20)
"""


@pytest.mark.slow
def test_a_failed_run_is_named_and_a_retry_runs_it_again(tmp_path):
    (tmp_path / "mine.py").write_text(FRAGILE)  # in the working directory of the command
    command = ("env=gymnasium", "env.id=mine:Fragile-v0", *TINY[1:], "out=out")
    command = (*command, "-m", "+env.kwargs.at=100,100000", *LOCAL)
    done = rigor_train(*command, cwd=tmp_path)
    assert done.code == 1
    (line,) = done.err.splitlines()
    (failed,) = [run for run in runs(tmp_path / "out") if RunDirectory(run).state() == "failed"]
    log = failed.relative_to(tmp_path) / "train.log"
    assert line.startswith("rigor-train: 1 of 2 runs failed, the first with: ValueError: the pole")
    assert line.endswith(f"the traceback is in {log}")
    assert f"failed: {failed.name}: ValueError: the pole broke; the traceback is in {log}" in (
        done.out
    )
    assert 'raise ValueError("the pole broke")' in (tmp_path / log).read_text()
    assert sorted(states(tmp_path / "out")) == ["done", "failed"]

    directory = directory_of(tmp_path / "out")
    shown = rigor_sweep("status", directory, cwd=tmp_path)
    assert "1 done, 1 failed of 2" in shown.out
    assert "ValueError: the pole broke" in shown.out
    assert (
        f"1 unfinished without a process; to run again: rigor-sweep retry {directory}" in shown.out
    )

    logs = rigor_sweep("logs", directory, cwd=tmp_path)
    assert logs.out.count('raise ValueError("the pole broke")') == 1
    (tmp_path / "mine.py").write_text(FRAGILE.replace("== self.at", "== -1"))
    refused = rigor_sweep("retry", directory, cwd=tmp_path)
    assert refused.code == 2  # other code is another run
    assert "the code of mine has changed since this run was made" in refused.err
    (tmp_path / "mine.py").write_text(FRAGILE)
    (tmp_path / "mended").touch()
    again = rigor_sweep("retry", directory, cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert states(tmp_path / "out") == ["done", "done"]
    assert again.out.count("done: ") == 1


@pytest.mark.slow
def test_a_stopped_sweep_saves_and_a_retry_finishes_it(tmp_path):
    command = (*TINY, "train.checkpoint_every=50", "train.steps=1000", "-m", "seed=0,1,2")
    process = start(*command, *LOCAL, "out=out", cwd=tmp_path)

    def saved():
        return {path.parents[1] for path in (tmp_path / "out").glob("*/checkpoints/step_*")}

    def both_saved():
        return len(saved()) >= 2

    wait_for(both_saved, process)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert done.err == "rigor-train: stopped and saved; the same command resumes the run\n"
    found = states(tmp_path / "out")
    assert "preempted" in found
    assert "running" not in found
    assert "lost" not in found
    stopped = [run for run in saved() if RunDirectory(run).state() == "preempted"]
    assert stopped
    directory = directory_of(tmp_path / "out")
    again = rigor_sweep("retry", directory, cwd=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert states(tmp_path / "out") == ["done"] * 3
    for run in runs(tmp_path / "out"):
        steps = [int(row["steps"]) for row in rows(run)]
        assert steps == sorted(set(steps))
    logs = [(run / "train.log").read_text() for run in runs(tmp_path / "out")]
    assert sum("resumed at step " in log for log in logs) == len(stopped)


@pytest.mark.slow
def test_a_second_process_for_a_sweep_is_refused(tmp_path):
    command = (*TINY, "train.steps=100000", "-m", "seed=0,1", *LOCAL, "out=out")
    process = start(*command, cwd=tmp_path)
    wait_for(lambda: "running" in states(tmp_path / "out"), process)
    directory = directory_of(tmp_path / "out")
    done = rigor_train(*command, cwd=tmp_path)
    refused(done, "another process runs there")
    assert rigor_sweep("retry", directory, cwd=tmp_path).code == 2
    shown = rigor_sweep("status", directory, cwd=tmp_path)
    assert "running" in shown.out
    assert "retry" not in shown.out
    cancelled = rigor_sweep("cancel", directory, cwd=tmp_path)
    assert cancelled.out == f"process {process.pid} will save and end\n"
    assert finish(process).code == 143
    again = rigor_sweep("cancel", directory, cwd=tmp_path)
    assert (again.code, "no process runs there" in again.err) == (2, True)


@pytest.mark.slow
def test_a_launcher_without_a_sweep_and_odd_numbers_of_processes_are_refused(tmp_path):
    done = rigor_train(*TINY, "hydra/launcher=local", cwd=tmp_path)
    refused(done, "hydra/launcher=local", "add -m")
    done = rigor_train(*TINY, "-m", LOCAL[0], "hydra.launcher.n_jobs=0", cwd=tmp_path)
    refused(done, "hydra.launcher.n_jobs=0", "1 or more")
    done = rigor_train(*TINY, "-m", "hydra/launcher=locl", cwd=tmp_path)
    refused(done, "hydra/launcher=locl", "local")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unlocked(tmp_path, monkeypatch):
    """A local sweep of two runs, one of them running, on a file system without locks."""
    runs = [RunDirectory(tmp_path / name) for name in ("a-s0-x", "a-s1-y")]
    for run, state in zip(runs, ("running", "queued"), strict=True):
        run.path.mkdir()
        run.write_status(state, steps_total=10)
    directory = tmp_path / "sweeps" / "name"
    directory.mkdir(parents=True)
    launcher = {"name": "local", "n_jobs": 1}
    Manifest([run.path for run in runs], launcher, [[], []], ["x", "y"]).write(directory)
    monkeypatch.setattr(fcntl, "flock", refuse_to_lock)
    for place in (directory, *(run.path for run in runs)):
        Lock(place).acquire()
    return directory


def refuse_to_lock(descriptor, operation):
    raise OSError(errno.ENOSYS, "function not implemented")


@pytest.mark.filterwarnings("ignore:this file system has no locks")
def test_without_locks_the_status_of_the_runs_counts(unlocked, capsys):
    sweep.run(["status", str(unlocked)])
    shown = capsys.readouterr().out
    assert "1 running, 1 queued of 2" in shown
    assert "without a process" not in shown
    RunDirectory(unlocked.parents[1] / "a-s0-x").write_status("preempted")
    sweep.run(["status", str(unlocked)])
    assert "2 unfinished without a process" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:this file system has no locks")
def test_without_locks_cancel_does_not_kill_a_process(unlocked, monkeypatch):
    monkeypatch.setattr(os, "kill", lambda pid, number: pytest.fail("killed"))
    with pytest.raises(sweep.UserError, match=rf"no locks.*process {os.getpid()} still"):
        sweep.run(["cancel", str(unlocked)])


@pytest.fixture
def on_slurm(tmp_path, monkeypatch):
    """Two runs in one task that SLURM runs; return their sweep and the calls of squeue."""
    runs = [RunDirectory(tmp_path / name) for name in ("a-s0-x", "a-s1-y")]
    for run in runs:
        run.path.mkdir()
        (run.path / "job.json").write_text(json.dumps({"choices": {}, "cwd": str(tmp_path)}))
        run.write_status("queued", steps_total=10)
    directory = tmp_path / "sweeps" / "name"
    directory.mkdir(parents=True)
    entry = Submission("name.0", "7", [[0, 1]])
    launcher = {"name": "slurm", "runs_per_gpu": 2}
    Manifest([run.path for run in runs], launcher, [[], []], ["x", "y"], [entry]).write(directory)
    calls = []
    state = ["RUNNING|None"]

    def run(command, **options):
        calls.append(command[0])
        shown = f"7|N/A|{state[0]}|name.0\n" if state else ""
        return subprocess.CompletedProcess(command, 0, shown)

    monkeypatch.setattr(squeue.subprocess, "run", run)
    return directory, calls, state


OCCUPIED = "1 ended in a SLURM task whose other runs continue; they can be run again"


def test_status_and_retry_agree_on_a_killed_run_of_a_task_that_continues(on_slurm, capsys):
    directory, calls, _ = on_slurm
    killed = RunDirectory(directory.parents[1] / "a-s0-x")
    killed.write_status("running")  # without a process
    sweep.run(["status", str(directory)])
    assert calls == ["squeue"]  # once
    shown = capsys.readouterr().out
    assert "1 queued, 1 lost of 2" in shown
    assert OCCUPIED in shown
    assert "rigor-sweep retry" not in shown
    sweep.run(["retry", str(directory)])
    shown = capsys.readouterr().out
    assert shown.startswith("nothing to retry: 1 queued, 1 lost of 2")
    assert OCCUPIED in shown
    assert killed.status()["state"] == "running"


def test_a_missing_directory_does_not_stop_the_retry_of_other_runs(on_slurm, capsys, monkeypatch):
    directory, _, state = on_slurm
    state.clear()
    shutil.rmtree(directory.parents[1] / "a-s0-x")
    sweep.run(["status", str(directory)])
    shown = capsys.readouterr().out
    assert "lost s0-x: its directory is gone; the command of the sweep makes it again" in shown
    assert "2 unfinished without a process" in shown
    submitted = []
    monkeypatch.setattr(
        sweep.slurm, "submit", lambda place, manifest, left, cluster: submitted.append(left)
    )
    with pytest.raises(SweepFailed, match=r"1 of 2 runs failed.*a-s0-x: no sweep has queued a run"):
        sweep.run(["retry", str(directory)])
    assert submitted == [[1]]
    assert "not retried: " in capsys.readouterr().out


def test_the_help_names_the_subcommands(capsys):
    sweep.run(["--help"])
    shown = capsys.readouterr().out
    for name in sweep.COMMANDS:
        assert f"\n  rigor-sweep {name} " in shown


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "no subcommand; choose one of"),
        (["stauts", "x"], "no such subcommand; choose one of"),
        (["status"], "status: takes DIR; "),
        (["status", "a", "b"], "status: takes DIR; "),
        (["status", "/"], "/: not a sweep's directory"),
    ],
)
def test_wrong_arguments_are_refused(arguments, part):
    with pytest.raises(sweep.UserError, match=part):
        sweep.run(arguments)
