"""What a run is made of, and where it stands: all that a checkpoint holds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rigor.config import Config
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError
from rigor.learning import checkpoint, evaluate
from rigor.learning.agent import Agent
from rigor.learning.replay import Batch, Layout, Replay, ReplayFile, place_frames
from rigor.learning.schedule import every
from rigor.tracking.disk import disk_errors
from rigor.tracking.rundir import RunDirectory

STREAMS = (
    "network",
    "environment",
    "exploration",
    "replay",
    "evaluation",
    "final_evaluation",
    "outer",
)
"""What draws random numbers in a run; each has its own stream, spawned from `seed`."""


PESSIMISM = 2.0  # standard errors by which the value of an initial stock in games is lowered


@dataclass
class State:
    """Where a run stands: counters, clocks, stocks and sums of the E environments.

    steps: agent steps; learned: those whose updates are done; told: those that the metrics have
    been told about.
    t: int64 [E]. stock, stock_start: float64 [E].
    score, length: of the running episodes, [E]. starts: initial observations [K, *shape].
    ended: (score, length) of the episodes since the last row of metrics. updates_told: updates
    before that row.
    """

    observation: np.ndarray
    t: np.ndarray
    stock: np.ndarray
    stock_start: np.ndarray
    score: np.ndarray
    length: np.ndarray
    starts: np.ndarray
    steps: int = 0
    episodes: int = 0
    updates: int = 0
    updates_told: int = 0
    learned: int = 0
    told: int = 0
    seconds: float = 0.0
    ended: list[tuple[float, int]] = field(default_factory=list)


class Training:
    """One run's parts, put together: environment, agent, replay, files.

    Raises:
      UserError: the replay does not fit into memory, or the environment cannot be made.
    """

    def __init__(self, config: Config, run: RunDirectory, device: torch.device) -> None:
        self.config, self.run, train = config, run, config.train
        sequences = np.random.SeedSequence(config.seed).spawn(len(STREAMS))
        self.seeds = dict(zip(STREAMS, sequences, strict=True))
        self.env: VectorEnv = config.env.make(config.env.num_envs, evaluation=False)
        env = self.env
        if train.branches > 1 and not hasattr(env, "branch"):
            raise UserError(
                f"train.branches={train.branches}: this environment cannot be asked for other next "
                "states; use train.branches=1"
            )
        stacked = env.frame_stack > 1
        layout = Layout(
            n_envs=env.n_envs,
            frame_shape=env.observation_shape[1:] if stacked else env.observation_shape,
            frame_dtype=env.observation_dtype,
            stack=env.frame_stack,
        )
        place = place_frames(train.replay_capacity, train.steps, layout, device)
        self.replay = Replay(train.replay_capacity, layout, place)
        self.checkpoint_every = min(train.checkpoint_every, every(0.1, train.schedule_steps))
        # A row counts E steps less its autoresets: a quarter of the rows is room for episodes of
        # four steps, and `train` saves early where they are shorter.
        self.slack = checkpoint.KEEP * (5 * self.checkpoint_every // (4 * env.n_envs) + 2)
        with disk_errors(run.checkpoints):
            run.checkpoints.mkdir(exist_ok=True)
        self.file = ReplayFile(run.checkpoints / "replay.bin", self.replay, self.slack)
        self.agent = Agent(config, env, device, int(self.seeds["network"].generate_state(1)[0]))
        self.exploration = np.random.default_rng(self.seeds["exploration"])
        self.sampling = np.random.default_rng(self.seeds["replay"])
        self.frame_skip = getattr(config.env, "frame_skip", 1)
        self.factors = config.discount.factor(np.arange(env.max_time + 1))
        self.saved_rows = 0
        self.told_edge = False

    def start(self, note: Callable[[str], None]) -> State:
        """Return the state to go on from: the newest whole checkpoint's, or a fresh one.

        Raises:
          UserError: the replay's file is gone or cut; nothing has been removed.
        """
        paths = checkpoint.checkpoints(self.run.checkpoints)
        for path in reversed(paths):
            try:
                with disk_errors(path):
                    saved = checkpoint.load(path)
            except checkpoint.CorruptCheckpoint as error:
                note(f"{path.name} cannot be used ({error}); trying the one before it")
                checkpoint.discard(path)
                continue
            try:
                self.file.read(saved["replay_rows"])
            except checkpoint.CorruptCheckpoint as error:
                raise UserError(
                    f"{error}; without its replay no checkpoint goes on: put the file back, or "
                    f"move {self.run.path} away to train from the start"
                ) from error
            return self._restored(saved, note)
        if paths:
            note("no checkpoint can be used; training again from the start")
        env = self.env
        observation = env.reset(self.seeds["environment"])
        zeros = np.zeros(env.n_envs)
        return State(
            observation=observation,
            t=np.zeros(env.n_envs, np.int64),
            stock=zeros.copy(),
            stock_start=zeros.copy(),
            score=zeros.copy(),
            length=np.zeros(env.n_envs, np.int64),
            starts=np.resize(observation, (self.config.outer.batch, *env.observation_shape)),
        )

    def save(self, state: State) -> None:
        """Write a checkpoint: the replay's new rows first, then the state that needs them."""
        with disk_errors(self.run.checkpoints):
            self.file.write()
            checkpoint.save(self.run.checkpoints, state.steps, self._tree(state))
        self.saved_rows = self.replay.added
        self.run.write_status("running", step=state.steps)

    def _tree(self, state: State) -> dict[str, Any]:
        """Return all that a checkpoint holds beside the replay's rows."""
        return {
            "state": dict(vars(state)),
            "agent": self.agent.state(),
            "replay_rows": self.replay.added,
            "exploration": self.exploration.bit_generator.state,
            "sampling": self.sampling.bit_generator.state,
            "torch": torch.get_rng_state(),
            "environment": self.env.state(),
        }

    def _restored(self, saved: Mapping[str, Any], note: Callable[[str], None]) -> State:
        """Put every part back to where the checkpoint was taken."""
        state = State(**saved["state"])
        state.ended = [(float(score), int(length)) for score, length in state.ended]
        self.agent.load(saved["agent"])
        self.exploration.bit_generator.state = saved["exploration"]
        self.sampling.bit_generator.state = saved["sampling"]
        torch.set_rng_state(saved["torch"])
        self.saved_rows = self.replay.added
        copied = saved["environment"]
        if copied is not None and self.env.restore(copied) is not None:
            note(f"resumed at step {state.steps} in the middle of its episodes")
            return state
        # The environment cannot be copied: the running episodes end here, as truncated ones. Their
        # last observations complete the newest transitions; fresh episodes follow.
        quiet = np.zeros(self.env.n_envs)
        self.replay.add(
            state.observation,
            t=state.t,
            stock=state.stock,
            stock_start=state.stock_start,
            action=quiet,
            reward=quiet,
            terminated=quiet,
            valid=quiet,
        )
        # Another seed than the first session's, or the same games would be played again.
        seed = np.random.SeedSequence([self.config.seed, state.steps])
        state.observation = self.env.reset(seed)
        state.t, state.length = np.zeros_like(state.t), np.zeros_like(state.length)
        state.score = np.zeros_like(state.score)
        state.stock = np.full_like(state.stock, self.agent.initial_stock)
        state.stock_start = state.stock.copy()
        note(f"resumed at step {state.steps} with fresh episodes")
        return state

    def choose_initial_stock(self, state: State, note: Callable[[str], None]) -> None:
        """Search for c₀ where the risk measure needs one; say once when it is the grid's end."""
        if not self.agent.utility.needs_stock:
            return
        before = self.agent.initial_stock
        on_edge = self.agent.choose_initial_stock(state.starts)
        if on_edge and not self.told_edge:
            note(_edge(self.agent))
            self.told_edge = True
        if self.config.outer.games:
            self._correct_initial_stock(before, state.updates)

    def _correct_initial_stock(self, before: float, updates: int) -> None:
        """Play from the c₀ found and the one before; take the best c for the better returns.

        Better by the lower end of a confidence interval: where a rare failure costs 1/τ times as
        much, the value of a bad c₀ is so noisy that of many searches one would be lucky.
        """
        games, agent = self.config.outer.games, self.agent
        found = agent.initial_stock
        env = self.config.env.make(min(games, self.env.n_envs), evaluation=True)
        key = (STREAMS.index("outer"), updates)
        seed = np.random.SeedSequence(self.config.seed, spawn_key=key)
        worth = []  # the lower end of the OCE of the returns from either, and its c
        try:
            for start in dict.fromkeys((found, before)):
                agent.initial_stock = start
                returns = evaluate.play(agent, env, games, 0.0, self.factors, seed).learned
                value, c = agent.utility.oce(returns)
                error = agent.utility.f(c + returns).std() / math.sqrt(games)
                worth.append((value - PESSIMISM * error, c))
        finally:
            env.close()
        low, high = agent.candidates.range()
        agent.initial_stock = min(max(max(worth)[1], low), high)

    def branch(self, batch: Batch) -> None:
        """Put several next states of each transition in the place of the one that happened."""
        n = self.config.train.branches
        if n == 1:
            return
        seen, frames = batch.observation, self.replay.frames
        branch = self.env.branch  # type: ignore[attr-defined]  # some environments can
        after, batch.reward, batch.terminated = branch(
            seen.cpu().numpy(), batch.t, batch.action, n, self.sampling
        )
        batch.observation_next = torch.from_numpy(after).to(frames.device)

    def evaluate(
        self, episodes: int, seed: np.random.SeedSequence, stop: Callable[[], int | None]
    ) -> evaluate.Games:
        """Play whole games in an environment of their own."""
        # what is stepped by the thousand in training is played by the thousand
        at_most = max(evaluate.MAX_COPIES, self.config.env.num_envs)
        env = self.config.env.make(evaluate.copies(episodes, at_most), evaluation=True)
        epsilon = self.config.evaluate.epsilon
        try:
            return evaluate.play(self.agent, env, episodes, epsilon, self.factors, seed, stop)
        finally:
            env.close()


def _edge(agent: Agent) -> str:
    """Return the line for an initial stock at an end of its grid."""
    low, high = agent.candidates.range()
    return (
        f"initial stock {agent.initial_stock:.4g} is an end of its grid [{low:.4g}, {high:.4g}]; "
        "if it stays there, widen outer.low or outer.high"
    )
