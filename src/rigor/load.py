"""A finished, stopped or running run in a notebook: `rigor.load(run_directory)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from rigor.config import Config
    from rigor.envs.vector import VectorEnv
    from rigor.exact.policy import TablePolicy
    from rigor.learning.agent import Agent


@dataclass
class Policy:
    """A trained agent that acts: its network, clock and initial stock.

    agent: the working object. env: a copy of the environment, made for evaluation. steps: agent
    steps that it had learned from at its checkpoint.
    """

    agent: "Agent"
    env: "VectorEnv"
    steps: int

    @property
    def initial_stock(self) -> float:
        """c₀, with which an episode starts, in learned reward units."""
        return self.agent.initial_stock

    def __call__(
        self, observation: "np.ndarray", t: "np.ndarray", stock: "np.ndarray"
    ) -> "np.ndarray":
        """Return the greedy actions, int64 [E].

        Args:
          observation: [E, *shape]. t: agent steps since the reset, int64 [E].
          stock: S_t, float64 [E]; `next_stock` moves it on.
        """
        return self.agent.greedy(observation, t, stock)

    def next_stock(
        self, stock: "np.ndarray", t: "np.ndarray", reward: "np.ndarray"
    ) -> "np.ndarray":
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        return self.agent.next_stock(stock, t, reward)


@dataclass
class Run:
    """What a run directory holds.

    path: the directory. config: as composed, plain containers. metrics: one row per log point.
    result: the final numbers, None before the end. status: state, times, step, host, error.
    """

    path: Path
    config: dict[str, Any]
    metrics: "pd.DataFrame"
    result: dict[str, Any] | None
    status: dict[str, Any] | None

    def built(self) -> "Config":
        """Return the config's working objects: environment, discount, risk and so on."""
        from omegaconf import OmegaConf

        from rigor.config import build

        return build(OmegaConf.create(self.config))

    def policy(self) -> "Policy | TablePolicy":
        """Return the policy: of the newest checkpoint that can be read, or of an exact agent.

        Raises:
          UserError: there is none.
        """
        import torch

        from rigor.errors import UserError
        from rigor.learning import checkpoint
        from rigor.learning.agent import Agent

        config = self.built()
        if not config.learns:
            from rigor.exact import policy

            return policy.load(self.path / "policy.npz", config)
        saved = checkpoint.newest(self.path / "checkpoints")
        if saved is None:
            raise UserError(
                f"{self.path}: no checkpoint that can be read; a run writes its first one within a "
                "tenth of its schedule"
            )
        env = config.env.make(1, evaluation=True)
        agent = Agent(config, env, torch.device("cpu"), seed=0)
        agent.load(saved["agent"])
        return Policy(agent, env, saved["state"]["steps"])


def load(directory: str | Path) -> Run:
    """Read a run directory: config, metrics as a DataFrame, result, and the policy on demand.

    Raises:
      UserError: the directory is no run.
    """
    from rigor.tracking.metrics import read
    from rigor.tracking.rundir import RunDirectory

    run = RunDirectory(directory)
    return Run(run.path, run.config(), read(run.metrics_path), run.result(), run.status())
