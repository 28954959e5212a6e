"""Episodes that the policy of a run plays for an evaluation: who, under which protocol, and how."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rigor
from rigor.config import Config
from rigor.envs.atari import Atari
from rigor.envs.vector import Step, VectorEnv
from rigor.errors import UserError
from rigor.exact.policy import TablePolicy
from rigor.learning import evaluate
from rigor.learning.evaluate import Games, Player
from rigor.learning.explore import epsilon_greedy

if TYPE_CHECKING:
    from rigor.load import Run

# The word "rigor": no run draws its seeds from an entropy that begins with it, so no training game
# is played again here. Every agent is evaluated on the same seeds.
OWN_SEEDS = int.from_bytes(b"rigor")
SMALL = 8  # numbers in an observation that is kept at every step


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    episodes: whole games. seed: of the evaluation. video: whether to film an episode.
    epsilon, sticky, noops: None takes the run's own.
    """

    episodes: int = 100
    seed: int = 0
    video: bool = False
    epsilon: float | None = None
    sticky: float | None = None
    noops: int | None = None


@dataclass
class Tabled:
    """The exact policy of a run as a `Player`. mass: d̃_t of its own discount, [max_time + 2]."""

    policy: TablePolicy
    mass: np.ndarray

    @property
    def initial_stock(self) -> float:
        """c₀, raw reward units."""
        return self.policy.initial_stock

    @property
    def learned_reward(self) -> Callable[[np.ndarray], np.ndarray]:
        """Nothing is clipped or scaled."""
        return lambda reward: reward

    def act(
        self,
        observation: np.ndarray,
        t: np.ndarray,
        stock: np.ndarray,
        epsilon: float,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return ε-greedy actions, int64 [E]."""
        n_actions = self.policy.model.n_actions
        return epsilon_greedy(
            lambda: self.policy(observation, t, stock), len(t), n_actions, epsilon, rng
        )

    def next_stock(self, total: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        return self.policy.next_stock(total, t, reward)


@dataclass
class Subject:
    """Who plays, and how.

    run, config: as loaded. env: the schema of the environment under the protocol. player: the
    policy. steps: agent steps that it had learned from, None for an exact one. epsilon: chance of
    a random action.
    """

    run: "Run"
    config: Config
    env: Any
    player: Player
    steps: int | None
    epsilon: float

    def make(self, n_envs: int) -> VectorEnv:
        """Return n_envs copies that play whole games.

        Where a lost life was terminal (or a reset) in training, it is told as terminal here too,
        though the game goes on: until then the agent's predictions reach.
        """
        if isinstance(self.env, Atari):
            return self.env.make(n_envs, evaluation=False)
        return self.env.make(n_envs, evaluation=True)


def subject(directory: Path, asked: Asked) -> Subject:
    """Load a run's policy and settle the protocol.

    Raises:
      UserError: the directory is no run, it has no policy yet, or the protocol does not fit.
    """
    run = rigor.load(directory)
    config = run.built()
    env = _under_protocol(config, asked)
    loaded = run.policy()
    player: Player
    steps: int | None = None
    if isinstance(loaded, TablePolicy):
        player = Tabled(loaded, config.bundle.mass(np.arange(env.max_time + 2)))
    else:
        loaded.env.close()
        player, steps = loaded.agent, loaded.steps
    epsilon = config.evaluate.epsilon if asked.epsilon is None else asked.epsilon
    return Subject(run, config, env, player, steps, epsilon)


def _under_protocol(config: Config, asked: Asked) -> Any:
    env = config.env
    if isinstance(env, Atari):
        # "terminal" reports a lost life and plays on, as evaluation does
        changes: dict[str, Any] = {
            "life_loss": "ignore" if env.life_loss == "ignore" else "terminal"
        }
        changes |= {"sticky": asked.sticky} if asked.sticky is not None else {}
        changes |= {"noop_max": asked.noops} if asked.noops is not None else {}
        try:
            return dataclasses.replace(env, **changes)
        except ValueError as error:  # the schema names its key and the range
            raise UserError(str(error)) from error
    for flag, value in (("sticky", asked.sticky), ("noops", asked.noops)):
        if value is not None:
            raise UserError(
                f"--{flag} {value}: belongs to Atari games, and this run's environment is "
                f"{type(env).__name__}; leave it out"
            )
    return env


def protocol(one: Subject, asked: Asked) -> dict[str, Any]:
    """Return the protocol by its parts, for `eval.json`; docs/protocol.md explains each."""
    parts: dict[str, Any] = {
        "episodes": asked.episodes,
        "seed": asked.seed,
        "epsilon": one.epsilon,
        "initial_stock": one.player.initial_stock,
    }
    if isinstance(one.env, Atari):
        keys = ("sticky", "noop_max", "fire_reset", "full_actions", "frame_skip", "max_frames")
        parts |= {key: getattr(one.env, key) for key in keys}
        parts["life_loss_in_training"] = one.config.env.life_loss
    return parts


def sentence(one: Subject, asked: Asked) -> str:
    """Return the protocol as one sentence."""
    parts = [
        f"{asked.episodes} whole games with seeds of their own (seed {asked.seed})",
        f"a random action with chance {one.epsilon:g}" if one.epsilon else "greedy actions",
    ]
    if isinstance(env := one.env, Atari):
        parts += [
            f"sticky actions {env.sticky:g}" if env.sticky else "no sticky actions",
            f"fewer than {env.noop_max} no-ops at the start" if env.noop_max else "no no-ops",
            f"games cut at {env.max_frames:,} frames",
        ]
    return ", ".join([*parts, "raw scores"])


@dataclass
class Episode:
    """One whole game of L agent steps.

    start: the first observation [*shape]. seen: all observations [L, *shape] where they are small,
    else None. actions: int64 [L]. reward: raw, [L]. terminated: where the bootstrap is cut, bool
    [L]. truncated: whether the game was cut short.
    """

    start: np.ndarray
    seen: np.ndarray | None
    actions: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: bool

    @property
    def until(self) -> int:
        """How many steps the agent's prediction at the start reaches."""
        cuts = np.flatnonzero(self.terminated)
        return int(cuts[0]) + 1 if len(cuts) else len(self.reward)


@dataclass
class Recorder:
    """Writes down what `evaluate.play` shows it; `episodes` are in the order of its games."""

    quota: np.ndarray
    tell: Callable[[int, int], None]
    episodes: list[Episode] = field(default_factory=list)
    steps: int = 0
    _running: list[list[tuple[Any, ...]]] = field(default_factory=list)
    _starts: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.quota = self.quota.copy()
        self._running = [[] for _ in self.quota]
        self._starts = [np.zeros(0) for _ in self.quota]

    def __call__(self, observation: np.ndarray, actions: np.ndarray, step: Step) -> None:
        """Take one call; a copy that has played its share is not listened to."""
        small = observation[0].size <= SMALL
        for i in np.flatnonzero((self.quota > 0) & ~step.dummy).tolist():
            running = self._running[i]
            if not running:
                self._starts[i] = observation[i].copy()
            seen = observation[i].copy() if small else None
            running.append((seen, actions[i], step.reward[i], step.terminated[i]))
            self.steps += 1
            if step.episode_end[i]:
                self.quota[i] -= 1
                self._end(i)
        self.tell(len(self.episodes), self.steps)

    def _end(self, i: int) -> None:
        seen, actions, reward, terminated = zip(*self._running[i], strict=True)
        self.episodes.append(
            Episode(
                start=self._starts[i],
                seen=None if seen[0] is None else np.stack(seen),
                actions=np.array(actions),
                reward=np.array(reward),
                terminated=np.array(terminated),
                truncated=not terminated[-1],
            )
        )
        self._running[i] = []


def play(
    one: Subject, asked: Asked, tell: Callable[[int, int], None]
) -> tuple[Games, list[Episode]]:
    """Play whole games, and return what each gave and how it went.

    Args:
      tell: called with the games and the agent steps played so far.
    """
    n_envs = evaluate.copies(asked.episodes)
    env = one.make(n_envs)
    factors = one.config.discount.factor(np.arange(env.max_time + 1))
    recorder = Recorder(evaluate.shares(asked.episodes, n_envs), tell)
    seed, _ = np.random.SeedSequence([OWN_SEEDS, asked.seed]).spawn(2)
    try:
        games = evaluate.play(
            one.player, env, asked.episodes, one.epsilon, factors, seed, watch=recorder
        )
    finally:
        env.close()
    return games, recorder.episodes
