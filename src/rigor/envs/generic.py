"""Any Gymnasium environment with discrete actions, by its id."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import MISSING

from rigor.envs.vector import FilmedEnv, Step, VectorEnv, check_actions, copy_seeds
from rigor.errors import UserError

if TYPE_CHECKING:
    import gymnasium


@dataclass
class Generic:
    """A registered Gymnasium environment.

    Attributes:
      id: its id; `module:Name-v0` imports the module first.
      num_envs: copies stepped together.
      max_steps: agent steps after which an episode is cut (truncated); null takes the limit with
        which the environment is registered.
      kwargs: arguments of the environment itself.
    """

    id: str = MISSING
    num_envs: int = MISSING
    max_steps: int | None = MISSING
    kwargs: dict[str, Any] = MISSING

    def __post_init__(self) -> None:
        if self.num_envs < 1:
            raise ValueError(f"env.num_envs={self.num_envs}: must be at least 1")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"env.max_steps={self.max_steps}: must be at least 1 step, or null")

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation.

        Raises:
          UserError: the id is unknown, a space is not supported, or nothing bounds an episode.
        """
        copies = [self._make_one(self.kwargs) for _ in range(n_envs)]
        return GymnasiumCopies(copies, self._limit(copies[0]), self.id)

    def filmed(self) -> FilmedEnv:
        """Return one copy that draws itself.

        Raises:
          UserError: as `make`, or the environment cannot draw itself as an array.
        """
        try:
            copy = self._make_one({**self.kwargs, "render_mode": "rgb_array"})
        except UserError as error:
            raise UserError(_no_picture(self.id, str(error))) from error
        return GymnasiumCopies([copy], self._limit(copy), self.id)

    def _make_one(self, kwargs: dict[str, Any]) -> "gymnasium.Env[Any, Any]":
        import gymnasium

        try:
            return gymnasium.make(self.id, max_episode_steps=self.max_steps, **kwargs)
        except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
            nearest = difflib.get_close_matches(self.id, list(gymnasium.registry), n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(nearest)}?" if nearest else str(error)
            raise UserError(f"env.id={self.id}: Gymnasium cannot make it; {hint}") from error
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"env.id={self.id}: Gymnasium cannot make it; {error}") from error
        except TypeError as error:
            if not kwargs:
                raise
            message = f"env.kwargs={kwargs}: {self.id} does not take them; {error}"
            raise UserError(message) from error

    def _limit(self, copy: "gymnasium.Env[Any, Any]") -> int:
        limit = copy.spec.max_episode_steps if copy.spec else None
        if limit is None:
            raise UserError(
                f"env.max_steps=null: {self.id} is registered without a limit on the length of "
                "an episode; set env.max_steps=1000"
            )
        return limit


@dataclass
class _Episode:
    """Where one copy stands: enough to play its episode again.

    Attributes:
      generator: state of the copy's random generator before the reset, None if it has another kind.
      actions: what was done since the reset.
      ended: the next step is the autoreset.
    """

    generator: dict[str, Any] | None
    actions: list[int] = field(default_factory=list)
    ended: bool = False


