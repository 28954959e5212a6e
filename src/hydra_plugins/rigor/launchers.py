"""Hydra launchers of `rigor-train`, which run the runs of a sweep in other processes.

They take the jobs that the sweeper has composed instead of overrides, so that no job is composed
twice. `rigor.launch` holds the implementation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rigor.errors import UserError
from rigor.launch import local, mps, slurm
from rigor.runs.job import Job


class LocalLauncher(Launcher):
    """Run several runs of a sweep at once, each a process with one thread.

    Args:
      n_jobs: the number of runs at once; None means one for each core that this process may use or,
        on a machine with GPUs, one for each GPU.
      mps: whether runs on one GPU use it at the same time; see `rigor.launch.mps`.
    """

    def __init__(self, n_jobs: int | None = None, mps: bool = False) -> None:
        self.n_jobs, self.mps = n_jobs, mps

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Refuse wrong numbers and a machine without MPS, before any job is composed."""
        if self.n_jobs is not None and self.n_jobs < 1:
            raise UserError(f"hydra.launcher.n_jobs={self.n_jobs}: must be 1 or more")
        if self.mps:
            mps.check()

    def launch_sweep(self, jobs: list[Job], overrides: list[list[str]]) -> None:
        """Run a sweep to its end."""
        local.launch(jobs, overrides, self.n_jobs, self.mps)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Refuse the jobs of another sweeper, which have no run directories."""
        raise _wrong_sweeper("local")


class SlurmLauncher(Launcher):
    """Submit a sweep to a SLURM cluster; see `rigor.launch.slurm.Cluster` for the arguments."""

    def __init__(self, **cluster: Any) -> None:
        self.cluster = slurm.Cluster(**cluster)

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Refuse wrong numbers and a machine without SLURM, before any job is composed."""
        self.cluster.refuse()
        slurm.check()

    def launch_sweep(self, jobs: list[Job], overrides: list[list[str]]) -> None:
        """Submit a sweep."""
        slurm.launch(jobs, overrides, self.cluster)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Refuse the jobs of another sweeper, which have no run directories."""
        raise _wrong_sweeper("slurm")


def _wrong_sweeper(name: str) -> UserError:
    return UserError(f"hydra/launcher={name}: needs hydra/sweeper=rigor, which is the default")


@dataclass
class LocalConf:
    """Schema of `hydra/launcher=local`."""

    _target_: str = "hydra_plugins.rigor.launchers.LocalLauncher"
    n_jobs: int | None = None
    mps: bool = False


@dataclass
class SlurmConf(slurm.Cluster):
    """Schema of `hydra/launcher=slurm`."""

    _target_: str = "hydra_plugins.rigor.launchers.SlurmLauncher"
    _convert_: str = "all"  # lists and mappings as Python's own


for name, node in (("local", LocalConf), ("slurm", SlurmConf)):
    ConfigStore.instance().store(group="hydra/launcher", name=name, node=node)
