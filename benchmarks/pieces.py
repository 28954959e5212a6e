"""The pieces of a training step, each in rigor's way and in others'."""

from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from single_file import SingleFile
from single_file_parallel import SingleFileParallel
from timing import Samples, interleaved

import hydra_plugins.rigor.sweeper  # noqa: F401  registers what conf/ names
from rigor.config import config
from rigor.learning import fast_loss
from rigor.learning.agent import Agent
from rigor.learning.compiled_loss import compiled_sum_over_pairs
from rigor.learning.layers import scale_pixels
from rigor.learning.parallel import Rollouts
from rigor.learning.replay import Batch, Transitions
from rigor.maths import quantile
from rigor.runs.job import Job, job

CPU = torch.device("cpu")
CASES = {
    "4x10x50": ["agent=multihorizon", "agent.quantiles=50"],
    "4x10x1": ["agent=multihorizon", "agent.quantiles=1", "train.huber=inf"],
    "18x10x200": ["agent=multihorizon", "agent.quantiles=200", "env.full_actions=true"],
    "4x1x200": ["agent=singlehorizon", "agent.quantiles=200"],
}
"""Actions × horizons × quantiles, and the overrides that make them on Breakout."""

BATCH = 32


def compose(*overrides: str) -> Job:
    """Return the job of `rigor-train` on Breakout; learner=replay unless another is named."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module

    config.register()
    named = any(override.startswith("learner=") for override in overrides)
    learner = [] if named else ["learner=replay"]
    with initialize_config_module("rigor.conf", version_base="1.3"):
        composed = hydra_compose(
            "train", ["env=atari/breakout", *learner, *overrides], return_hydra_config=True
        )
    return job(composed, OmegaConf.to_container(composed.hydra.runtime.choices))


def make_agent(case: str, *overrides: str) -> tuple[Job, Agent, Any]:
    """Return a job, its agent and its games, 8 copies."""
    one = compose(*CASES[case], *overrides)
    games = one.config.env.make(8, evaluation=False)
    return one, Agent(one.config, games, CPU, seed=0), games


def make_peer(agent: Agent, games: Any) -> SingleFile:
    """Return the single-file peer of an agent, with the agent's weights."""
    train = agent.config.train
    peer = SingleFile(
        games,
        agent.online.head.shape,
        agent.values._step_factors.astype(np.float32),
        agent.values._weights.float().numpy(),
        train.huber,
        train.learning_rate,
        train.adam_eps,
    )
    for there, here in ((peer.online, agent.online), (peer.target, agent.target)):
        pairs = zip(there.parameters(), here.parameters(), strict=True)
        for left, right in pairs:
            left.data.copy_(right.data.view_as(left))  # of t, one [64, 1] and the other [1, 64]
    return peer


def make_parallel(case: str, *overrides: str) -> tuple[Rollouts, SingleFileParallel]:
    """Return rigor's rollouts and the single-file peer, with equal weights and games."""
    one = compose(*CASES[case], "learner=parallel", *overrides)
    env, train = one.config.env, one.config.train
    games = env.make(env.num_envs, evaluation=False)
    agent = Agent(one.config, games, CPU, seed=0)
    peer = SingleFileParallel(
        games,
        agent.online.head.shape,
        agent.values._step_factors.astype(np.float32),
        agent.values._weights.float().numpy(),
        train.huber,
        train.learning_rate,
        train.trace_decay,
        train.max_grad_norm,
        train.rollout_steps,
        train.epochs,
        train.batch_size,
    )
    pairs = zip(peer.net.parameters(), agent.online.parameters(), strict=True)
    for left, right in pairs:
        left.data.copy_(right.data.view_as(left))
    return Rollouts(agent, games, train), peer


def parallel_differences(case: str) -> tuple[float, float]:
    """Return the largest differences of targets and of a loss, relative to the largest value.

    The peer plays a rollout; rigor predicts at its states, and both compute the targets of it.
    """
    rollouts, peer = make_parallel(case, "env.num_envs=16", "train.rollout_steps=8")
    peer.play()
    rows, zeros = rollouts.rows, np.zeros(peer.games.n_envs)
    for k in range(peer.n_steps):
        rollouts.predict(k, peer.obs[k].numpy(), peer.times[k].numpy(), zeros)
    rollouts.predict(peer.n_steps, peer.now, peer.t, zeros)
    rows.action[:], rows.reward[:] = peer.actions.numpy(), peer.rewards.numpy()
    rows.terminated[:], rows.valid[:] = peer.dones.numpy() > 0, peer.valid.numpy()
    there = peer.targets(np.random.default_rng(0))
    here = rollouts.targets(np.random.default_rng(0))
    targets = float((here - there)[peer.valid].abs().max() / there.abs().max())
    batch = torch.nonzero(peer.valid.flatten()).squeeze(1)[:BATCH]
    columns = peer.obs.flatten(0, 1), peer.times.flatten(), peer.actions.flatten()
    observation, t, action = (column[batch] for column in columns)
    y, agent = there.flatten(0, 1)[batch], rollouts.agent
    theirs = peer.loss(observation, t, action, y).item()
    hidden = agent.online.hidden(scale_pixels(observation), t, torch.zeros(BATCH))
    ours = agent.values.loss(agent.online.head.of_actions(hidden, action), y).item()
    peer.games.close()
    return targets, abs(ours - theirs) / abs(theirs)


