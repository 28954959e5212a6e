"""The policy of a run, and the protocol under which an evaluation plays it."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rigor.config.config import Config
from rigor.envs.atari import Atari
from rigor.envs.minatar import MinAtar
from rigor.envs.vector import VectorEnv
from rigor.errors import UserError
from rigor.exact.table_policy import TablePolicy
from rigor.learning.agent import Agent
from rigor.learning.rollout import Player, epsilon_greedy
from rigor.report.data import runs
from rigor.report.data.load import Run, load
from rigor.runs.directory import RunDirectory
from rigor.runs.disk import disk_errors
from rigor.runs.lock import Lock


@dataclass(frozen=True)
class EvaluationRequest:
    """The arguments of `rigor-eval`.

    Attributes:
      episodes: number of whole episodes. seed: of the evaluation.
      video: whether to record one more episode as a video.
      epsilon, sticky, noops: of the protocol; None keeps the run's own value.
    """

    episodes: int = 100
    seed: int = 0
    video: bool = False
    epsilon: float | None = None
    sticky: float | None = None
    noops: int | None = None


@dataclass
class TablePlayer:
    """The exact policy of a run as a `Player`.

    Attributes:
      discount: d̃_t of the agent's own discount, [max_time + 2].
    """

    policy: TablePolicy
    discount: np.ndarray

    @property
    def initial_stock(self) -> float:
        """c₀, raw reward units."""
        return self.policy.initial_stock

    @property
    def learner_reward(self) -> Callable[[np.ndarray], np.ndarray]:
        """The identity: an exact agent plans with raw rewards."""
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

    def next_stock(self, stock: np.ndarray, t: np.ndarray, reward: np.ndarray) -> np.ndarray:
        """Return S_{t+1} [E] after raw rewards [E] at times t [E]."""
        return self.policy.next_stock(stock, t, reward)


@dataclass
class EvaluatedPolicy:
    """The policy of a run, and the environment in which it is evaluated.

    Attributes:
      run, config: as loaded.
      env: the schema of the environment under the protocol.
      player: the policy. agent: the learned agent, None for an exact one.
      steps: agent steps of training before the checkpoint, None for an exact agent.
      epsilon: probability of a random action.
    """

    run: Run
    config: Config
    env: Any
    player: Player
    agent: Agent | None
    steps: int | None
    epsilon: float

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return self.run.path.resolve().name

    @property
    def title(self) -> str:
        """The name of the run, and how long it has learned."""
        when = "exact policy" if self.steps is None else f"after {self.steps:,} agent steps"
        return f"{RunDirectory(self.run.path).name()}, {when}"

    @property
    def has_video(self) -> bool:
        """Whether the environment has frames and the agent predicts returns at every step."""
        return hasattr(self.env, "video_env") and self.agent is not None

    def make(self, n_envs: int) -> VectorEnv:
        """Return n_envs copies that play whole episodes.

        The agent's predictions end at a lost life if a lost life was terminal (or a reset) in
        training. The copies then report a lost life as terminal, although the game goes on.
        """
        return self.env.make(n_envs, evaluation=_atari(self.env) is None)


def load_policy(directory: Path, request: EvaluationRequest) -> EvaluatedPolicy:
    """Load the policy of a run, and apply the requested protocol to its environment.

    Raises:
      UserError: the directory is no run, it has no policy yet, or the protocol does not fit.
    """
    run = load(directory)
    config = run.built()
    env = _under_protocol(run, config, request)
    epsilon = config.evaluate.epsilon if request.epsilon is None else request.epsilon
    policy = run.policy()
    if isinstance(policy, TablePolicy):
        player = TablePlayer(policy, config.bundle.discount(np.arange(env.max_time + 2)))
        return EvaluatedPolicy(run, config, env, player, None, None, epsilon)
    policy.env.close()
    return EvaluatedPolicy(run, config, env, policy.agent, policy.agent, policy.steps, epsilon)


def place_name(
    policy: EvaluatedPolicy, request: EvaluationRequest, levels: Sequence[float] = ()
) -> str:
    """Return a directory's name such as `step_200-episodes_100-seed_0-epsilon_0.05`."""
    parts = ["exact" if policy.steps is None else f"step_{policy.steps}"]
    parts += [f"episodes_{request.episodes}", f"seed_{request.seed}"]
    atari = _atari(policy.config.env)
    for key, requested, own in (
        ("epsilon", request.epsilon, policy.config.evaluate.epsilon),
        ("sticky", request.sticky, atari and atari.sticky),
        ("noops", request.noops, atari and atari.noop_max),
    ):
        if requested is not None and requested != own:
            parts.append(f"{key}_{requested:g}")
    if levels:
        parts.append("_".join(["levels", *(f"{level:g}" for level in levels)]))
    return "-".join(parts)


