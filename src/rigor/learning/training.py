"""The parts of a learning run, and its state: everything that a checkpoint holds."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rigor.config.config import Config
from rigor.config.custom_classes import check_copies
from rigor.config.schemas import TrainReplay
from rigor.config.validate import is_ours
from rigor.envs.vector import Step, VectorEnv, check_observation, check_step
from rigor.errors import Stopped, UserError
from rigor.learning import checkpoint
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state, restore_agent
from rigor.learning.replay import Batch
from rigor.learning.replay_memory import ReplayMemory
from rigor.learning.rollout import MAX_COPIES, Episodes, copies_for, play_episodes
from rigor.learning.schedule import every
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import disk_errors
from rigor.runs.provenance import changes, source

STREAMS = (
    "network",
    "environment",
    "exploration",
    "replay",
    "evaluation",
    "final_evaluation",
    "outer",
)
"""The users of random numbers in a run; each has its own stream, spawned from `seed`."""


PESSIMISM = 2.0  # standard errors by which the value of an initial stock in rollouts is lowered


@dataclass
class State:
    """Counters, clocks, stocks and sums of the E environments.

    steps: agent steps. steps_learned: those whose updates are done. steps_logged: those at the
    last check for a row of metrics.
    t: int64 [E]. stock, stock_start: S_t and S_0, float64 [E].
    score, length: of the running episodes, [E]. starts: initial observations [K, *shape].
    ended: (score, length) of the episodes since the last row of metrics. updates_logged: updates
    before that row. updates_searched: updates before the last search for c₀ that updates made due.
    steps_searched: agent steps before the last search for c₀. search_steps: agent steps of the
    episodes that confirmed initial stocks.
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
    updates_logged: int = 0
    updates_searched: int = 0
    steps_searched: int = -1
    steps_learned: int = 0
    steps_logged: int = 0
    search_steps: int = 0
    seconds: float = 0.0
    ended: list[tuple[float, int]] = field(default_factory=list)

    def shown(self) -> dict[str, float]:
        """Return the progress bar's number: the mean score of the episodes since the last row."""
        if not self.ended:
            return {}
        return {"training score": float(np.mean([score for score, _ in self.ended[-10:]]))}


