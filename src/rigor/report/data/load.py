"""Finished, stopped or running runs in a notebook: `rigor.load(run_directory)`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from rigor.config.config import Config
    from rigor.envs.vector import VectorEnv
    from rigor.exact.table_policy import TablePolicy
    from rigor.learning.agent import Agent
    from rigor.maths.utility import RiskLevel


@dataclass
class Policy:
    """The greedy policy of a trained agent.

    agent: the agent with its network. env: one copy of the environment, made for evaluation.
    steps: agent steps of training at the checkpoint.
    """

    agent: "Agent"
    env: "VectorEnv"
    steps: int

    @property
    def initial_stock(self) -> float:
        """The stock c₀ at the start of an episode, in learned reward units."""
        return self.agent.initial_stock

    def __call__(
        self, observation: "np.ndarray", t: "np.ndarray | int", stock: "np.ndarray | float"
    ) -> "np.ndarray":
        """Return the greedy actions, int64 [E], or [] for one observation.

        Args:
          observation: [E, *shape], or one observation [*shape]; of a Gymnasium environment also
            one as it returns it, such as a dict.
          t: whole agent steps since the reset, [E] or one number.
          stock: S_t, [E] or one number; `next_stock` returns its successor.

        Raises:
          UserError: a shape does not fit, a number is not finite, or t is not whole.
        """
        import numpy as np

        from rigor.envs.gymnasium import GymnasiumCopies
        from rigor.envs.vector import as_batch

        if isinstance(self.env, GymnasiumCopies):
            observation = self.env.seen(observation)
        shape = self.env.observation_shape
        one = np.shape(observation) == shape
        batch, times, stocks = as_batch(shape, observation, t, stock)
        actions = self.agent.greedy(
            batch.astype(self.env.observation_dtype), self._times(times), stocks
        )
        return actions[0] if one else actions

    def next_stock(
        self,
        stock: "np.ndarray | float",
        t: "np.ndarray | int",
        reward: "np.ndarray | float",
    ) -> "np.ndarray":
        """Return S_{t+1} after raw rewards at whole times t, [E] or one number each."""
        import numpy as np

        return self.agent.next_stock(np.asarray(stock), self._times(t), np.asarray(reward))

    def _times(self, t: "np.ndarray | int") -> "np.ndarray":
        from rigor.envs.vector import whole_times
        from rigor.errors import UserError

        times = whole_times(t)
        if times.size and times.max() > self.env.max_time:
            raise UserError(f"t={t}: episodes end after {self.env.max_time} steps")
        return times


@dataclass(repr=False)
class Run:
    """The contents of a run directory.

    path: the directory. config: the composed config as plain containers. metrics: one row per log
    point. result: the final numbers, None before the end. status: state, times, step, host, error.
    """

    path: Path
    config: dict[str, Any]
    metrics: "pd.DataFrame"
    result: dict[str, Any] | None
    status: dict[str, Any] | None

    def __repr__(self) -> str:
        """Return one line: the directory, the state and the steps."""
        status = self.status or {}
        steps = f"{status.get('step', 0):,} steps"
        return f"<rigor run {self.path}: {status.get('state', 'no status')}, {steps}>"

    def built(self) -> "Config":
        """Return the objects of the config: environment, discount, risk and so on."""
        from rigor.config.config import build_stored

        return build_stored(self.config, self.path / "config.yaml")

    def policy(
        self, *, tau: float | None = None, kappa: float | None = None
    ) -> "Policy | TablePolicy":
        """Return the policy of an exact agent, or of the newest readable checkpoint.

        Args:
          tau, kappa: another level of CVaR or of mean-variance, which the same agent serves from
            another initial stock; see `rigor.maths.utility.other_level`.

        Raises:
          UserError: no checkpoint can be read, an exact agent left no policy, or the agent does not
            serve this level.
        """
        import torch

        from rigor.errors import UserError
        from rigor.learning import checkpoint
        from rigor.learning.agent import Agent
        from rigor.learning.agent_state import restore_agent

        config = self.built()
        level = _level(config, tau, kappa)
        if not config.learns:
            from rigor.exact import solve, table_policy

            if level:
                return solve.solve_at_level(config, level).policy
            return table_policy.load(self.path / "policy.npz", config)
        saved = checkpoint.newest(self.path / "checkpoints")
        if saved is None:
            raise UserError(
                f"{self.path}: no checkpoint that can be read; a run writes its first one within a "
                "tenth of its schedule"
            )
        env = config.env.make(1, evaluation=True)
        agent = Agent(config, env, torch.device("cpu"), seed=0)
        with checkpoint.fitting(self.path / "checkpoints"):
            restore_agent(agent, saved["agent"])
        if level:
            agent.initial_stock = agent.stock_at_level(initial_observations(config), level)
        return Policy(agent, env, saved["state"]["steps"])


def initial_observations(config: "Config") -> "np.ndarray":
    """Return the observations of `outer.batch` initial states, [K, *shape]."""
    import numpy as np

    env = config.env.make(config.outer.batch, evaluation=True)
    try:
        return env.reset(np.random.SeedSequence(0))
    finally:
        env.close()


def _level(config: "Config", tau: float | None, kappa: float | None) -> "RiskLevel | None":
    """Return the requested level of the run's risk measure, or None."""
    from rigor.errors import UserError
    from rigor.maths.utility import other_level

    given = {key: value for key, value in (("tau", tau), ("kappa", kappa)) if value is not None}
    if not given:
        return None
    key, value = next(iter(given.items()))
    try:
        if len(given) > 1 or not hasattr(config.risk, key):
            raise ValueError(f"the run's risk measure has no single level risk.{key}")
        return other_level(config.risk, value)
    except ValueError as error:
        raise UserError(f"{key}={value:g} with risk={config.option('risk')}: {error}") from error


def load(directory: str | Path) -> Run:
    """Read the config, metrics, result and status of a run directory.

    Raises:
      UserError: there is no such directory, or it has no readable config or metrics.
    """
    from rigor.errors import UserError
    from rigor.runs.directory import RunDirectory
    from rigor.runs.metrics import read

    if not Path(directory).is_dir():
        raise UserError(f"{directory}: no such directory")
    run = RunDirectory(directory)
    return Run(run.path, run.config(), read(run.metrics_path), run.result(), run.status())
