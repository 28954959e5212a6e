import os
import shutil
import subprocess

import pytest
from node import Slurm, begin, end

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "srun")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A real SLURM of one node, started for these tests and stopped after them."""
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("SLURM's daemons start as root only")
    directory = tmp_path_factory.mktemp("slurm")
    try:
        yield begin(directory)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no SLURM here: {error.stderr.decode().strip()}")
    finally:
        end(Slurm(directory))
