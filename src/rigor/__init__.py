"""rigor: reinforcement learning in which time and risk are two independent choices."""

from rigor.load import Run, load

__all__ = ["Run", "load"]
