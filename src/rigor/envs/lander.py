"""Gymnasium's lunar lander in wind, with a limit on the length of an episode."""

import math
from dataclasses import dataclass

from rigor.envs.gymnasium import Gymnasium
from rigor.envs.problem import Problem
from rigor.envs.vector import VectorEnv, VideoEnv
from rigor.errors import UserError

ID = "LunarLander-v3"


@dataclass
class Lander:
    """Land between two flags in a wind that differs from episode to episode.

    Observation: position (x, y) relative to the pad, velocity, angle, angular velocity, all scaled
      by Gymnasium, and whether each leg touches the ground; float32 [8]. Neither the wind nor t is
      observed.
    Actions: nothing, left engine, main engine, right engine.
    Reward: the change of a potential that is highest at rest on the pad, minus .3 for a step of the
      main engine and .03 of a side engine. A crash or leaving the screen gives −100 instead, and
      coming to rest gives +100.
    Start: at the top, with a random push and a random phase of the wind. The wind blows until a leg
      touches the ground.
    End: a crash, leaving the screen and coming to rest terminate; `max_steps` truncates.

    Attributes:
      max_steps: agent steps after which an episode is truncated.
      wind_power: largest sideways force. turbulence_power: largest torque. Both in Gymnasium's
        units, above 20 and 2 of which it warns.
      num_envs: copies stepped together.
    """

    max_steps: int
    wind_power: float
    turbulence_power: float
    num_envs: int

    def __post_init__(self) -> None:
        for key in ("max_steps", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")
        for key in ("wind_power", "turbulence_power"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 0 or more and finite")

    @property
    def problem(self) -> Problem | None:
        """None: the environment knows no facts of itself."""
        return None

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation.

        Raises:
          UserError: the physics engine is not installed.
        """
        try:
            import Box2D  # noqa: F401  Gymnasium's own message asks for a compiler, which is not needed
        except ImportError as error:
            raise UserError(
                "env=windy_lunar_lander: needs the physics engine Box2D; pip install box2d, which "
                "has wheels for Python 3.11 to 3.13"
            ) from error
        return self._gymnasium(n_envs).make(n_envs, evaluation)

    def video_env(self) -> VideoEnv:
        """Return one copy that draws itself.

        Raises:
          UserError: the physics engine is not installed, or pygame, with which it draws.
        """
        return self._gymnasium(1).video_env()

    def _gymnasium(self, n_envs: int) -> Gymnasium:
        wind = {"wind_power": self.wind_power, "turbulence_power": self.turbulence_power}
        kwargs = {"enable_wind": True, **wind}
        return Gymnasium(ID, n_envs, self.max_steps, "auto", [], kwargs)
