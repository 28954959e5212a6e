"""Atari 2600 games, on the vector environment of the emulator."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.cores import cores_of_run
from rigor.envs.problem import Problem
from rigor.envs.vector import Step, VectorEnv, VideoEnv, check_actions, copy_seeds

if TYPE_CHECKING:
    from ale_py.vector_env import AtariVectorEnv

_NAMES = """
alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk
bowling boxing breakout centipede chopper_command crazy_climber defender demon_attack
double_dunk enduro fishing_derby freeway frostbite gopher gravitar hero ice_hockey jamesbond
kangaroo krull kung_fu_master montezuma_revenge ms_pacman name_this_game phoenix pitfall pong
private_eye qbert riverraid road_runner robotank seaquest skiing solaris space_invaders
star_gunner surround tennis time_pilot tutankham up_n_down venture video_pinball
wizard_of_wor yars_revenge zaxxon
"""
GAMES = tuple(_NAMES.split())
"""The standard set of 57 games, by the names of the emulator's ROMs."""

LIFE_LOSSES = ("terminal", "reset", "ignore")

PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {
        "sticky": 0.0,
        "noop_max": 30,
        "fire_reset": True,
        "full_actions": False,
        "life_loss": "terminal",
    },
    # Machado et al. (2018), Revisiting the Arcade Learning Environment, section 5; their frame
    # skip of 5 and cap of 18,000 frames are separate keys here.
    "machado": {
        "sticky": 0.25,
        "noop_max": 0,
        "fire_reset": False,
        "full_actions": True,
        "life_loss": "ignore",
    },
    # The code released with the paper; a lost life resets the whole game.
    "release": {
        "sticky": 0.0,
        "noop_max": 30,
        "fire_reset": True,
        "full_actions": False,
        "life_loss": "reset",
    },
    # Castro et al. (2018), Dopamine; also its cap of 27,000 agent steps, which is `max_frames`.
    "dopamine": {
        "sticky": 0.25,
        "noop_max": 0,
        "fire_reset": False,
        "full_actions": False,
        "life_loss": "ignore",
    },
}

FRAMES_PER_SECOND = 60  # of the console, NTSC
SCREEN = (210, 160)  # pixels of the console
FRAME_STACK = 4  # frames, Mnih et al. (2015)
SIDE = 84  # pixels, Mnih et al. (2015)
TIME_SCALE = 1000.0  # agent steps, by which the paper's released code divides t


def protocol_value(protocol: str, key: str) -> Any:
    """Return the value that a protocol gives to a key of the environment.

    Raises:
      ValueError: the protocol is unknown, or it gives the key no value.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"env.protocol={protocol}: choose one of {', '.join(PROTOCOLS)}")
    if key not in PROTOCOLS[protocol]:
        known = ", ".join(PROTOCOLS[protocol])
        raise ValueError(f"env.{key}: no protocol sets this key; they set {known}")
    return PROTOCOLS[protocol][key]


@dataclass
class Atari:
    """One game and how it is played.

    Attributes:
      game: name of the ROM, one of `GAMES`.
      protocol: the source of the defaults of the five keys in `PROTOCOLS`.
      life_loss: effect of a lost life in training. `terminal` cuts the bootstrap, while the game, t
        and the stock continue; `reset` ends the episode and restarts the whole game; `ignore` does
        nothing. Evaluation always plays whole games.
      num_envs: copies stepped together.
      frame_skip: emulator frames per agent step.
      sticky: probability, per frame, that the emulator repeats the last action.
      noop_max: a game starts with fewer no-op frames than this, uniformly distributed; 0 for none.
      fire_reset: whether games that wait for FIRE are started.
      full_actions: whether all 18 actions are used, instead of those that the game reacts to.
      max_frames: emulator frames, not counting no-ops, after which a game is truncated.
      threads: emulator threads, at least 1; None for the cores that the run may use. Their number
        changes no result.
    """

    game: str
    protocol: str
    life_loss: str
    num_envs: int
    frame_skip: int
    sticky: float
    noop_max: int
    fire_reset: bool
    full_actions: bool
    max_frames: int
    threads: int | None

    def __post_init__(self) -> None:
        if self.game not in GAMES:
            raise ValueError(f"env.game={self.game}: no such game; {_nearest_games(self.game)}")
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"env.protocol={self.protocol}: choose one of {', '.join(PROTOCOLS)}")
        if self.life_loss not in LIFE_LOSSES:
            choices = ", ".join(LIFE_LOSSES)
            raise ValueError(f"env.life_loss={self.life_loss}: choose one of {choices}")
        if not 0 <= self.sticky < 1:
            raise ValueError(f"env.sticky={self.sticky}: a probability in [0, 1)")
        for key, least in (("num_envs", 1), ("frame_skip", 1), ("threads", 1), ("noop_max", 0)):
            value = getattr(self, key)
            if value is not None and value < least:
                raise ValueError(f"env.{key}={value}: must be at least {least}")
        if self.max_frames < self.frame_skip:
            raise ValueError(
                f"env.max_frames={self.max_frames}: must be at least "
                f"env.frame_skip={self.frame_skip}"
            )

    @property
    def problem(self) -> Problem | None:
        """None: the environment knows no facts of itself."""
        return None

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies of the game; in evaluation a lost life does nothing."""
        return AtariGames(self, n_envs, "ignore" if evaluation else self.life_loss)

    def video_env(self) -> VideoEnv:
        """Return one copy with colour frames; a lost life does not end the episode."""
        return AtariGames(self, 1, "terminal", in_colour=True)