def random_batch(n_actions: int) -> Batch:
    """Return a batch of noise."""
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.integers(0, 256, (BATCH, 5, 84, 84), dtype=np.uint8))
    return Batch(
        frames[:, :-1],
        frames[:, 1:],
        t=rng.integers(0, 1000, BATCH),
        stock=np.zeros(BATCH),
        stock_start=np.zeros(BATCH),
        action=rng.integers(0, n_actions, BATCH),
        reward=rng.choice([-1.0, 0.0, 1.0], (1, BATCH)),
        terminated=rng.random((1, BATCH)) < 0.05,
        length=np.ones(BATCH, np.int64),
    )


def for_peer(batch: Batch) -> list[torch.Tensor]:
    """Return a batch as the peer takes it."""
    numbers = (batch.t, batch.action, batch.reward[0].astype(np.float32))
    return [
        batch.observation.contiguous(),
        batch.observation_next.contiguous(),
        *map(torch.tensor, numbers),
        torch.tensor(batch.terminated[0].astype(np.float32)),
    ]


def losses_agree(agent: Agent, peer: SingleFile) -> float:
    """Return the relative difference of the two losses of one batch."""
    batch = random_batch(agent.online.head.shape[0])
    transitions = Transitions(*map(torch.as_tensor, agent.transitions(batch)))
    here, there = agent.loss(transitions).item(), peer.loss(*for_peer(batch)).item()
    return abs(here - there) / abs(there)


def loss(repeats: int) -> dict[str, Samples]:
    """Time the loss forward and backward: our two kernels, and two usual ways."""
    found = {}
    for n_horizons, n in ((10, 200), (1, 200), (10, 50)):
        torch.manual_seed(0)
        x = torch.randn(BATCH, n_horizons, n, requires_grad=True)
        y = torch.randn(BATCH, n_horizons, n)
        tau = torch.tensor(quantile.levels(n), dtype=torch.float32)

        def ours(kernel: fast_loss.SumOverPairs, x=x, y=y, tau=tau) -> None:
            x.grad = None
            fast_loss.fast_quantile_huber_loss(x, y, tau, 0.1, "qr_dqn", kernel).backward()

        def pairwise(x=x, y=y, tau=tau) -> None:
            x.grad = None
            u = y.unsqueeze(2) - x.unsqueeze(3)
            huber = torch.where(u.abs() <= 0.1, 0.5 * u.pow(2), 0.1 * (u.abs() - 0.05))
            weight = torch.abs(tau.view(1, 1, -1, 1) - (u.detach() < 0).float())
            (weight * huber).mean(3).sum(2).mean().backward()

        def smooth_l1(x=x, y=y, tau=tau) -> None:
            x.grad = None
            left, right = torch.broadcast_tensors(x.unsqueeze(3), y.unsqueeze(2))
            huber = torch.nn.functional.smooth_l1_loss(left, right, reduction="none", beta=0.1)
            weight = torch.abs(tau.view(1, 1, -1, 1) - (right < left).float())
            (0.1 * weight * huber).mean(3).sum(2).mean().backward()

        compiled = compiled_sum_over_pairs(BATCH * n_horizons, n, tau, 0.1)
        found[f"loss {BATCH}x{n_horizons}x{n}"] = interleaved(
            {
                "compiled": lambda ours=ours, kernel=compiled: ours(kernel),
                "all pairs": lambda ours=ours: ours(fast_loss.sum_over_pairs),
                "eager pairwise": pairwise,
                "smooth_l1 style": smooth_l1,
            },
            repeats,
        )
    return found


