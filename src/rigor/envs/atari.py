"""Atari 2600 games: the emulator's own vector environment, made to say what its episodes mean."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import MISSING

from rigor.envs.vector import FilmedEnv, Step, VectorEnv, check_actions, copy_seeds

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
    # What the code released with the paper does: a lost life resets the whole game.
    "release": {
        "sticky": 0.0,
        "noop_max": 30,
        "fire_reset": True,
        "full_actions": False,
        "life_loss": "reset",
    },
}

FRAMES_PER_SECOND = 60  # of the console, NTSC
SCREEN = (210, 160)  # pixels of the console
FRAME_STACK = 4  # frames, Mnih et al. (2015)
SIDE = 84  # pixels, Mnih et al. (2015)
TIME_SCALE = 1000.0  # agent steps; the paper's release divides t by it


def protocol_value(protocol: str, key: str) -> Any:
    """Return what a protocol says about one key of the environment.

    Raises:
      ValueError: the protocol is unknown, or it says nothing about the key.
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
      protocol: where the defaults of the five keys in `PROTOCOLS` come from.
      life_loss: what a lost life does in training. `terminal` cuts the bootstrap while the game,
        t and the stock go on; `reset` ends the episode and restarts the whole game; `ignore`
        does nothing. Evaluation always plays whole games.
      num_envs: copies stepped together.
      frame_skip: emulator frames per agent step.
      sticky: probability with which the emulator repeats the last action, per frame.
      noop_max: a game starts with fewer no-op frames than this, drawn uniformly; 0 for none.
      fire_reset: start games that wait for FIRE.
      full_actions: all 18 actions instead of those the game reacts to.
      max_frames: emulator frames after which a game is cut (truncated), no-ops not counted.
      threads: emulator threads, at least 1.
    """

    game: str = MISSING
    protocol: str = MISSING
    life_loss: str = MISSING
    num_envs: int = MISSING
    frame_skip: int = MISSING
    sticky: float = MISSING
    noop_max: int = MISSING
    fire_reset: bool = MISSING
    full_actions: bool = MISSING
    max_frames: int = MISSING
    threads: int = MISSING

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
            if getattr(self, key) < least:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be at least {least}")
        if self.max_frames < self.frame_skip:
            raise ValueError(
                f"env.max_frames={self.max_frames}: must be at least "
                f"env.frame_skip={self.frame_skip}"
            )

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies of the game; in evaluation a lost life does nothing."""
        return AtariGames(self, n_envs, "ignore" if evaluation else self.life_loss)

    def filmed(self) -> FilmedEnv:
        """Return one game whose screen can be seen; a lost life ends nothing."""
        return AtariGames(self, 1, "terminal", filmed=True)


class AtariGames:
    """E copies of one Atari game as a `VectorEnv`.

    Observation: the last 4 agent steps' frames, uint8 [E, 4, 84, 84], the newest last, each the
      maximum of the last two emulator frames in grey; frames from before the reset are zero.
    Reward: the change of the score over the frame skip, float64 [E], not clipped.
    Start: after no-ops and FIRE, as configured; t = 0 at the first observation returned.
    End: game over (terminated), `max_frames` (truncated), a lost life where `life_loss` is `reset`.

    Where it is filmed, a second emulator with the same seeds plays the same games in colour.
    """

    def __init__(self, config: Atari, n_envs: int, life_loss: str, filmed: bool = False) -> None:
        self.n_envs = n_envs
        self._life_loss = life_loss
        self._games = _emulator(config, n_envs, life_loss)
        self._screens = _emulator(config, n_envs, life_loss, in_colour=True) if filmed else None
        self._picture = np.zeros((*SCREEN, 3), np.uint8)
        self.pictures_per_second = FRAMES_PER_SECOND / config.frame_skip
        self.action_names = [
            str(action).rpartition(".")[2].lower() for action in self._games.ale.get_action_set()
        ]
        self.n_actions = int(self._games.single_action_space.n)
        self.observation_shape: tuple[int, ...] = (FRAME_STACK, SIDE, SIDE)
        self.observation_dtype = np.dtype(np.uint8)
        # The emulator cuts a game at the end of the agent step that reaches the cap.
        self.max_time = -(-config.max_frames // config.frame_skip)
        self.time_scale = TIME_SCALE
        self.frame_stack = FRAME_STACK
        self.reward_bound: float | None = 1.0
        self._lives = np.zeros(n_envs, dtype=np.int64)
        self._ended = np.zeros(n_envs, dtype=bool)

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed and restart every game; return the first observations, uint8 [E, 4, 84, 84].

        Call it once: the same seed repeats the same games, and seeding loads each ROM again (.1 s).
        """
        # An array, since the emulator turns one number into neighbouring seeds.
        numbers = copy_seeds(seed, self.n_envs)
        observation, info = self._games.reset(seed=numbers)
        if self._screens is not None:
            self._picture = self._screens.reset(seed=numbers)[0][0, -1]
        self._lives = info["lives"].copy()
        self._ended = np.zeros(self.n_envs, dtype=bool)
        return observation

    def step(self, actions: np.ndarray) -> Step:
        """Play frame_skip frames of every game; actions int64 [E].

        Raises:
          ValueError: an action out of range, for which the emulator would wait for ever.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        observation, reward, terminated, truncated, info = self._games.step(actions)
        if self._screens is not None:
            screens, seen, *_ = self._screens.step(actions)
            if not np.array_equal(seen, reward):
                raise RuntimeError("the game in colour went another way than the agent's")
            self._picture = screens[0, -1]
        dummy = self._ended
        episode_end = terminated | truncated
        if self._life_loss == "terminal":
            terminated = terminated | ((info["lives"] < self._lives) & ~dummy)
        self._lives = info["lives"].copy()
        self._ended = episode_end
        return Step(observation, reward.astype(np.float64), terminated, episode_end, dummy)

    def learned_reward(self, reward: np.ndarray) -> np.ndarray:
        """Clip the change of the score to [−1, 1], as Mnih et al. (2015)."""
        return np.clip(reward, -1.0, 1.0)

    def state(self) -> None:
        """Return None: the vector emulator's state cannot be read."""
        return None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Return None: there is no state to continue from."""
        return None

    def picture(self) -> np.ndarray:
        """Return the first copy's screen, uint8 [210, 160, 3]; black unless it is filmed."""
        return self._picture

    def close(self) -> None:
        """Close the games."""
        self._games.close()
        if self._screens is not None:
            self._screens.close()


def _emulator(
    config: Atari, n_envs: int, life_loss: str, in_colour: bool = False
) -> "AtariVectorEnv":
    """Build the emulator with every option said, since its defaults change between versions."""
    import ale_py
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(
        config.game,
        n_envs,
        batch_size=n_envs,  # a smaller batch returns games in order of completion
        num_threads=min(config.threads, n_envs),
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
        reward_clipping=False,  # it would destroy the score
        use_fire_reset=config.fire_reset,
    )


def _nearest_games(name: str) -> str:
    """Return a hint at the games whose names come nearest."""
    nearest = difflib.get_close_matches(name.lower(), GAMES, n=3)
    if nearest:
        return f"did you mean {' or '.join(nearest)}?"
    return f"choose one of {', '.join(GAMES)}"