@contextmanager
def locked_place(
    policy: EvaluatedPolicy,
    request: EvaluationRequest,
    out: Path | None,
    levels: Sequence[float] = (),
) -> Iterator[Path]:
    """Make the directory of an evaluation's results, and hold its lock.

    Args:
      policy, request, levels: name the directory.
      out: where it lies; None for `evaluation` in the run's directory.

    Raises:
      UserError: another evaluation writes there, or the place cannot be written.
    """
    above = out / policy.name if out else policy.run.path / "evaluation"
    place = above / place_name(policy, request, levels)
    with disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
    lock = Lock(place)
    if lock.is_held():
        raise UserError(f"{place}: another rigor-eval writes there; wait for it, or use --out DIR")
    lock.acquire()
    try:
        yield place
    finally:
        lock.release()


def protocol(policy: EvaluatedPolicy, request: EvaluationRequest) -> dict[str, Any]:
    """Return the protocol by its parts, for `eval.json`; docs/protocol.md explains each part."""
    parts: dict[str, Any] = {
        "episodes": request.episodes,
        "seed": request.seed,
        "epsilon": policy.epsilon,
        "initial_stock": policy.player.initial_stock,
    }
    if atari := _atari(policy.env):
        keys = ("sticky", "noop_max", "fire_reset", "full_actions", "frame_skip", "max_frames")
        parts |= {key: getattr(atari, key) for key in keys}
        parts["life_loss_in_training"] = policy.config.env.life_loss
    if isinstance(policy.env, MinAtar):
        parts |= {key: getattr(policy.env, key) for key in ("sticky", "full_actions", "max_steps")}
    return parts


def sentence(policy: EvaluatedPolicy, request: EvaluationRequest) -> str:
    """Return the protocol as one sentence."""
    epsilon = policy.epsilon
    parts = [
        f"{request.episodes} whole episodes with seeds of their own (seed {request.seed})",
        f"a random action with probability {epsilon:g}" if epsilon else "greedy actions",
    ]
    if atari := _atari(policy.env):
        parts += [
            f"sticky actions {atari.sticky:g}" if atari.sticky else "no sticky actions",
            f"fewer than {atari.noop_max} no-ops at the start" if atari.noop_max else "no no-ops",
            f"games cut at {atari.max_frames:,} frames",
        ]
    if isinstance(policy.env, MinAtar):
        parts += [
            f"sticky actions {policy.env.sticky:g}" if policy.env.sticky else "no sticky actions",
            f"games cut at {policy.env.max_steps:,} steps",
        ]
    return ", ".join([*parts, "raw scores"])


def env_option(run: Run) -> str:
    """Return the option of `env=` that a run has."""
    recorded = run.config.get("choices")
    return str((recorded or {}).get("env") or runs.load(run.path).choices["env"])


def _atari(env: Any) -> Atari | None:
    return env if isinstance(env, Atari) else None


def _under_protocol(run: Run, config: Config, request: EvaluationRequest) -> Any:
    """Return the environment with the requested protocol."""
    atari = _atari(config.env)
    if atari is None:
        for flag, value in (("sticky", request.sticky), ("noops", request.noops)):
            if value is not None:
                raise UserError(
                    f"--{flag} {value}: belongs to Atari games, and this run has "
                    f"env={env_option(run)}; leave it out"
                )
        return config.env
    # "terminal" reports a lost life and plays on, as an evaluation does.
    changes: dict[str, Any] = {"life_loss": "ignore" if atari.life_loss == "ignore" else "terminal"}
    changes |= {"sticky": request.sticky} if request.sticky is not None else {}
    changes |= {"noop_max": request.noops} if request.noops is not None else {}
    try:
        return dataclasses.replace(atari, **changes)
    except ValueError as error:  # names the key and its range
        raise UserError(str(error)) from error
