"""What holds for all tests: the CPU, who runs them, and the longest first."""

import os
from pathlib import Path

import pytest

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the CPU gives the same numbers on every machine

SLURM = Path(__file__).parent / "slurm"
LONGEST = (
    "test_cluster.py",
    "test_nodes.py",
    "test_chaos.py",
    "test_quality.py",
    "test_risk.py",
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
    """Begin with the longest files; `make test` asks xdist to keep this order.

    A worker takes a whole file, and one of them all that wait for SLURM, whose time others can use.
    """
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
    for item in items:
        group = "slurm" if SLURM in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
