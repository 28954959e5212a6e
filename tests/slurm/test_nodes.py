"""Sweeps on a SLURM of three nodes: spreading, dead nodes, and nodes that come back."""

import os
import shutil
from pathlib import Path

import pytest
from cluster_sweep import ClusterSweep, runs, same, states

from rigor.runs.directory import RunDirectory

pytestmark = pytest.mark.slow

ONE_GPU = ("hydra.launcher.gres=gpu:1",)  # a node has two

ODD_NODES = """
import datetime, errno, fcntl, os, socket, time

def flock(descriptor, operation):
    raise OSError(errno.ENOSYS, "function not implemented")

fcntl.flock = flock
wrong = {"node1": -420, "node2": 420}.get(socket.gethostname(), 0)  # seconds
real_time, real_datetime = time.time, datetime.datetime
time.time = lambda: real_time() + wrong

class Wrong(real_datetime):
    @classmethod
    def now(cls, tz=None):
        return real_datetime.now(tz) + datetime.timedelta(seconds=wrong)

datetime.datetime = Wrong
"""
"""A `sitecustomize.py`: no locks, and clocks that differ by up to a quarter of an hour."""


def host(run: Path) -> str:
    return RunDirectory(run).status()["host"]


def down(nodes: ClusterSweep, node: str) -> None:
    """Tell SLURM that a node is dead, and wait until it has taken the node's tasks back.

    An `srun` there asks SLURM to kill its step. Were the task at work elsewhere by then, as in
    these tests it can be within two seconds, SLURM would kill that step, which has the same name.
    """
    nodes.slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    nodes.slurm.until(lambda: "PENDING" in nodes.slurm.jobs().values())
    nodes.slurm.until(lambda: not nodes.slurm.launchers(node))


def test_runs_spread_over_the_nodes_and_survive_a_dead_one(nodes, undisturbed):
    nodes.submit(*ONE_GPU, seeds="0,1,2,3,4,5")
    with nodes.at_work(6) as found:
        places = [host(run) for run in found]
        assert sorted(places) == ["node1", "node1", "node2", "node2", "node3", "node3"]
        dead = [run for run in found if host(run) == "node2"]
        nodes.slurm.kill_node("node2")
    down(nodes, "node2")
    shown = nodes.status()
    assert "lost" not in shown
    assert "retry" not in shown
    nodes.slurm.settled()
    assert states(nodes.out) == ["done"] * 6
    assert {host(run) for run in dead} <= {"node1", "node3"}
    for run in dead:
        assert (run / "train.log").read_text().count("resumed at step") == 1
    same(runs(nodes.out)[:2], undisturbed)
    nodes.slurm.start_node("node2")
    nodes.slurm.until(lambda: nodes.slurm.nodes()["node2"] == "idle")


def test_two_nodes_never_work_on_one_run_without_locks_and_with_wrong_clocks(
    nodes, undisturbed, monkeypatch
):
    (nodes.place / "odd").mkdir()
    (nodes.place / "odd" / "sitecustomize.py").write_text(ODD_NODES)
    before = os.environ.get("PYTHONPATH")
    places = [str(nodes.place / "odd"), *([before] if before else [])]
    monkeypatch.setenv("PYTHONPATH", ":".join(places))
    nodes.submit(*ONE_GPU, "+hydra.launcher.extra.nodelist=node1", seeds="0")
    with nodes.at_work(1) as (run,):  # held: in the network's sense neither dead nor heard
        first = nodes.member(run)
        nodes.slurm.stop_daemon("node1")
        (job,) = nodes.jobs()
        nodes.slurm.ask("scontrol", "update", f"JobId={job}", "ReqNodeList=", check=False)
        down(nodes, "node1")
        assert "1 queued of 1" in nodes.status()
        nodes.slurm.ask("scontrol", "update", f"JobId={job}", "ReqNodeList=node2")
        nodes.slurm.settled()
        assert RunDirectory(run).state() == "done"
        assert host(run) == "node2"
        assert Path(f"/proc/{first}").exists()
        before = {path: path.read_bytes() for path in run.rglob("*.[cj]s*")}
    nodes.slurm.until(lambda: not Path(f"/proc/{first}").exists())
    assert {path: path.read_bytes() for path in run.rglob("*.[cj]s*")} == before
    assert "node2 works on it; this process ends without saving" in (
        (run / "train.log").read_text()
    )
    same([run], undisturbed[:1])


def test_a_requeued_run_waits_for_the_end_of_its_process_on_a_node_that_does_not_answer(
    nodes, undisturbed
):
    nodes.submit(*ONE_GPU, "train.steps=100000", "train.schedule_steps=800", seeds="0")
    with nodes.at_work(1) as (run,):
        place, first = host(run), nodes.member(run)
        nodes.slurm.stop_daemon(place)
    down(nodes, place)
    assert Path(f"/proc/{first}").exists()
    nodes.slurm.until(lambda: nodes.slurm.hurry_all() and nodes.member(run) not in (first, None))
    nodes.slurm.until(lambda: not Path(f"/proc/{first}").exists())
    assert host(run) != place
    nodes.slurm.until(lambda: "resumed at step" in (run / "train.log").read_text())
    log = (run / "train.log").read_text()
    assert log.index("it was queued again") < log.index("resumed at step")


def test_a_directory_that_the_nodes_do_not_share_is_named_as_the_reason(nodes):
    scratch = nodes.slurm.directory / "scratch"
    nodes.out = scratch / "out"
    nodes.submit(f"out={nodes.out}", seeds="0")
    nodes.slurm.settled()
    shown = nodes.status()
    shutil.rmtree(nodes.out)
    assert "1 lost of 1" in shown
    assert "missing where the nodes do not share the directory out=DIR" in shown
