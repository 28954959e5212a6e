"""rigor: reinforcement learning in which time and risk are two independent choices."""

from rigor.cli.notebook import train
from rigor.exact.foreign_policy import ExactValue, exact_value
from rigor.report.data.frames import load_sweep
from rigor.report.data.load import Run, load

__all__ = ["ExactValue", "Run", "exact_value", "load", "load_sweep", "train"]