class GymnasiumCopies:
    """E copies of a Gymnasium environment as a `VectorEnv`, stepped one after the other.

    Observation: a vector as float32, an image as uint8 with its channels first, a number as the
      float32 one-hot vector.
    Reward: the environment's own, float64 [E]. Start and end: the environment's own.
    """

    def __init__(self, copies: "list[gymnasium.Env[Any, Any]]", max_time: int, id: str) -> None:
        import gymnasium

        self._copies = copies
        self._episodes = [_Episode(None) for _ in copies]
        self.n_envs = len(copies)
        actions = copies[0].action_space
        if not isinstance(actions, gymnasium.spaces.Discrete):
            raise UserError(f"env.id={id}: its actions are {actions}; only Discrete works")
        self.n_actions = int(actions.n)
        self._first_action = int(actions.start)
        self.observation_shape, self.observation_dtype, self._encode = _encoder(
            copies[0].observation_space, id
        )
        self._observation = np.zeros((self.n_envs, *self.observation_shape), self.observation_dtype)
        self.max_time = max_time
        self.time_scale = float(max_time)
        self.frame_stack = 1
        self.reward_bound: float | None = None
        self.pictures_per_second = float(copies[0].metadata.get("render_fps", 30))
        self.action_names = [str(self._first_action + i) for i in range(self.n_actions)]
        self._id = id

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed every copy and start an episode in each; return the observations [E, ...]."""
        from gymnasium.utils.seeding import np_random

        for i, number in enumerate(copy_seeds(seed, self.n_envs).tolist()):
            # Env.reset(seed) seeds in this way and draws at once, so look at a generator of ours.
            self._episodes[i] = _Episode(dict(np_random(number)[0].bit_generator.state))
            self._observation[i] = self._encode(self._copies[i].reset(seed=number)[0])
        return self._observation.copy()

    def step(self, actions: np.ndarray) -> Step:
        """Step every copy, or reset it where its episode has ended; actions int64 [E].

        Raises:
          ValueError: an action out of range.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, dtype=bool)
        truncated = np.zeros(self.n_envs, dtype=bool)
        dummy = np.array([episode.ended for episode in self._episodes])
        for i, action in enumerate(actions.tolist()):
            if dummy[i]:
                self._episodes[i] = _Episode(_generator_state(self._copies[i]))
                observation, _ = self._copies[i].reset()
            else:
                observation, reward[i], terminated[i], truncated[i] = self._act(i, action)
            self._observation[i] = self._encode(observation)
        return Step(self._observation.copy(), reward, terminated, terminated | truncated, dummy)

    def _act(self, i: int, action: int) -> tuple[Any, float, bool, bool]:
        """Step copy i and write down what was done."""
        observation, reward, terminated, truncated, _ = self._copies[i].step(
            action + self._first_action
        )
        episode = self._episodes[i]
        episode.actions.append(action)
        episode.ended = bool(terminated or truncated)
        return observation, float(reward), bool(terminated), bool(truncated)

    def learned_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward as it is."""
        return reward

    def picture(self) -> np.ndarray:
        """Return what the first copy draws, uint8 [height, width, 3].

        Raises:
          UserError: it does not draw, or lacks the library that it draws with.
        """
        import gymnasium

        try:
            drawn = self._copies[0].render()
        except gymnasium.error.Error as error:
            raise UserError(_no_picture(self._id, str(error))) from error
        if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
            raise UserError(_no_picture(self._id, "render() returns no picture"))
        return drawn

    def state(self) -> dict[str, Any] | None:
        """Return how to play every copy's episode again, or None without numpy generators.

        Numbers, strings, lists and one array; nothing is pickled.
        """
        generators = [_generator_state(copy) for copy in self._copies]
        if None in generators or any(episode.generator is None for episode in self._episodes):
            return None
        return {
            "starts": [episode.generator for episode in self._episodes],
            "actions": [list(episode.actions) for episode in self._episodes],
            "ended": [episode.ended for episode in self._episodes],
            "generators": generators,
            "observation": self._observation.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> np.ndarray | None:
        """Play every copy's episode again; return the observations [E, ...].

        None if a copy does not come to the same observation, bit for bit, with the same state of
        its generator: the environment has hidden state, or it changed. Call `reset` then.
        """
        if len(state["starts"]) != self.n_envs:
            return None
        for i in range(self.n_envs):
            if not self._replay(i, state):
                return None
        return self._observation.copy()

    def _replay(self, i: int, state: Mapping[str, Any]) -> bool:
        """Play copy i's episode again; say whether it came to where it was."""
        copy, start = self._copies[i], state["starts"][i]
        generator = copy.unwrapped.np_random
        if not isinstance(generator, np.random.Generator):
            return False
        if generator.bit_generator.state["bit_generator"] != start["bit_generator"]:
            return False
        generator.bit_generator.state = start
        self._episodes[i] = _Episode(start)
        observation, _ = copy.reset()
        for action in state["actions"][i]:
            if self._episodes[i].ended:
                return False
            observation, *_ = self._act(i, action)
        self._observation[i] = self._encode(observation)
        return (
            self._episodes[i].ended == state["ended"][i]
            and _generator_state(copy) == state["generators"][i]
            and self._observation[i].tobytes() == state["observation"][i].tobytes()
        )

    def close(self) -> None:
        """Close every copy."""
        for copy in self._copies:
            copy.close()


def _no_picture(id: str, reason: str) -> str:
    return f"env.id={id}: cannot draw itself; leave --video out ({reason})"


def _generator_state(copy: "gymnasium.Env[Any, Any]") -> dict[str, Any] | None:
    """Return the state of a copy's random generator, None if that is not numpy's."""
    generator = copy.unwrapped.np_random
    if not isinstance(generator, np.random.Generator):
        return None
    return dict(generator.bit_generator.state)


_Encoder = tuple[tuple[int, ...], np.dtype[Any], Callable[[Any], np.ndarray]]


def _encoder(space: "gymnasium.Space[Any]", id: str) -> _Encoder:
    """Return shape, dtype and function of an observation as the networks take it.

    Raises:
      UserError: the space is none of those named in the message.
    """
    from gymnasium.spaces import Box, Discrete

    float32, uint8 = np.dtype(np.float32), np.dtype(np.uint8)
    if isinstance(space, Discrete):
        one_hot, first = np.eye(space.n, dtype=np.float32), int(space.start)
        return (int(space.n),), float32, lambda number: one_hot[int(number) - first]
    if isinstance(space, Box) and len(space.shape) == 1:
        return space.shape, float32, lambda vector: np.asarray(vector, dtype=np.float32)
    if isinstance(space, Box) and space.dtype == uint8 and len(space.shape) == 2:
        return (1, *space.shape), uint8, lambda image: np.asarray(image)[None]
    if isinstance(space, Box) and space.dtype == uint8 and len(space.shape) == 3:
        # Channels are the shortest axis; Gymnasium's images have them last, its stacks first.
        if space.shape[0] < space.shape[2]:
            return space.shape, uint8, np.asarray
        height, width, channels = space.shape
        return (channels, height, width), uint8, lambda image: np.moveaxis(image, -1, 0)
    raise UserError(
        f"env.id={id}: its observations are {space}; what works is a Box of one dimension, "
        "a Box of uint8 with two or three dimensions (an image), or Discrete"
    )
