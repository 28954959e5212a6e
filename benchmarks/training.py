"""End to end: agent steps per CPU second once learning has begun, in turn with the peers."""

import contextlib
import functools
import importlib.util
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pieces import CASES, CPU, compose, make_agent, make_peer
from timing import Samples

from rigor.errors import Stopped
from rigor.learning import loop, parallel_loop
from rigor.learning.milestones import COLUMNS, Outputs
from rigor.learning.training import Training
from rigor.runs.directory import RunDirectory
from rigor.runs.job import Job
from rigor.runs.metrics import MetricsFile
from rigor.runs.progress import Progress
from rigor.runs.trackers import Trackers

WARM_UP = 1600  # agent steps before the first update, of every arm

Run = Callable[[int], int]
"""Goes on with a training for so many agent steps or a few more, and returns how many it took."""


def end_to_end(case: str, chunk: int, repeats: int) -> dict[str, Samples]:
    """Return CPU milliseconds per agent step of every arm, `repeats` chunks of steps in turn."""
    with contextlib.ExitStack() as after:
        folder = after.enter_context(tempfile.TemporaryDirectory())
        peers = _peers(case)
        ways = {"rigor": [], "rigor bf16": ["train.precision=bf16"]}
        if "sb3-contrib" in peers:  # which chooses by the target network: one forward fewer
            ways["rigor, train.double=target"] = ["train.double=target"]
        runs = {name: rigor_run(case, way, folder, after) for name, way in ways.items()} | peers
        samples: Samples = {name: [] for name in runs}
        for _ in range(repeats):
            for name, run in runs.items():
                began = time.process_time()
                steps = run(chunk)
                samples[name].append(1e3 * (time.process_time() - began) / steps)
    return {f"training {case}": samples}


def settings(case: str, folder: str, learning_starts: int) -> list[str]:
    """Return the overrides of a long run that learns early, acts by its network and only trains."""
    steps = 10_000_000
    return [
        *CASES[case],
        f"out={folder}",
        "tracker=none",
        f"train.steps={steps}",
        f"train.learning_starts={learning_starts / steps}",
        "train.epsilon_start=0.01",
        "evaluate.every=1",
        "env.num_envs=8",
        "env.threads=1",
        "train.checkpoint_every=1_000_000",
    ]


def rigor_run(case: str, overrides: list[str], folder: str, after: contextlib.ExitStack) -> Run:
    """Return what goes on with rigor's own loop, whole; it has taken its first updates."""
    given = settings(case, folder, WARM_UP)
    if "learner=parallel" in overrides:  # it has no warm-up, and its own number of copies
        given = [one for one in given if not one.startswith(("train.learning_", "env.num_envs"))]
    one = compose(*given, *overrides)
    run = after.enter_context(RunDirectory.open(one.path, one.plain, one.digest))
    training = Training(one.config, run, CPU)
    after.callback(training.close)
    state = training.start(lambda line: None)
    # each chunk ends as a run that is told to stop does, but without its checkpoint
    training.save = lambda state, wait=True: None
    metrics = after.enter_context(MetricsFile(run.metrics_path, COLUMNS).open(state.steps_logged))
    progress = after.enter_context(Progress(one.steps, "bench", run.log_path, quiet=True))

    def go_on(steps: int) -> int:
        before, until = state.steps, state.steps + steps
        sink = Trackers([])
        outputs = Outputs(
            metrics, progress, sink, lambda: signal.SIGTERM if state.steps >= until else None
        )
        with contextlib.suppress(Stopped):
            (parallel_loop if training.memory is None else loop).train(training, state, outputs)
        return state.steps - before

    go_on(WARM_UP + 16)
    return go_on


def _peers(case: str) -> dict[str, Run]:
    """Return what goes on with each peer; all have taken their first updates."""
    one, agent, games = make_agent(case)
    peer = make_peer(agent, games)
    peer.run(WARM_UP, learns=False)
    peer.run(16, learns=True)
    peers: dict[str, Run] = {"single file": functools.partial(peer.run, learns=True)}
    if peer.shape[1] == 1:
        if importlib.util.find_spec("sb3_contrib") is None:
            print("sb3-contrib is not installed: pip install -e '.[bench]'; going on without it")
        else:
            peers["sb3-contrib"] = _sb3(one, peer.shape[2])
    return peers


def _sb3(one: Job, n: int) -> Run:
    """Return sb3-contrib's QRDQN on the same emulator; it does one forward fewer (no double Q)."""
    from gymnasium import spaces
    from sb3_contrib import QRDQN
    from stable_baselines3.common.vec_env import VecEnv

    class Games(VecEnv):
        """rigor's games as that library takes them; an autoreset counts as a step here."""

        def __init__(self) -> None:
            self.games = one.config.env.make(8, evaluation=False)
            box = spaces.Box(0, 255, (4, 84, 84), np.uint8)
            super().__init__(8, box, spaces.Discrete(self.games.n_actions))

        def reset(self) -> np.ndarray:
            return self.games.reset(np.random.SeedSequence(2))

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions.astype(np.int64)

        def step_wait(self) -> Any:
            step = self.games.step(self.actions)
            infos: list[dict[str, Any]] = [{} for _ in range(8)]
            for i in np.flatnonzero(step.episode_end):
                infos[i]["terminal_observation"] = step.observation[i]
            reward = np.clip(step.reward, -1, 1).astype(np.float32)
            return step.observation, reward, step.episode_end, infos

        def close(self) -> None:
            self.games.close()

        def get_attr(self, name: str, indices: Any = None) -> list[Any]:
            return [None] * 8

        def set_attr(self, name: str, value: Any, indices: Any = None) -> None:
            pass

        def env_method(self, name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
            return [None] * 8

        def env_is_wrapped(self, wrapper: Any, indices: Any = None) -> list[bool]:
            return [False] * 8

    torch.set_num_threads(1)
    model = QRDQN(
        "CnnPolicy",
        Games(),
        buffer_size=4000,
        learning_starts=WARM_UP,
        batch_size=32,
        train_freq=1,  # calls, of 8 agent steps each
        gradient_steps=2,
        exploration_initial_eps=0.01,
        policy_kwargs={"n_quantiles": n, "net_arch": []},
        device="cpu",
        seed=0,
    )
    model.learn(WARM_UP + 16, log_interval=None)

    def go_on(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False, log_interval=None)
        return model.num_timesteps - before

    return go_on
