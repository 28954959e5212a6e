"""A vector environment whose every frame, reward and end is known, and a driver of training."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from rigor.envs.vector import Step, check_actions
from rigor.errors import Stopped
from rigor.learning import loop, parallel_loop
from rigor.learning.milestones import COLUMNS, Outputs
from rigor.learning.training import State, Training
from rigor.runs.directory import RunDirectory
from rigor.runs.job import Job
from rigor.runs.metrics import MetricsFile
from rigor.runs.progress import Progress
from rigor.runs.trackers import Trackers


@dataclass(frozen=True)
class Episode:
    """Rewards of its steps, how it ends, and the steps (from 0) at which a life is lost."""

    rewards: tuple[float, ...]
    truncated: bool = False
    lives_lost: tuple[int, ...] = ()


class ScriptedEnv:
    """E copies that play their scripts in a circle, whatever the actions.

    A frame is [copy + 1, serial number in two bytes], so every frame there ever was is another.
    With stack > 1 an observation is the last frames, those of before the reset zero; with 1 it is
    the float32 vector of the frame. Serial numbers begin after `first`. `calls` holds
    (observation before, actions, step) of each call.
    """

    n_actions = 3
    time_scale = 10.0

    def __init__(
        self,
        scripts: list[list[Episode]],
        stack: int = 1,
        clip: bool = False,
        copyable: bool = True,
        first: int = 0,
    ) -> None:
        self.scripts, self.clip, self.copyable = scripts, clip, copyable
        self.serial = [first] * len(scripts)
        self.n_envs, self.frame_stack, self.frames_per_step = len(scripts), stack, 1
        self.problem = None
        self.observation_shape = (stack, 3, 1) if stack > 1 else (3,)
        self.observation_dtype = np.dtype(np.uint8 if stack > 1 else np.float32)
        self.max_time = max(len(e.rewards) for script in scripts for e in script)
        self.calls: list[tuple[np.ndarray, np.ndarray, Step]] = []
        self.closed = False

    def reset(self, seed):
        self.seed = seed
        self.episode = [0] * self.n_envs
        self.t = [0] * self.n_envs
        self.ended = [False] * self.n_envs
        self.frames = np.zeros((self.n_envs, self.frame_stack, 3), np.uint8)
        for i in range(self.n_envs):
            self._show(i)
        return self._observation()

    def step(self, actions):
        check_actions(actions, self.n_envs, self.n_actions)
        before = self._observation()
        reward = np.zeros(self.n_envs)
        terminated, truncated = np.zeros(self.n_envs, bool), np.zeros(self.n_envs, bool)
        dummy = np.array(self.ended)
        for i in range(self.n_envs):
            if dummy[i]:
                self.episode[i] += 1
                self.t[i], self.ended[i] = 0, False
                self.frames[i] = 0
            else:
                episode = self.scripts[i][self.episode[i] % len(self.scripts[i])]
                reward[i] = episode.rewards[self.t[i]]
                terminated[i] = self.t[i] in episode.lives_lost
                self.t[i] += 1
                if self.t[i] == len(episode.rewards):
                    self.ended[i] = True
                    terminated[i], truncated[i] = not episode.truncated, episode.truncated
            self._show(i)
        ends = np.array(self.ended)
        step = Step(self._observation(), reward, terminated, ends, dummy)
        self.calls.append((before, actions.copy(), step))
        return step

    def learner_reward(self, reward):
        return np.clip(reward, -1.0, 1.0) if self.clip else reward

    def state(self):
        if not self.copyable:
            return None
        names = ("episode", "t", "ended", "serial")
        return {name: list(getattr(self, name)) for name in names} | {"frames": self.frames.copy()}

    def restore(self, state):
        if not self.copyable:
            return None
        for name, value in state.items():
            setattr(self, name, value.copy())
        return self._observation()

    def close(self):
        self.closed = True

    def _show(self, i):
        self.serial[i] += 1
        self.frames[i] = np.roll(self.frames[i], -1, axis=0)
        self.frames[i, -1] = (i + 1, self.serial[i] // 250 + 1, self.serial[i] % 250 + 1)

    def _observation(self):
        if self.frame_stack > 1:
            return self.frames[..., None].copy()
        return self.frames[:, 0].astype(np.float32)


@dataclass
class ScriptedConfig:
    """What `config.env` is in a test: makes scripted environments, and remembers them."""

    scripts: list[list[Episode]]
    stack: int = 1
    clip: bool = False
    copyable: bool = True
    first: int = 0
    made: list[ScriptedEnv] = field(default_factory=list)

    @property
    def num_envs(self) -> int:
        return len(self.scripts)

    def make(self, n_envs: int, evaluation: bool) -> ScriptedEnv:
        scripts = [self.scripts[i % len(self.scripts)] for i in range(n_envs)]
        env = ScriptedEnv(scripts, self.stack, self.clip, self.copyable, self.first)
        self.made.append(env)
        return self.made[-1]


class CallRecorder:
    """Keeps calls as a GPU keeps their kernels: recording does nothing, replaying fills memory."""

    def __init__(self):
        self.replays = 0

    def warm_up(self, call):
        self.like = call()
        return self.like

    def record(self, call):
        answer = torch.empty_like(self.like)

        def replay():
            self.replays += 1
            answer.copy_(call())

        return replay, answer


@dataclass
class Session:
    """One process's part of a run, after it."""

    training: Training
    state: State
    notes: list[str]
    stopped: bool


def session(
    job: Job, stop: Callable[[Training, State], bool] = lambda training, state: False
) -> Session:
    """Train as `rigor.learning.run` does, until the end or until `stop` says so."""
    notes: list[str] = []
    stopped = False
    with RunDirectory.open(job.path, job.plain, job.digest) as run:
        training = Training(job.config, run, torch.device("cpu"))
        state = training.start(notes.append)
        metrics = MetricsFile(run.metrics_path, COLUMNS).open(state.steps_logged)
        progress = Progress(job.steps, "test", run.log_path, start=state.steps, quiet=True)
        with contextlib.closing(training), metrics, progress:
            outputs = Outputs(
                metrics,
                progress,
                Trackers([]),
                lambda: 15 if stop(training, state) else None,
            )
            train = parallel_loop.train if training.memory is None else loop.train
            try:
                train(training, state, outputs)
            except Stopped:
                stopped = True
    return Session(training, state, notes, stopped)


def assert_same(there, here):
    """Compare two trees of plain data, arrays and tensors, bit for bit."""
    there, here = (list(one) if isinstance(one, tuple) else one for one in (there, here))
    assert type(here) is type(there)
    if isinstance(there, dict):
        assert list(here) == list(there)
        for key in there:
            assert_same(there[key], here[key])
    elif isinstance(there, list):
        assert len(here) == len(there)
        for left, right in zip(there, here, strict=True):
            assert_same(left, right)
    elif isinstance(there, (np.ndarray, torch.Tensor)):
        assert here.dtype == there.dtype
        assert here.shape == there.shape
        np.testing.assert_array_equal(np.asarray(here), np.asarray(there))
    else:
        assert here == there
