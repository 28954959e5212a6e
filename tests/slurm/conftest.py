import os
import shutil
import subprocess

import pytest
from cluster_sweep import LONG, ClusterSweep, runs
from command_line import rigor_train
from node import Slurm, begin, end

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "unshare")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A real SLURM of one node, started for these tests and stopped after them."""
    yield from cluster_of(1, tmp_path_factory)


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory):
    """A real SLURM of three nodes on this machine, likewise."""
    yield from cluster_of(3, tmp_path_factory)


def cluster_of(n_nodes, tmp_path_factory):
    """Start a cluster, yield it and stop it, or skip the test where SLURM cannot run."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("SLURM's daemons start as root only")
    directory = tmp_path_factory.mktemp("slurm")
    try:
        yield begin(directory, n_nodes)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no SLURM here: {error.stderr.decode().strip()}")
    finally:
        end(Slurm(directory))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The undisturbed runs of LONG with two seeds."""
    place = tmp_path_factory.mktemp("undisturbed")
    done = rigor_train(*LONG, "-m", "seed=0,1", "out=out", cwd=place)
    assert done.code == 0, done
    return runs(place / "out")


@pytest.fixture
def cluster(slurm, tmp_path):
    """The cluster, idle before and after a test, and a command line that works in `tmp_path`."""
    yield ClusterSweep(slurm, tmp_path)
    slurm.ask("scancel", "--user=root")
    slurm.until(lambda: not slurm.jobs())


@pytest.fixture
def nodes(three_nodes, tmp_path):
    """The cluster of three nodes, likewise, with all nodes up."""
    yield ClusterSweep(three_nodes, tmp_path)
    three_nodes.ask("scancel", "--user=root")
    three_nodes.until(lambda: not three_nodes.jobs())
    for name in ("node1", "node2", "node3"):
        three_nodes.start_node(name)
    three_nodes.until(lambda: set(three_nodes.nodes().values()) == {"idle"})
