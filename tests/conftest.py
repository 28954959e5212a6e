"""What holds for all tests: the CPU, and the longest files first."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the CPU gives the same numbers on every machine

LONGEST = (
    "test_cluster.py",
    "test_quality.py",
    "test_nodes.py",
    "test_risk.py",
    "test_chaos.py",
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
