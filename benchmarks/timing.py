"""Interleaved timings of CPU time, and what a benchmark's file holds."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rigor.runs.provenance import commit

Samples = dict[str, list[float]]


def interleaved(arms: Mapping[str, Callable[[], Any]], repeats: int, warm: int = 2) -> Samples:
    """Return CPU milliseconds of each arm, `repeats` samples, taken in turn: A B C A B C ...

    A sample is a whole number of calls that take about 20 ms or more.
    """
    calls = {}
    for name, arm in arms.items():
        for _ in range(warm):
            began = time.process_time()
            arm()
        took = time.process_time() - began
        calls[name] = max(1, round(0.02 / max(took, 1e-5)))
    samples: Samples = {name: [] for name in arms}
    for _ in range(repeats):
        for name, arm in arms.items():
            began = time.process_time()
            for _ in range(calls[name]):
                arm()
            samples[name].append(1e3 * (time.process_time() - began) / calls[name])
    return samples


def median(samples: list[float]) -> float:
    """Return the median."""
    return statistics.median(samples)


def machine() -> dict[str, Any]:
    """Return what a number depends on."""
    cpu = platform.processor() or "unknown"
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line[:10] == "model name"]
        cpu = names[0] if names else cpu
    head, plus, dirty = (commit() or "unknown").partition("+")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": head[:10] + plus + dirty,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
