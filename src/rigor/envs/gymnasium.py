"""Any Gymnasium environment with discrete actions, by its id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rigor.envs.gymnasium_make import frames_per_step, make_copy, time_limit
from rigor.envs.gymnasium_spaces import CHANNELS, Encoding, actions_of, encoding_of
from rigor.envs.problem import Problem
from rigor.envs.vector import Step, VectorEnv, VideoEnv, check_actions, copy_seeds
from rigor.errors import UserError

if TYPE_CHECKING:
    import gymnasium


@dataclass
class Gymnasium:
    """A registered Gymnasium environment.

    Attributes:
      id: id of the environment; `module:Name-v0` imports the module first.
      num_envs: copies stepped together.
      max_steps: agent steps after which an episode is truncated; null uses the limit with which the
        environment is registered.
      channels: the axis of an image that holds its channels, `first` or `last`; `auto` recognises
        it, and asks where it cannot.
      wrappers: put around each copy, the first one innermost: `module.Class`, a mapping with that
        as `wrapper` and its arguments, or a function from an environment to another.
      kwargs: arguments of the environment itself.
    """

    id: str
    num_envs: int
    max_steps: int | None
    channels: str
    wrappers: list[Any]
    kwargs: dict[str, Any]

    def __post_init__(self) -> None:
        if self.channels not in CHANNELS:
            raise ValueError(f"env.channels={self.channels}: choose one of {', '.join(CHANNELS)}")
        if self.num_envs < 1:
            raise ValueError(f"env.num_envs={self.num_envs}: must be at least 1")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"env.max_steps={self.max_steps}: must be at least 1 step, or null")

    @property
    def problem(self) -> Problem | None:
        """None: the environment knows no facts of itself."""
        return None

    def make(self, n_envs: int, evaluation: bool) -> VectorEnv:
        """Return n_envs copies, the same in training and evaluation.

        Raises:
          UserError: the id is unknown, a space is not supported, or an episode has no limit.
        """
        copies = [
            make_copy(self.id, self.max_steps, self.wrappers, self.kwargs) for _ in range(n_envs)
        ]
        return GymnasiumCopies(copies, self._interface(copies[0]), self.id)

    def video_env(self) -> VideoEnv:
        """Return one copy that draws itself.

        Raises:
          UserError: as `make` does, or if the environment cannot draw itself as an array.
        """
        try:
            kwargs = {**self.kwargs, "render_mode": "rgb_array"}
            copy = make_copy(self.id, self.max_steps, self.wrappers, kwargs)
        except UserError as error:
            raise UserError(_no_frame(self.id, str(error))) from error
        return GymnasiumCopies([copy], self._interface(copy), self.id)

    def _interface(self, copy: "gymnasium.Env[Any, Any]") -> "Interface":
        """Return how a copy is played.

        Raises:
          UserError: all that stands in the way, in one message.
        """
        refused: list[str] = []
        limit = time_limit(copy)
        actions: list[Any] = []
        encoding: Encoding | None = None
        try:
            actions = actions_of(copy.action_space)
        except ValueError as error:
            refused.append(str(error))
        try:
            encoding = encoding_of(copy.observation_space, self.channels)
        except ValueError as error:
            refused.append(str(error))
        if limit is None:
            refused.append("it has no limit on the length of an episode; set env.max_steps=1000")
        if refused and encoding is not None and encoding.is_image:
            height, width = encoding.shape[1:]
            refused.append(
                f"its observations are images of {height} x {width}; add network=nature_cnn, or "
                "network=small_cnn below 36 pixels"
            )
        if refused or encoding is None or limit is None:
            raise UserError(f"env.id={self.id}: " + "; and ".join(refused))
        return Interface(actions, encoding, limit)


@dataclass(frozen=True)
class Interface:
    """How a Gymnasium environment is played.

    actions: the environment's own, by number. encoding: of its observations. max_time: agent steps
    of the longest episode.
    """

    actions: list[Any]
    encoding: Encoding
    max_time: int


@dataclass
class _Episode:
    """The history of a copy's episode, from which it can be replayed.

    Attributes:
      generator: state of the copy's random generator before the reset; None if it is not numpy's.
      actions: the actions since the reset.
      ended: whether the next step is the autoreset.
    """

    generator: dict[str, Any] | None
    actions: list[int] = field(default_factory=list)
    ended: bool = False


class GymnasiumCopies:
    """E copies of a Gymnasium environment as a `VectorEnv`, stepped one after the other.

    Observation: an image with channels first, uint8, bool or float32; all else as a float32 vector,
      see `rigor.envs.gymnasium_spaces`.
    Reward: the environment's own, float64 [E]. Start and end: the environment's own.
    """

    def __init__(
        self, copies: "list[gymnasium.Env[Any, Any]]", interface: Interface, id: str
    ) -> None:
        self._copies = copies
        self._episodes = [_Episode(None) for _ in copies]
        self.n_envs = len(copies)
        self._actions, encoding = interface.actions, interface.encoding
        self.n_actions = len(self._actions)
        self.observation_shape, self.observation_dtype = encoding.shape, encoding.dtype
        self._encode_any = encoding.encode
        self._observation = np.zeros((self.n_envs, *self.observation_shape), self.observation_dtype)
        self.max_time = interface.max_time
        self.time_scale = float(interface.max_time)
        self.frame_stack = 1
        self.frames_per_step = frames_per_step(copies[0])
        self.problem: Problem | None = None
        self.frames_per_second = float(copies[0].metadata.get("render_fps", 30))
        self.action_names = [str(action) for action in self._actions]
        self._id = id

    def reset(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Seed every copy and start an episode in each; return the observations [E, ...]."""
        from gymnasium.utils.seeding import np_random

        for i, number in enumerate(copy_seeds(seed, self.n_envs).tolist()):
            # Env.reset(seed) seeds in the same way and samples at once, so the generator's first
            # state is read from a copy.
            self._episodes[i] = _Episode(dict(np_random(number)[0].bit_generator.state))
            self._observation[i] = self._encode(self._start(i, number))
        return self._observation.copy()

    def step(self, actions: np.ndarray) -> Step:
        """Step every copy, or reset it where its episode has ended; actions int64 [E].

        Raises:
          ValueError: an action is out of range.
        """
        check_actions(actions, self.n_envs, self.n_actions)
        reward = np.zeros(self.n_envs)
        terminated = np.zeros(self.n_envs, dtype=bool)
        truncated = np.zeros(self.n_envs, dtype=bool)
        dummy = np.array([episode.ended for episode in self._episodes])
        for i, action in enumerate(actions.tolist()):
            if dummy[i]:
                self._episodes[i] = _Episode(_generator_state(self._copies[i]))
                observation = self._start(i)
            else:
                observation, reward[i], terminated[i], truncated[i] = self._act(i, action)
            self._observation[i] = self._encode(observation)
        return Step(self._observation.copy(), reward, terminated, terminated | truncated, dummy)

    def _start(self, i: int, seed: int | None = None) -> Any:
        """Reset copy i and return its observation.

        Raises:
          UserError: reset() does not return a pair.
        """
        returned = self._copies[i].reset(seed=seed)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise UserError(
                f"env.id={self._id}: reset() returns {type(returned).__name__}; it must return the "
                "pair (observation, info): correct the environment"
            )
        return returned[0]

    def _act(self, i: int, action: int) -> tuple[Any, float, bool, bool]:
        """Step copy i and record the action.

        Raises:
          UserError: the reward is no number, or one of the flags no flag.
        """
        observation, reward, terminated, truncated, _ = self._copies[i].step(self._actions[action])
        episode = self._episodes[i]
        episode.actions.append(action)
        terminated, truncated = (
            self._flag(name, value, i)
            for name, value in (("terminated", terminated), ("truncated", truncated))
        )
        episode.ended = terminated or truncated
        return observation, self._number(reward, i), terminated, truncated

    def _flag(self, name: str, value: Any, i: int) -> bool:
        """Return a flag of copy i; some environments return 0 and 1, or an array of one.

        Raises:
          UserError: it is no flag; the text "False", for one, would count as true.
        """
        if isinstance(value, bool | np.bool_):
            return bool(value)
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "buif":
            step = len(self._episodes[i].actions)
            raise UserError(
                f"env.id={self._id}: {name} of step {step} of an episode is {value!r}; it must be "
                "true or false: correct the environment"
            )
        return bool(array.item())

    def seen(self, observation: Any) -> Any:
        """Return the environment's own observation as the agent sees it.

        All else is returned as it is: a batch, and an array that has the agent's shape already.
        """
        has_shape = isinstance(observation, np.ndarray) and (
            observation.shape == self.observation_shape
        )
        if has_shape or not self._copies[0].observation_space.contains(observation):
            return observation
        return self._encode(observation)

    def _encode(self, observation: Any) -> np.ndarray:
        """Return an encoded observation, [*observation_shape].

        Raises:
          UserError: it is none of the observation space.
        """
        try:
            encoded = self._encode_any(observation)
        # a RuntimeError is torch's
        except (IndexError, TypeError, ValueError, RuntimeError) as error:
            shown = f"env.id={self._id}: the observation {observation!r}"
            raise UserError(f"{shown} is not in {self._copies[0].observation_space}") from error
        if encoded.shape != self.observation_shape:
            raise UserError(
                f"env.id={self._id}: an observation has shape {np.shape(observation)}, which is "
                f"not that of its space, {self._copies[0].observation_space}"
            )
        return encoded

    def _number(self, reward: Any, i: int) -> float:
        """Return the reward of copy i as a number; some environments return an array of one.

        Raises:
          UserError: it is no number.
        """
        try:
            array = np.asarray(reward, dtype=np.float64)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one from torch
            array = np.zeros(0)
        if array.size != 1 or reward is None:
            step = len(self._episodes[i].actions)
            raise UserError(
                f"env.id={self._id}: the reward of step {step} of an episode is {reward!r}; it "
                "must be one number: correct the environment"
            )
        return float(array.item())

    def learner_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return the reward unchanged."""
        return reward

    def frame(self) -> np.ndarray:
        """Return a frame of the first copy, uint8 [height, width, 3].

        Raises:
          UserError: the environment does not draw frames, or lacks the library to do so.
        """
        import gymnasium

        try:
            frame = self._copies[0].render()
        except gymnasium.error.Error as error:
            raise UserError(_no_frame(self._id, str(error))) from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(_no_frame(self._id, "render() returns no frame"))
        return frame

    def state(self) -> dict[str, Any] | None:
        """Return the history of every copy's episode, or None if a generator is not numpy's.

        It holds numbers, strings, lists and one array, and nothing pickled.
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
        """Replay every copy's episode; return the observations [E, ...].

        None if a copy does not reach the same observation, bit for bit, with the same state of its
        generator, because the environment has hidden state or has changed. Call `reset` then.
        """
        if len(state["starts"]) != self.n_envs:
            return None
        for i in range(self.n_envs):
            if not self._replay(i, state):
                return None
        return self._observation.copy()

    def _replay(self, i: int, state: Mapping[str, Any]) -> bool:
        """Replay copy i's episode; return whether it reached the saved state."""
        copy, start = self._copies[i], state["starts"][i]
        generator = copy.unwrapped.np_random
        if not isinstance(generator, np.random.Generator):
            return False
        if generator.bit_generator.state["bit_generator"] != start["bit_generator"]:
            return False
        generator.bit_generator.state = start
        self._episodes[i] = _Episode(start)
        observation = self._start(i)
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


def _no_frame(id: str, reason: str) -> str:
    return f"env.id={id}: cannot draw itself; leave --video out ({reason})"


def _generator_state(copy: "gymnasium.Env[Any, Any]") -> dict[str, Any] | None:
    """Return the state of a copy's random generator, None if it is not numpy's."""
    generator = copy.unwrapped.np_random
    if not isinstance(generator, np.random.Generator):
        return None
    return dict(generator.bit_generator.state)
