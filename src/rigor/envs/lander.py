"""Gymnasium's lunar lander in wind, cut after so many steps."""

import math
from dataclasses import dataclass

from omegaconf import MISSING

from rigor.envs.generic import Generic
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError

ID = "LunarLander-v3"


@dataclass
class Lander:
    """Land between two flags, pushed and turned by a wind that differs from episode to episode.

    Observation: place (x, y) from the pad, velocity, angle, angular velocity, all scaled by
      Gymnasium, and whether each leg touches the ground; float32 [8]. The wind is not in it, nor t.
    Actions: nothing, left engine, main engine, right engine.
    Reward: the change of a potential that is highest at rest on the pad, less .3 for a step of the
      main engine and .03 of a side engine; instead of it −100 for a crash or flying off to a side,
      +100 for coming to rest.
    Start: at the top, with a random push; the wind starts anywhere in its course. It blows until a
      leg touches the ground.
    End: a crash, flying off or coming to rest terminate; `max_steps` truncates.

    Attributes:
      max_steps: agent steps after which an episode is cut (truncated).
      wind_power: largest sideways force, turbulence_power: largest torque, in Gymnasium's units; it
        warns above 20 and 2.
      num_envs: copies stepped together.
    """

    max_steps: int = MISSING
    wind_power: float = MISSING
    turbulence_power: float = MISSING
    num_envs: int = MISSING

    def __post_init__(self) -> None:
        for key in ("max_steps", "num_envs"):
            if getattr(self, key) < 1:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 1 or more")
        for key in ("wind_power", "turbulence_power"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ValueError(f"env.{key}={getattr(self, key)}: must be 0 or more and finite")

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation.

        Raises:
          UserError: the physics engine is not installed.
        """
        try:
            import Box2D  # noqa: F401  Gymnasium's own message asks for a compiler, needlessly
        except ImportError as error:
            raise UserError(
                "env=windy_lunar_lander: needs the physics engine Box2D; pip install box2d, which "
                "has wheels for Python 3.11 to 3.13"
            ) from error
        wind = {"wind_power": self.wind_power, "turbulence_power": self.turbulence_power}
        kwargs = {"enable_wind": True, **wind}
        return Generic(ID, n_envs, self.max_steps, kwargs).make(n_envs, evaluation)
