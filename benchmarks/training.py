"""End to end: agent steps per CPU second once learning has begun, in turn with the peers."""

import contextlib
import importlib.util
import tempfile
import time
from typing import Any

import numpy as np
import torch
from pieces import CASES, CPU, compose, make_peer
from timing import Samples

from rigor.errors import Stopped
from rigor.learning import loop
from rigor.tracking.metrics import MetricsFile
from rigor.tracking.progress import Progress
from rigor.tracking.rundir import RunDirectory

WARM_UP = 1600  # random agent steps before the first update, of every arm


def end_to_end(case: str, chunk: int, repeats: int) -> dict[str, Samples]:
    """Return CPU milliseconds per agent step of every arm, `repeats` chunks in turn.

    rigor runs its own loop, whole; the peers run inside the callback that it asks at every step
    whether to stop, and while they do its clock stands still.
    """
    samples: Samples = {"rigor": []}
    with tempfile.TemporaryDirectory() as folder:
        peers = _peers(case)
        samples |= {name: [] for name in peers}
        _run(case, [], chunk, repeats, samples["rigor"], peers, samples, folder)
        ways = {"rigor bf16": ["train.precision=bf16"]}
        if "sb3-contrib" in peers:  # which chooses by the target network: one forward fewer
            ways["rigor, agent.double=target"] = ["agent.double=target"]
        for name, overrides in ways.items():
            samples[name] = []
            _run(case, overrides, chunk, repeats, samples[name], {}, samples, folder)
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
        "train.checkpoint_every=1_000_000",
    ]


def _run(
    case: str,
    overrides: list[str],
    chunk: int,
    repeats: int,
    own: list[float],
    peers: dict[str, Any],
    samples: Samples,
    folder: str,
) -> None:
    """Train for a few chunks, and let each peer run a chunk after each of ours."""
    one = compose(*settings(case, folder, WARM_UP), *overrides)
    clock = {"began": 0.0, "steps": 0}

    def between(state: loop.State) -> int | None:
        """Take the time of a chunk that is over, and give the peers their turn."""
        if state.steps < WARM_UP + chunk:
            clock["began"], clock["steps"] = time.process_time(), state.steps
            return None
        if state.steps - clock["steps"] < chunk:
            return None
        took = time.process_time() - clock["began"]
        own.append(1e3 * took / (state.steps - clock["steps"]))
        for name, peer in peers.items():
            began = time.process_time()
            peer(chunk)
            samples[name].append(1e3 * (time.process_time() - began) / chunk)
        clock["began"], clock["steps"] = time.process_time(), state.steps
        return 15 if len(own) >= repeats else None

    torch.set_num_threads(1)
    with RunDirectory.open(one.path, one.plain, one.digest) as run:
        training = loop.Training(one.config, run, CPU)
        state = training.start(lambda line: None)
        metrics = MetricsFile(run.metrics_path, loop.COLUMNS).open(state.told)
        progress = Progress(one.steps, "bench", run.log_path, enabled=False)
        with metrics, progress, contextlib.suppress(Stopped):
            loop.train(training, state, metrics, progress, lambda row: None, lambda: between(state))
        training.env.close()


def _peers(case: str) -> dict[str, Any]:
    """Return functions that train each peer for so many agent steps, warmed up."""
    one = compose(*CASES[case])
    from rigor.learning.agent import Agent

    games = one.config.env.make(8, evaluation=False)
    peer = make_peer(Agent(one.config, games, CPU, seed=0), games)
    peer.run(WARM_UP, learns=False)
    peer.run(8, learns=True)
    peers: dict[str, Any] = {"single file": lambda steps: peer.run(steps, learns=True)}
    if peer.shape[1] == 1:
        if importlib.util.find_spec("sb3_contrib") is None:
            print("sb3-contrib is not installed: pip install -e '.[bench]'; going on without it")
        else:
            peers["sb3-contrib"] = _sb3(one, peer.shape[2])
    return peers


def _sb3(one: Any, n: int) -> Any:
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
    model.learn(WARM_UP + 64, log_interval=None)
    return lambda steps: model.learn(steps, reset_num_timesteps=False, log_interval=None)
