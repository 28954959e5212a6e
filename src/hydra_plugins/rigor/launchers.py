"""Hydra's launchers of `rigor-train`: where the runs of a sweep run, if not in this process.

They take run directories, which the sweeper has queued, and not overrides: nothing is composed a
second time. What they do is in `rigor.launch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from rigor.errors import UserError
from rigor.launch import local


class LocalLauncher(Launcher):
    """Run several runs of a sweep at once, each a process with one thread.

    Args:
      n_jobs: how many; None for one on each core that this process may use.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Refuse a number of processes that cannot be, before anything is queued."""
        if self.n_jobs is not None and self.n_jobs < 1:
            raise UserError(f"hydra.launcher.n_jobs={self.n_jobs}: must be 1 or more")

    @property
    def description(self) -> dict[str, Any]:
        """What the manifest says of the launcher, so that a retry does the same."""
        return {"name": "local", "n_jobs": self.n_jobs}

    def launch_runs(self, directory: Path, paths: Sequence[Path]) -> list[Exception | None]:
        """Run queued runs and return how each ended: None, or its error."""
        return local.run_here(directory.name, paths, self.n_jobs)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Refuse another sweeper's jobs: they have no directories yet."""
        raise UserError("hydra/launcher=local: needs hydra/sweeper=rigor, which is the default")


@dataclass
class LocalConf:
    """Schema of `hydra/launcher=local`."""

    _target_: str = "hydra_plugins.rigor.launchers.LocalLauncher"
    n_jobs: int | None = None


ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalConf)