class AtariGames:
    """E copies of one Atari game as a `VectorEnv`.

    Observation: a grey frame of each of the last 4 agent steps, uint8 [E, 4, 84, 84], the newest
      last. A frame is the maximum of two emulator frames; frames before the reset are zero.
    Reward: the change of the score over the frame skip, float64 [E], not clipped.
    Start: after no-ops and FIRE, as configured; t = 0 at the first observation returned.
    End: game over (terminated), `max_frames` (truncated), or a lost life if `life_loss` is `reset`.

    For colour frames, a second emulator with the same seeds plays the same games.
    """

    def __init__(self, config: Atari, n_envs: int, life_loss: str, in_colour: bool = False) -> None:
        self.n_envs = n_envs
        self._life_loss = life_loss
        self._games = _emulator(config, n_envs, life_loss)
        self._screens = _emulator(config, n_envs, life_loss, in_colour=True) if in_colour else None
        self._frame = np.zeros((*SCREEN, 3), np.uint8)
        self.frames_per_second = FRAMES_PER_SECOND / config.frame_skip
        self.action_names = [
            str(action).rpartition(".")[2].lower() for action in self._games.ale.get_action_set()
        ]
        self.n_actions = int(self._games.single_action_space.n)
        self.observation_shape: tuple[int, ...] = (FRAME_STACK, SIDE, SIDE)
        self.observation_dtype = np.dtype(np.uint8)
        # The emulator truncates a game at the end of the agent step that reaches the cap.
        self.max_time = -(-config.max_frames // config.frame_skip)
        self.time_scale = TIME_SCALE
        self.frame_stack = FRAME_STACK
        self.frames_per_step = config.frame_skip
        self.problem: Problem | None = None
        self._lives = np.zeros(n_envs, dtype=np.int64)
        self._ended = np.zeros(n_envs, dtype=bool)

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed and restart every game; return the first observations, uint8 [E, 4, 84, 84].

        Call it once: seeding loads each ROM again, which takes 0.1 s.
        """
        # An array, because the emulator turns a single number into neighbouring seeds.
        numbers = copy_seeds(seed, self.n_envs)
        observation, info = self._games.reset(seed=numbers)
        if self._screens is not None:
            self._frame = self._screens.reset(seed=numbers)[0][0, -1]
        self._lives = info["lives"].copy()
        self._ended = np.zeros(self.n_envs, dtype=bool)
        return observation

    def step(self, actions: np.ndarray) -> Step:
        """Play frame_skip frames of every game; actions int64 [E].

        Raises:
          ValueError: an action is out of range; the emulator would wait for ever.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        observation, reward, terminated, truncated, info = self._games.step(actions)
        if self._screens is not None:
            screens, seen, *_ = self._screens.step(actions)
            if not np.array_equal(seen, reward):
                raise RuntimeError("the game in colour differs from the agent's game")
            self._frame = screens[0, -1]
        dummy = self._ended
        episode_end = terminated | truncated
        if self._life_loss == "terminal":
            terminated = terminated | ((info["lives"] < self._lives) & ~dummy)
        self._lives = info["lives"].copy()
        self._ended = episode_end
        return Step(observation, reward.astype(np.float64), terminated, episode_end, dummy)

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Clip the change of the score to [−1, 1], as Mnih et al. (2015)."""
        return np.clip(reward, -1.0, 1.0)

    def state(self) -> None:
        """Return None, because the state of the vector emulator cannot be read."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Return None, because there is no state to continue from."""
        return None

    def frame(self) -> np.ndarray:
        """Return the first copy's colour frame, uint8 [210, 160, 3]; black without colour."""
        return self._frame

    def close(self) -> None:
        """Close the games."""
        self._games.close()
        if self._screens is not None:
            self._screens.close()


def _emulator(
    config: Atari, n_envs: int, life_loss: str, in_colour: bool = False
) -> "AtariVectorEnv":
    """Build the emulator; every option is given, because its defaults change between versions."""
    import ale_py
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(
        config.game,
        n_envs,
        batch_size=n_envs,  # a smaller batch returns copies in order of completion
        num_threads=min(config.threads or cores_of_run(), n_envs),
        thread_affinity_offset=-1,
        max_num_frames_per_episode=config.max_frames,
        repeat_action_probability=config.sticky,
        full_action_space=config.full_actions,
        continuous=False,
        continuous_action_threshold=0.5,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=SCREEN[0] if in_colour else SIDE,
        img_width=SCREEN[1] if in_colour else SIDE,
        grayscale=not in_colour,
        stack_num=1 if in_colour else FRAME_STACK,
        frameskip=config.frame_skip,
        maxpool=True,
        noop_max=config.noop_max,
        episodic_life=life_loss == "reset",
        life_loss_info=False,
        reward_clipping=False,  # clipping would lose the score
        use_fire_reset=config.fire_reset,
    )


def _nearest_games(name: str) -> str:
    """Return a hint with the games of the nearest names."""
    nearest = difflib.get_close_matches(name.lower(), GAMES, n=3)
    if nearest:
        return f"did you mean {' or '.join(nearest)}?"
    return f"choose one of {', '.join(GAMES)}"
