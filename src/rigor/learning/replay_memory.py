"""The replay of a run with its file: what a checkpoint of the replay learner needs beside it."""

from pathlib import Path

import numpy as np
import torch

from rigor.config.schemas import TrainReplay
from rigor.envs.vector import VectorEnv
from rigor.learning.checkpoint import KEEP
from rigor.learning.frames import frame_shape
from rigor.learning.replay import Layout, Replay, place_frames
from rigor.learning.replay_file import ReplayFile


class ReplayMemory:
    """The replay in memory, and its ring on disk.

    Args:
      train: of the run. env: whose transitions it holds.
      directory: of the checkpoints. device: of the networks.
      checkpoint_every: agent steps between checkpoints.

    Attributes:
      replay: in memory.

    Raises:
      UserError: the replay does not fit into memory.
    """

    def __init__(
        self,
        train: TrainReplay,
        env: VectorEnv,
        directory: Path,
        device: torch.device,
        checkpoint_every: int,
    ) -> None:
        layout = Layout(
            n_envs=env.n_envs,
            frame_shape=frame_shape(env),
            frame_dtype=env.observation_dtype,
            stack=env.frame_stack,
        )
        if train.next_state_samples > 1:  # the environment reads the observations in each update
            device = torch.device("cpu")
        place = place_frames(train.replay_capacity, train.steps, layout, device)
        self.replay = Replay(train.replay_capacity, layout, place)
        # A row holds E steps less its autoresets. Slack of a quarter allows for episodes of four
        # steps, and `overdue` asks for an early checkpoint where episodes are shorter.
        self._slack = KEEP * (5 * checkpoint_every // (4 * env.n_envs) + 2)
        self._file = ReplayFile(directory / "replay.bin", self.replay, self._slack)
        self._saved = 0

    def overdue(self) -> bool:
        """Tell whether the file needs a checkpoint before it overwrites rows of a kept one."""
        return self.replay.added - self._saved >= self._slack // KEEP

    def write(self) -> int:
        """Write the rows that are new, and return how many there have been in all."""
        self._file.write()
        self._saved = self.replay.added
        return self._saved

    @property
    def block(self) -> int:
        """Rows of a block of the file."""
        return self._file.block

    def read(self, rows: int, block: int | None) -> None:
        """Restore the replay as it was after `rows` rows.

        Args:
          block: rows of a block of the file; None for an older file, which has none.

        Raises:
          CorruptCheckpoint: the file is missing or too short.
        """
        self._file.block = block or self._file.n_rows
        self._file.read(rows)
        self._saved = self.replay.added

    def end_episodes(
        self, observation: np.ndarray, t: np.ndarray, stock: np.ndarray, stock_start: np.ndarray
    ) -> None:
        """End the running episodes as truncated ones: complete their newest transitions.

        Args:
          observation: the last one of each episode, [E, *shape]. t, stock, stock_start: there, [E].
        """
        nothing = np.zeros(len(t))
        self.replay.add(
            observation,
            t=t,
            stock=stock,
            stock_start=stock_start,
            action=nothing,
            reward=nothing,
            terminated=nothing,
            valid=nothing,
        )
