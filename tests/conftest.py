"""What holds for all tests: the CPU, who runs them, and the longest first."""

import os

import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the CPU gives the same numbers on every machine

SLURM = "tests/slurm/"
LONGEST = (
    "test_cluster.py",
    "test_nodes.py",
    "test_chaos.py",
    "test_quality.py",
    "test_risk.py",
    "test_train_run.py",
    "test_train_sweep.py",
    "test_train.py",
    "test_rigor_sweep.py",
    "test_wheel.py",
    "test_documented_commands.py",
    "test_benchmarks.py",
    "test_rigor_eval.py",
    "test_metrics_page.py",
)
"""A worker that began one of these at the end would work alone for minutes."""


def pytest_collection_modifyitems(items):
    """Begin with the longest files; `make test` asks xdist to keep this order."""
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, give one worker all files that wait for SLURM: others use that time.

    Marks of xdist's own groups do not reach it under pytest 9.2, which keeps a test's id elsewhere.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneWorkerForSlurm(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return SLURM if nodeid.startswith(SLURM) else super()._split_scope(nodeid)

    return OneWorkerForSlurm(config, log)
