"""A policy of tables that acts in the environment, is saved and is read again."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rigor.errors import UserError
from rigor.exact.model import Model
from rigor.exact.outcome import nearest
from rigor.exact.solve import Tables
from rigor.exact.tabular import TabularModel
from rigor.maths import stock
from rigor.tracking.disk import disk_errors

if TYPE_CHECKING:
    from rigor.config import Config


@dataclass
class TablePolicy:
    """The greedy policy of an exact agent, called like a learned one.

    Attributes:
      model: the problem, which says at which point an observation is.
      tables: its actions; from the last table's decision on, that table holds.
      initial_stock: c₀, raw reward units.
      mass: d̃_t of the discount that the agent plans with, which moves its stock on, [T].
    """

    model: Model
    tables: Tables
    initial_stock: float
    mass: np.ndarray

    def __call__(self, observation: np.ndarray, t: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Return the actions, int64 [E].

        Args:
          observation: [E, *shape]. t: decisions since the reset, int64 [E].
          total: the stock S_t, float64 [E]; `next_stock` moves it on.
        """
        points, offsets = self.model.locate(observation), total - self.initial_stock
        last = len(self.tables.actions) - 1
        actions = np.zeros(len(t), np.int64)
        for time in np.unique(np.minimum(t, last)):
            at = np.minimum(t, last) == time
            level = nearest(self.tables.offsets[time], offsets[at])
            actions[at] = self.tables.actions[time][level, points[at]]
        return actions

    def next_stock(self, total: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        return stock.next_stock(total, self.mass[np.minimum(t, len(self.mass) - 1)], reward)

    def save(self, path: Path) -> None:
        """Write the policy to an .npz file.

        Raises:
          UserError: the place is full or not writable.
        """
        with disk_errors(path), path.open("wb") as file:
            np.savez_compressed(
                file,
                actions=np.concatenate(self.tables.actions),  # [Σ_t L_t, n]
                offsets=np.concatenate(self.tables.offsets),  # [Σ_t L_t]
                levels=[len(offsets) for offsets in self.tables.offsets],  # [T]
                initial_stock=self.initial_stock,
                mass=self.mass,
            )


def load(path: Path, config: "Config") -> TablePolicy:
    """Read what `save` wrote, of a run with this config.

    Raises:
      UserError: there is no such file, or it is broken.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            ends = np.cumsum(file["levels"])[:-1]
            tables = Tables(np.split(file["actions"], ends), np.split(file["offsets"], ends))
            initial_stock, mass = float(file["initial_stock"]), file["mass"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no policy that can be read ({error})") from error
    # it only says where an observation is, so one decision of an endless problem will do
    endless = config.env.n_decisions is None
    model = TabularModel(config.env, 1) if endless else config.env.model()
    return TablePolicy(model, tables, initial_stock, mass)