def network(case: str, repeats: int) -> dict[str, Samples]:
    """Time trunk, head, acting, optimiser and whole update of one case."""
    _, agent, games = make_agent(case)
    _, half, _ = make_agent(case, "train.precision=bf16")
    peer = make_peer(agent, games)
    difference = losses_agree(agent, peer)
    assert difference < 1e-4, f"{case}: the peer's loss differs by {difference:.2g}"
    for one in (agent, half):
        one.values.compile_loss(lambda line: None, BATCH, 1, 1e9)  # as a run of this length does
    net, n_actions = agent.online, agent.online.head.shape[0]
    batch = random_batch(n_actions)
    action, t = torch.from_numpy(batch.action), torch.from_numpy(batch.t)
    frames, stock = scale_pixels(batch.observation), torch.zeros(BATCH)
    theirs = for_peer(batch)
    hidden = torch.randn(BATCH, net.head.linear.in_features, requires_grad=True)

    def trunk() -> None:
        net.zero_grad(set_to_none=True)
        net.hidden(frames, t, stock).sum().backward()

    @torch.no_grad()
    def forward() -> None:
        net.hidden(frames, t, stock)

    def usual() -> None:
        peer.online.zero_grad(set_to_none=True)
        peer.online.hidden(theirs[0], t).sum().backward()

    def taken() -> None:
        net.zero_grad(set_to_none=True)
        net.head.of_actions(hidden, action).sum().backward()

    def whole() -> None:
        net.zero_grad(set_to_none=True)
        net.head(hidden)[torch.arange(BATCH), action].sum().backward()

    found = {
        f"trunk {case}": interleaved(
            {"forward+backward": trunk, "forward": forward, "single file": usual}, repeats
        ),
        f"head of the action taken {case}": interleaved(
            {"rigor": taken, "full head": whole}, repeats
        ),
    }
    weights = agent.values._weights[t[:1]].float()
    for n in (1, 8):
        few = hidden[:n].detach()
        agent.online.head.means(few)

        @torch.no_grad()
        def collapsed(few=few) -> None:
            (net.head.means(few) @ weights[0]).argmax(1)

        @torch.no_grad()
        def full(few=few) -> None:
            (net.head(few).mean(3) @ weights[0]).argmax(1)

        found[f"choice of {n} {case}"] = interleaved(
            {"rigor": collapsed, "full head": full}, repeats
        )
    games_now = batch.observation[:8].numpy(), batch.t[:8]

    def after_update() -> None:
        torch.autograd.graph.increment_version(list(net.parameters()))
        agent.greedy(*games_now, batch.stock[:8])

    found[f"acting of 8 {case}"] = interleaved(
        {
            "rigor after an update": after_update,
            "rigor": lambda: agent.greedy(*games_now, batch.stock[:8]),
            "single file": lambda: peer.act(*games_now),
        },
        repeats,
    )
    copies = {
        name: [p.detach().clone().requires_grad_() for p in net.parameters()]
        for name in ("fused", "foreach", "loop")
    }
    adams = {}
    for name, parameters in copies.items():
        for one in parameters:
            one.grad = torch.randn_like(one)
        adams[name] = torch.optim.Adam(
            parameters, fused=name == "fused" or None, foreach=name == "foreach" or None
        )
        if name == "loop":
            adams[name] = torch.optim.Adam(parameters, fused=False, foreach=False)
    found[f"Adam {case}"] = interleaved({n: one.step for n, one in adams.items()}, repeats)
    found[f"update {case}"] = interleaved(
        {
            "rigor": lambda: agent.update(batch),
            "rigor bf16": lambda: half.update(batch),
            "single file": lambda: peer.update(*theirs),
        },
        repeats,
    )
    return found


def environment(repeats: int) -> dict[str, Samples]:
    """Time the emulator and the replay of 8 games, per agent step."""
    from rigor.learning.replay import Layout, Replay

    _, agent, games = make_agent("4x10x50")
    peer = make_peer(agent, games)
    peer.run(len(peer.obs), learns=False)  # full: a few transitions would stay in the cache
    now = games.reset(np.random.SeedSequence(0))
    rng, zeros = np.random.default_rng(0), np.zeros(8)
    late = np.full(8, 100)  # agent steps: at t < 3 a stack holds frames that are zero, and cheap
    replay = Replay(20_000, Layout(8, (84, 84), np.dtype(np.uint8), 4))

    def store() -> None:
        replay.add(
            now,
            t=late,
            stock=zeros,
            stock_start=zeros,
            action=zeros,
            reward=zeros,
            terminated=zeros,
            valid=zeros == 0,
        )

    for _ in range(replay.n_rows):
        store()
    arms = {
        "emulator, 8 steps": lambda: games.step(rng.integers(0, games.n_actions, 8)),
        "store, 8 steps": store,
        "sample a batch": lambda: replay.sample(BATCH, rng),
        "sample a batch, single file": lambda: peer.sample(BATCH),
    }
    return {"environment": interleaved(arms, repeats)}