class Training:
    """Environment, agent, replay and checkpoints of one run.

    Raises:
      UserError: the replay does not fit into memory, or the environment cannot be made.
    """

    def __init__(self, config: Config, run: RunDirectory, device: torch.device) -> None:
        self.config, self.run, train = config, run, config.train
        sequences = np.random.SeedSequence(config.seed).spawn(len(STREAMS))
        self.seeds = dict(zip(STREAMS, sequences, strict=True))
        self.env: VectorEnv = config.env.make(config.env.num_envs, evaluation=False)
        env = self.env
        if not is_ours(config.env):
            check_copies(f"env={config.option('env')}", env)
        self._next_states = env.problem and env.problem.next_states
        self.checkpoint_every = min(train.checkpoint_every, every(0.1, train.schedule_steps))
        self.memory: ReplayMemory | None = None
        if isinstance(train, TrainReplay):
            if train.next_state_samples > 1 and self._next_states is None:
                raise UserError(
                    f"train.next_state_samples={train.next_state_samples}: this environment cannot "
                    "sample next states; use train.next_state_samples=1"
                )
            places = run.checkpoints, device, self.checkpoint_every
            self.memory = ReplayMemory(train, env, *places)
        with disk_errors(run.checkpoints):
            run.checkpoints.mkdir(exist_ok=True)
        self._checkpoints = checkpoint.Writer(run.checkpoints)
        self.agent = Agent(config, env, device, int(self.seeds["network"].generate_state(1)[0]))
        self.exploration = np.random.default_rng(self.seeds["exploration"])
        self.sampling = np.random.default_rng(self.seeds["replay"])
        self.factors = config.discount.factor(np.arange(env.max_time + 1))
        self.changed = False  # since the newest checkpoint
        self._seconds_before = 0.0  # of training in former sessions
        self.sources = [{"step": 0, **source()}]

    def start(self, note: Callable[[str], None]) -> State:
        """Return the state of the newest checkpoint that can be read, or a fresh one.

        Raises:
          UserError: the replay's file is gone or cut, or the checkpoint is of another run; nothing
            has been removed.
        """
        self._started = time.perf_counter()
        paths = checkpoint.checkpoints(self.run.checkpoints)
        for path in reversed(paths):
            try:
                with disk_errors(path):
                    saved = checkpoint.load(path)
            except checkpoint.CorruptCheckpoint as error:
                note(f"{path.name} cannot be used ({error}); trying the one before it")
                checkpoint.discard(path)
                continue
            with checkpoint.fitting(path):
                try:
                    if self.memory is not None:
                        self.memory.read(saved["replay_rows"], saved.get("replay_block"))
                except checkpoint.CorruptCheckpoint as error:
                    if saved["state"]["steps"] < self.config.train.steps:
                        raise UserError(
                            f"{error}; no checkpoint resumes without its replay: put the file "
                            f"back, or move {self.run.path} away to train from the start"
                        ) from error
                return self._restored(saved, note)
        if paths:
            note("no checkpoint can be used; training again from the start")
        env = self.env
        observation = env.reset(self.seeds["environment"])
        check_observation(self.config.env_name, np.zeros(env.n_envs, np.int64), observation)
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

    def step(self, state: State, actions: np.ndarray) -> Step:
        """Take a step in every copy of the environment; actions int64 [E].

        Raises:
          UserError: a reward or an observation is not finite.
        """
        step = self.env.step(actions)
        check_step(self.config.env_name, state.t, step)
        return step

    def advance(self, state: State, step: Step, initial_stock: np.ndarray) -> None:
        """Advance clocks, stocks and sums by one step; an autoreset sets them back.

        Args:
          state: as it was before the step; changed. step: of the environment.
          initial_stock: with which an episode would start, float64 [E].
        """
        agent, counts = self.agent, ~step.dummy
        state.steps += int(counts.sum())
        reward = agent.learner_reward(step.reward)
        if agent.to_go is not None:
            ends = step.terminated | step.episode_end
            agent.to_go.observe(state.t, reward, counts, ends)
        moved = agent.next_stock(state.stock, state.t, step.reward)
        state.stock = np.where(counts, moved, initial_stock)
        state.stock_start = np.where(counts, state.stock_start, initial_stock)
        state.t = np.where(counts, state.t + 1, 0)
        state.score = np.where(counts, state.score + step.reward, 0.0)
        state.length = np.where(counts, state.length + 1, 0)
        for i in np.flatnonzero(step.episode_end):
            state.ended.append((float(state.score[i]), int(state.length[i])))
            state.episodes += 1
        state.observation = step.observation
        if agent.observations is not None:
            agent.observations.observe(step.observation)
        agent.returns.observe(state.stock - state.stock_start, reward, step.episode_end)
        if agent.utility.needs_stock and step.dummy.any():
            starts = np.concatenate([state.starts, step.observation[step.dummy]])
            state.starts = starts[-self.config.outer.batch :]
        state.seconds = self._seconds_before + time.perf_counter() - self._started
        self.changed = True

    def save(self, state: State, wait: bool = True) -> None:
        """Write a checkpoint: the replay's new rows first, then the state that needs them.

        Args:
          wait: until the disk has it; otherwise it is written in the background.
        """
        self._checkpoints.wait()  # its rows of the replay must not be overwritten
        # first, because it refuses a run that another process has taken over
        self.run.write_status("running", step=state.steps)
        with disk_errors(self.run.checkpoints):
            rows = 0 if self.memory is None else self.memory.write()
        self._checkpoints.start(state.steps, self._tree(state, rows))
        if wait:
            self._checkpoints.wait()
        self.changed = False

    def close(self) -> None:
        """Close the environment, and end what is written in the background."""
        self.env.close()
        self._checkpoints.close()

    def _tree(self, state: State, rows: int) -> dict[str, Any]:
        """Return the contents of a checkpoint that needs `rows` rows of the replay's file."""
        return {
            "state": dict(vars(state)),
            "agent": agent_state(self.agent),
            "replay_rows": rows,
            "replay_block": None if self.memory is None else self.memory.block,
            "sources": self.sources,
            "exploration": self.exploration.bit_generator.state,
            "sampling": self.sampling.bit_generator.state,
            "torch": torch.get_rng_state(),
            "environment": self.env.state(),
        }

    def _restored(self, saved: Mapping[str, Any], note: Callable[[str], None]) -> State:
        """Restore every part to the state of the checkpoint."""
        state = State(**saved["state"])
        self._seconds_before = state.seconds
        shape = (self.env.n_envs, *self.env.observation_shape)
        if state.observation.shape != shape:
            raise ValueError(f"observations of shape {state.observation.shape}, not {shape}")
        state.ended = [(float(score), int(length)) for score, length in state.ended]
        restore_agent(self.agent, saved["agent"])
        self.exploration.bit_generator.state = saved["exploration"]
        self.sampling.bit_generator.state = saved["sampling"]
        torch.set_rng_state(saved["torch"])
        before = saved.get("sources") or []
        if before and (other := changes(before[-1], self.sources[-1])):
            note(f"resumed with other code than that of the steps before: {other}")
            self.sources = [*before, self.sources[-1] | {"step": state.steps}]
        elif before:
            self.sources = before
        copied = saved["environment"]
        restored = copied is not None and self.env.restore(copied) is not None
        if state.steps >= self.config.train.steps:
            note(f"all {state.steps:,} steps are trained; only the final evaluation follows")
            return state
        if restored:
            note(f"resumed at step {state.steps} in the middle of its episodes")
            return state
        # The environment cannot be copied. The running episodes end here, fresh ones follow.
        if self.memory is not None:
            self.memory.end_episodes(state.observation, state.t, state.stock, state.stock_start)
        # Another seed than the first session's, or the same episodes would be played again.
        seed = np.random.SeedSequence([self.config.seed, state.steps])
        state.observation = self.env.reset(seed)
        state.t, state.length = np.zeros_like(state.t), np.zeros_like(state.length)
        state.score = np.zeros_like(state.score)
        state.stock = np.full_like(state.stock, self.agent.initial_stock)
        state.stock_start = state.stock.copy()
        if self.agent.to_go is not None:
            self.agent.to_go.restart()
        note(f"resumed at step {state.steps} with fresh episodes")
        return state

    def choose_initial_stock(
        self, state: State, note: Callable[[str], None], stop: Callable[[], int | None]
    ) -> None:
        """Search for c₀ where the risk needs one, once at a step; note what is wrong with it.

        A repeated search could end elsewhere, as it compares what it finds with the present c₀.

        Raises:
          Stopped: by the signal that `stop` returned during rollouts; c₀ is the previous one.
        """
        agent = self.agent
        if not agent.utility.needs_stock or state.steps_searched == state.steps:
            return
        previous, searched = agent.initial_stock, agent.candidates.state()
        if warning := agent.choose_initial_stock(state.starts):
            note(warning)
        if self.config.outer.rollouts:
            try:
                steps = self._confirm_initial_stock(previous, state.updates, stop)
            except Stopped:
                agent.initial_stock = previous
                agent.candidates.restore(searched)
                raise
            state.search_steps += steps
        state.steps_searched, self.changed = state.steps, True

    def _confirm_initial_stock(
        self, previous: float, updates: int, stop: Callable[[], int | None] = lambda: None
    ) -> int:
        """Play from the c₀ found and from the previous one; set c₀ to the best c of the better.

        Both play the same random episodes. Returns the number of agent steps.

        Returns are compared by the lower end of a confidence interval. Over many searches, a bad c₀
        would eventually win by chance, because a rare failure weighs 1/τ times as much.
        """
        n, agent = self.config.outer.rollouts, self.agent
        found = agent.initial_stock
        env = self.config.env.make(min(n, self.env.n_envs), evaluation=True)
        key = (STREAMS.index("outer"), updates)
        seed = np.random.SeedSequence(self.config.seed, spawn_key=key)
        candidates, steps = [], 0  # (lower end of the OCE of the returns, their best c)
        try:
            for start in dict.fromkeys((found, previous)):
                agent.initial_stock = start
                episodes = play_episodes(
                    agent, env, n, 0.0, self.factors, seed, stop, name=self.config.env_name
                )
                returns, steps = episodes.learner, steps + int(episodes.length.sum())
                value, c = agent.utility.oce(returns)
                error = agent.utility.f(c + returns).std() / math.sqrt(n)
                candidates.append((value - PESSIMISM * error, c))
        finally:
            env.close()
        agent.initial_stock = float(np.clip(max(candidates)[1], *agent.candidates.limits()))
        return steps

    def sample_next_states(self, batch: Batch) -> None:
        """Replace the next state of each transition by `train.next_state_samples` sampled ones."""
        n = self.config.train.next_state_samples
        if n == 1 or self._next_states is None:
            return
        device = batch.observation.device
        observation = batch.observation.cpu().numpy()
        sampled, reward, terminated = self._next_states(
            observation, batch.t, batch.action, n, self.sampling
        )
        batch.reward, batch.terminated = reward[None], terminated[None]
        batch.length = np.ones(len(reward), np.int64)
        batch.observation_next = torch.from_numpy(sampled).to(device)

    def evaluate(
        self, episodes: int, seed: np.random.SeedSequence, stop: Callable[[], int | None]
    ) -> Episodes:
        """Play whole episodes in an environment of their own."""
        # A problem that is stepped by the thousand in training is also evaluated by the thousand.
        at_most = max(MAX_COPIES, self.config.env.num_envs)
        env = self.config.env.make(copies_for(episodes, at_most), evaluation=True)
        epsilon = self.config.evaluate.epsilon
        try:
            return play_episodes(
                self.agent,
                env,
                episodes,
                epsilon,
                self.factors,
                seed,
                stop,
                name=self.config.env_name,
            )
        finally:
            env.close()
