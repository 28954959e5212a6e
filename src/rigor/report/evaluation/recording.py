"""Episodes that a policy plays for an evaluation, recorded step by step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rigor.envs.vector import Step
from rigor.learning.rollout import Episodes, copies_for, episodes_per_copy, play_episodes
from rigor.report.evaluation.protocol import EvaluatedPolicy, EvaluationRequest

# The word "rigor" starts the entropy of every evaluation. No run draws its seeds from such an
# entropy, so no training episode is repeated. All agents are evaluated on the same seeds.
SEED_PREFIX = int.from_bytes(b"rigor")
SMALL = 8
"""The largest size of an observation that is recorded at every step, in numbers."""


@dataclass
class RecordedEpisode:
    """A whole episode of L agent steps.

    Attributes:
      start: the first observation, [*shape].
      observations: of all steps, [L, *shape], or None if they are larger than `SMALL`.
      actions: int64 [L]. reward: raw, [L].
      terminated: where the bootstrap ends, bool [L].
      truncated: whether the episode was cut at its limit of steps.
    """

    start: np.ndarray
    observations: np.ndarray | None
    actions: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: bool

    @property
    def predicted_steps(self) -> int:
        """The number of steps that the agent's prediction at the start covers."""
        ends = np.flatnonzero(self.terminated)
        return int(ends[0]) + 1 if len(ends) else len(self.reward)


Progress = Callable[[int, int, int], None]
"""Told the number of episodes played so far, of all that are to be played, and of agent steps."""


@dataclass
class EpisodeRecorder:
    """Records the steps that `play_episodes` takes, in its order of episodes.

    Attributes:
      remaining: episodes that each copy of the environment still has to play, [E].
      progress: called with the numbers of episodes and of agent steps recorded so far.
      episodes: the finished episodes. steps: the number of agent steps so far.
    """

    remaining: np.ndarray
    progress: Callable[[int, int], None]
    episodes: list[RecordedEpisode] = field(default_factory=list)
    steps: int = 0
    _running: list[list[tuple[Any, ...]]] = field(default_factory=list)
    _starts: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.remaining = self.remaining.copy()
        self._running = [[] for _ in self.remaining]
        self._starts = [np.zeros(0) for _ in self.remaining]

    def __call__(self, observation: np.ndarray, actions: np.ndarray, step: Step) -> None:
        """Record a step of the copies that still have episodes to play."""
        is_small = observation[0].size <= SMALL
        for i in np.flatnonzero((self.remaining > 0) & ~step.dummy).tolist():
            if not self._running[i]:
                self._starts[i] = observation[i].copy()
            seen = observation[i].copy() if is_small else None
            self._running[i].append((seen, actions[i], step.reward[i], step.terminated[i]))
            self.steps += 1
            if step.episode_end[i]:
                self._finish(i)
        self.progress(len(self.episodes), self.steps)

    def _finish(self, i: int) -> None:
        seen, actions, reward, terminated = zip(*self._running[i], strict=True)
        self.episodes.append(
            RecordedEpisode(
                start=self._starts[i],
                observations=None if seen[0] is None else np.stack(seen),
                actions=np.array(actions),
                reward=np.array(reward),
                terminated=np.array(terminated),
                truncated=not terminated[-1],
            )
        )
        self._running[i] = []
        self.remaining[i] -= 1


def record_episodes(
    policy: EvaluatedPolicy, request: EvaluationRequest, progress: Progress
) -> tuple[Episodes, list[RecordedEpisode]]:
    """Play whole episodes, and return their sums and their recordings.

    Args:
      progress: called while it plays.
    """
    n_envs = copies_for(request.episodes)
    env = policy.make(n_envs)
    factors = policy.config.discount.factor(np.arange(env.max_time + 1))

    def recorded(episodes: int, steps: int) -> None:
        progress(episodes, request.episodes, steps)

    recorder = EpisodeRecorder(episodes_per_copy(request.episodes, n_envs), recorded)
    seed, _ = np.random.SeedSequence([SEED_PREFIX, request.seed]).spawn(2)
    try:
        episodes = play_episodes(
            policy.player,
            env,
            request.episodes,
            policy.epsilon,
            factors,
            seed,
            watch=recorder,
            name=policy.config.env_name,
        )
    finally:
        env.close()
    return episodes, recorder.episodes
