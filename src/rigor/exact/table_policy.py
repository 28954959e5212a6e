"""An exact agent's policy, which acts in the environment and can be saved and loaded."""

import functools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rigor.envs.model import Model
from rigor.envs.tabular_model import TabularModel
from rigor.envs.vector import as_batch, whole_times
from rigor.errors import UserError
from rigor.exact.backward_induction import PolicyTables
from rigor.exact.return_distribution import nearest
from rigor.maths.stock import next_stock
from rigor.runs.disk import disk_errors

if TYPE_CHECKING:
    from rigor.config.config import Config


@dataclass(repr=False)
class TablePolicy:
    """The greedy policy of an exact agent, called like that of a learned agent.

    Attributes:
      model: the problem, which locates observations.
      tables: the actions; the last table also applies to all later decisions.
      initial_stock: c₀, raw reward units.
      discount: d̃_t of the agent's own discount, with which its stock accumulates, [T].
    """

    model: Model
    tables: PolicyTables
    initial_stock: float
    discount: np.ndarray

    def __repr__(self) -> str:
        """Return one line."""
        n_tables, c = len(self.tables.actions), self.initial_stock
        return f"<exact policy of {n_tables} decisions, initial stock {c:.6g}>"

    @functools.cached_property
    def _shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return self.model.observations(0).shape[1:]

    def __call__(
        self, observation: np.ndarray, t: np.ndarray | int, stock: np.ndarray | float
    ) -> np.ndarray:
        """Return the actions, int64 [E], or [] for one observation.

        Args:
          observation: [E, *shape], or one observation [*shape].
          t: whole decisions since the reset, [E] or one number.
          stock: S_t, [E] or one number.

        Raises:
          UserError: a shape does not fit, or t is not whole.
        """
        one = np.shape(observation) == self._shape
        observation, t, stock = as_batch(self._shape, observation, t, stock)
        points, offsets = self.model.locate(observation), stock - self.initial_stock
        last = len(self.tables.actions) - 1
        actions = np.zeros(len(t), np.int64)
        for time in np.unique(np.minimum(t, last)):
            now = np.minimum(t, last) == time
            index = nearest(self.tables.offsets[time], offsets[now])
            actions[now] = self.tables.actions[time][index, points[now]]
        return actions[0] if one else actions

    def next_stock(
        self, stock: np.ndarray | float, t: np.ndarray | int, reward: np.ndarray | float
    ) -> np.ndarray:
        """Return S_{t+1} after raw rewards at whole times t, [E] or one number each."""
        times = np.minimum(whole_times(t), len(self.discount) - 1)
        return next_stock(np.asarray(stock), self.discount[times], np.asarray(reward))

    def save(self, path: Path) -> None:
        """Write the policy to an .npz file.

        Raises:
          UserError: the disk is full or the path is not writable.
        """
        with disk_errors(path), path.open("wb") as file:
            np.savez_compressed(
                file,
                actions=np.concatenate(self.tables.actions),  # [Σ_t L_t, n]
                offsets=np.concatenate(self.tables.offsets),  # [Σ_t L_t]
                counts=[len(offsets) for offsets in self.tables.offsets],  # L_t, [T]
                initial_stock=self.initial_stock,
                discount=self.discount,
            )


def load(path: Path, config: "Config") -> TablePolicy:
    """Read a saved policy of a run with this config.

    Raises:
      UserError: the file is missing or broken.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ends = np.cumsum(file["counts"])[:-1]
            tables = PolicyTables(np.split(file["actions"], ends), np.split(file["offsets"], ends))
            initial_stock, discount = float(file["initial_stock"]), file["discount"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a readable policy ({error})") from error
    # the model only locates observations, so any number of decisions serves an infinite horizon
    infinite = config.env.problem.n_decisions is None
    model = TabularModel(config.env, 1) if infinite else config.env.problem.model()
    return TablePolicy(model, tables, initial_stock, discount)
