"""MinAtar's five games (Young and Tian 2019), on the emulator of the package `minatar`.

The package is under the GPL and brought by the extra `rigor-rl[minatar]`; it is imported and never
copied.
"""

import colorsys
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.problem import Problem
from rigor.envs.vector import Step, VectorEnv, VideoEnv, check_actions, copy_seeds
from rigor.errors import UserError

if TYPE_CHECKING:
    from minatar import Environment

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")

SIDE = 10  # cells of the screen
SCATTER = 2500  # steps over which copies in training start; those of a game of freeway
TIME_SCALE = 1000.0  # agent steps, as for Atari
FRAMES_PER_SECOND = 20.0  # of a video; the package shows a frame for 50 ms
_WORDS = {"n": "noop", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
_CELL = 16  # pixels of a cell in a video
_CONSTANT = ("channels", "action_map", "random")  # attributes of a game that no step changes


@dataclass
class MinAtar:
    """One game and how it is played; its difficulty rises as in the package's default.

    Attributes:
      game: one of `GAMES`.
      sticky: probability, per agent step, that the emulator repeats the last action.
      full_actions: whether all 6 actions are used, instead of those that the game reacts to.
      max_steps: agent steps after which a game is truncated; the package has no limit.
      num_envs: copies stepped together.
    """

    game: str
    sticky: float
    full_actions: bool
    max_steps: int
    num_envs: int

    def __post_init__(self) -> None:
        if self.game not in GAMES:
            nearest = difflib.get_close_matches(self.game.lower(), GAMES, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"choose one of {', '.join(GAMES)}"
            raise ValueError(f"env.game={self.game}: no such game of MinAtar; {hint}")
        if not 0 <= self.sticky < 1:
            raise ValueError(f"env.sticky={self.sticky}: a probability in [0, 1)")
        for key in ("max_steps", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")

    @property
    def problem(self) -> Problem | None:
        """None: the environment knows no facts of itself."""
        return None

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, which in training start from different moments of a game.

        Raises:
          UserError: the package `minatar` is not installed.
        """
        return MinAtarGames(self, n_envs, scattered=not evaluation)

    def video_env(self) -> VideoEnv:
        """Return one copy, which draws itself."""
        return MinAtarGames(self, 1, scattered=False)

    def new_game(self, generator: np.random.Generator) -> "Environment":
        """Return a game that takes all its randomness from a generator.

        Raises:
          UserError: the package `minatar` is not installed.
        """
        try:
            from minatar import Environment
        except ImportError as error:
            raise UserError(
                f"env=minatar/{self.game}: needs the package minatar, an extra of rigor; "
                "pip install minatar"
            ) from error
        game = Environment(self.game, sticky_action_prob=self.sticky)
        # The game asks for numpy's older interface, which can read the same stream.
        game.random = game.env.random = np.random.RandomState(generator.bit_generator)
        return game

    def actions(self, game: "Environment") -> list[int]:
        """Return the emulator's number of each action."""
        return list(range(game.num_actions())) if self.full_actions else game.minimal_action_set()


class MinAtarGames:
    """E copies of one MinAtar game as a `VectorEnv`.

    Observation: a plane for each kind of object, true where there is one, bool [E, n, 10, 10];
      n = 4 (asterix, breakout), 7 (freeway), 10 (seaquest) or 6 (space_invaders).
    Reward: the emulator's, float64 [E]; not clipped.
    Start: the game's own; t = 0 at the first observation returned. Scattered copies have then
      played 0 to `SCATTER` random actions, evenly spaced: all games of freeway are equally long,
      and copies in step would show a learner one moment of the game for thousands of updates.
    End: the game's own terminates, in freeway after 2,501 steps; `max_steps` truncates.
    """

    def __init__(self, config: MinAtar, n_envs: int, scattered: bool) -> None:
        self.n_envs, self._scattered = n_envs, scattered
        self._generators = [np.random.default_rng(0) for _ in range(n_envs)]
        self._games = [config.new_game(generator) for generator in self._generators]
        self._actions = np.array(config.actions(self._games[0]))
        self.n_actions = len(self._actions)
        self._planes = int(self._games[0].n_channels)
        self.observation_shape: tuple[int, ...] = (self._planes, SIDE, SIDE)
        self.observation_dtype = np.dtype(bool)
        self.max_time = config.max_steps
        self.time_scale = TIME_SCALE
        self.frame_stack = 1
        self.frames_per_step = 1
        self.problem: Problem | None = None
        self.frames_per_second = FRAMES_PER_SECOND
        self.action_names = [_WORDS[self._games[0].env.action_map[i]] for i in self._actions]
        self._t = np.zeros(n_envs, dtype=np.int64)
        self._ended = np.zeros(n_envs, dtype=bool)

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed and restart every game; return the observations, bool [E, n, 10, 10]."""
        for i, number in enumerate(copy_seeds(seed, self.n_envs).tolist()):
            self._generators[i].bit_generator.state = np.random.PCG64(number).state
            self._games[i].last_action = 0
            self._games[i].reset()
            if self._scattered:
                self._play(i, i * SCATTER // self.n_envs)
        self._t = np.zeros(self.n_envs, dtype=np.int64)
        self._ended = np.zeros(self.n_envs, dtype=bool)
        return self._observation()

    def step(self, actions: np.ndarray) -> Step:
        """Play one frame of every game, or restart it where it has ended; actions int64 [E].

        Raises:
          ValueError: an action is out of range.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        dummy = self._ended
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, dtype=bool)
        ended = dummy.tolist()
        for i, action in enumerate(self._actions[actions].tolist()):
            if ended[i]:
                self._games[i].reset()
            else:
                reward[i], terminated[i] = self._games[i].act(action)
        self._t = np.where(dummy, 0, self._t + 1)
        self._ended = terminated | (self._t >= self.max_time)
        return Step(self._observation(), reward, terminated, self._ended.copy(), dummy)

    def _play(self, i: int, steps: int) -> None:
        """Play random actions in a game, and restart it where it ends."""
        for action in self._actions[self._generators[i].integers(self.n_actions, size=steps)]:
            if self._games[i].act(action)[1]:
                self._games[i].reset()

    def _observation(self) -> np.ndarray:
        """Return the observations [E, n, 10, 10], which lie in memory with their planes last."""
        cells = np.empty((self.n_envs, SIDE, SIDE, self._planes), dtype=bool)
        for i, game in enumerate(self._games):
            cells[i] = game.env.state()
        return cells.transpose(0, 3, 1, 2)

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward unchanged."""
        return reward

    def frame(self) -> np.ndarray:
        """Return a picture of the first copy, uint8 [160, 160, 3]; a colour for each plane."""
        hues = [colorsys.hsv_to_rgb(k / self._planes, 0.7, 1.0) for k in range(self._planes)]
        colours = np.array([(0, 0, 0), *hues]) * 255
        planes = self._games[0].env.state() * np.arange(1, self._planes + 1)  # [10, 10, n]
        small = colours[planes.max(-1)].astype(np.uint8)  # [10, 10, 3]
        return small.repeat(_CELL, axis=0).repeat(_CELL, axis=1)

    def state(self) -> dict[str, Any]:
        """Return the state of every game and of its generator: numbers, lists and arrays."""
        return {
            "games": [_state_of(game) for game in self._games],
            "generators": [dict(each.bit_generator.state) for each in self._generators],
            "t": self._t.copy(),
            "ended": self._ended.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> np.ndarray | None:
        """Continue from `state`; return the observations, None if it does not fit these games."""
        kept = [set(_state_of(game)) for game in self._games]
        if [set(game) for game in state["games"]] != kept:
            return None
        for i, game in enumerate(self._games):
            own = dict(_copied(state["games"][i]))
            game.last_action = own.pop("last_action")
            vars(game.env).update(own)
            self._generators[i].bit_generator.state = state["generators"][i]
        self._t, self._ended = np.array(state["t"]), np.array(state["ended"])
        return self._observation()

    def close(self) -> None:
        """Do nothing; there is nothing to free."""


def _state_of(game: "Environment") -> dict[str, Any]:
    """Return everything that changes in a game, in containers of its own."""
    own = {name: value for name, value in vars(game.env).items() if name not in _CONSTANT}
    return dict(_copied(own | {"last_action": game.last_action}))


def _copied(node: Any) -> Any:
    """Return a copy of a tree of dicts, lists and arrays, with numpy's scalars as Python's."""
    if isinstance(node, dict):
        return {key: _copied(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_copied(value) for value in node]
    if isinstance(node, np.ndarray):
        return node.copy()
    return node.item() if isinstance(node, np.generic) else node
