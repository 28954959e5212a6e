"""The learner computes what the formulas say with every quantile of every action at hand."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from scripted import Episode, ScriptedEnv

from rigor.learning import fast_head
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state, restore_agent
from rigor.learning.networks import Head
from rigor.learning.replay import Batch, Transitions
from rigor.maths import objective, quantile
from rigor.maths.utility import is_mean

RELATIVE, ABSOLUTE = 1e-10, 1e-13
VARIANTS = ["time_consistent", "time_aware", "time_inconsistent"]
CHOICES = [
    ["risk=mean", "agent.bootstrap=shared"],
    ["risk=mean", "agent.bootstrap=per_head"],
    ["risk=cvar", "risk.tau=0.3"],
    ["risk=entropic", "risk.beta=-1"],
]
SHAPES = list(itertools.product([2, 18], [1, 10], [1, 50]))  # (A, M, N)


@pytest.fixture(autouse=True)
def every_head_is_large(monkeypatch):
    monkeypatch.setattr(fast_head, "LARGE", 0)


def make_agent(compose, shape, *overrides, features=3):
    """Return an agent in float64 whose two networks differ."""
    n_actions, n_horizons, n = shape
    bundle = [f"agent.quantiles={n}"]
    if n_horizons > 1:
        bundle += ["agent=multihorizon", f"horizons.m={n_horizons}", "discount=hyperbolic"]
    env = ScriptedEnv([[Episode((1.0,) * 5)]])
    env.n_actions, env.observation_shape = n_actions, (features,)
    agent = Agent(compose(*bundle, *overrides).config, env, torch.device("cpu"), seed=0)
    agent.values.levels = agent.values.levels.double()
    torch.manual_seed(1)
    for network in (agent.online.double(), agent.target.double()):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    assert agent.online.head.shape == shape
    return agent


def random_batch(n_actions, size=24, seed=0, taken=None):
    rng = np.random.default_rng(seed)
    return Batch(
        observation=rng.normal(size=(size, 3)),
        observation_next=rng.normal(size=(size, 3)),
        t=rng.integers(0, 5, size),
        stock=rng.normal(size=size),
        stock_start=np.zeros(size),
        action=rng.integers(0, n_actions, size) if taken is None else np.full(size, taken),
        reward=rng.normal(size=(1, size)),
        terminated=rng.random((1, size)) < 0.2,
        length=np.ones(size, np.int64),
    )


def plain_choice(agent, quantiles, t, stock):
    """Return argmax_a of the value of quantiles [B, A, M, N]."""
    clock = t if agent.config.variant.clock_runs else 0 * t
    weights, discount = agent.values._weights[clock], agent.values._discount[clock]
    means = torch.einsum("bm,bamn->ba", weights.double(), quantiles) / quantiles.shape[3]
    if is_mean(agent.utility):
        return means.argmax(1)
    values = objective.action_values(agent.utility, quantiles, weights, discount, stock)
    return objective.greedy(values, means) if agent.utility.needs_stock else values.argmax(1)


def plain_greedy(agent, observation, t, stock):
    tensors = [torch.from_numpy(one) for one in (observation, t, stock)]
    with torch.no_grad():
        return plain_choice(agent, agent.online(*tensors), *tensors[1:]).numpy()


def plain_loss(agent, batch):
    """Return the loss from all quantiles [B, A, M, N] of both networks."""
    spec, train = agent.config.agent, agent.config.train
    rows = torch.arange(len(batch.t))
    stock_next = torch.from_numpy(agent.next_stock(batch.stock, batch.t, batch.reward[0]))
    t = torch.from_numpy(batch.t)
    after = torch.from_numpy(batch.observation_next), t + 1, stock_next
    with torch.no_grad():
        lagged = agent.target(*after)
        chooser = agent.online(*after) if train.double == "online" else lagged
        if spec.bootstrap == "per_head":
            best = chooser.mean(3).argmax(1)  # [B, M]
            heads = torch.arange(lagged.shape[2])
            bootstrap = lagged[rows[:, None], best, heads]
        else:
            bootstrap = lagged[rows, plain_choice(agent, chooser, t + 1, stock_next)]
        alive = torch.from_numpy(~batch.terminated[0]).double()[:, None, None]
        reward = torch.from_numpy(batch.reward[0]).float().double()[:, None, None]
        factors = torch.from_numpy(agent.values._step_factors).float().double()[t][:, :, None]
        targets = reward + alive * factors * bootstrap
    here = agent.online(torch.from_numpy(batch.observation), t, torch.from_numpy(batch.stock))
    taken = here[rows, torch.from_numpy(batch.action)]
    return quantile.quantile_huber_loss(
        taken, targets, agent.values.levels, train.huber, train.reduction
    )


def fast_loss(agent, batch):
    return agent.loss(Transitions(*map(agent.engine.upload, agent.transitions(batch))))


def gradients(agent, loss):
    for parameter in agent.online.parameters():
        parameter.grad = None
    loss.backward()
    return [one.grad.clone() for one in agent.online.parameters()]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda one: "-".join(one))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_actions_loss_and_gradients_are_those_of_all_quantiles(compose, shape, choice):
    variants = VARIANTS if "risk=mean" in choice else VARIANTS[:1]  # others need a running clock
    for variant, double in itertools.product(variants, ["online", "target"]):
        options = [f"variant={variant}", f"train.double={double}", *choice]
        agent = make_agent(compose, shape, *options)
        # the second batch leaves actions untaken whose gradients the first has left in memory
        for batch in (random_batch(shape[0]), random_batch(shape[0], seed=1, taken=1)):
            asked = batch.observation, batch.t, batch.stock
            np.testing.assert_array_equal(agent.greedy(*asked), plain_greedy(agent, *asked))
            loss, plain = fast_loss(agent, batch), plain_loss(agent, batch)
            torch.testing.assert_close(loss, plain, rtol=RELATIVE, atol=ABSOLUTE)
            for here, there in zip(gradients(agent, loss), gradients(agent, plain), strict=True):
                torch.testing.assert_close(here, there, rtol=RELATIVE, atol=ABSOLUTE)


@pytest.mark.parametrize("choice", [*CHOICES, ["risk=mean_variance", "risk.kappa=0.1"]])
@pytest.mark.parametrize("shape", [(2, 1, 5), (4, 1, 50), (3, 4, 10)], ids=str)
def test_the_plain_form_of_the_learner_is_the_fast_one(compose, shape, choice):
    """`train.fast=false` runs the formulas as the paper writes them."""
    fast, plain = (
        make_agent(compose, shape, *choice, f"train.fast={flag}", "train.learning_rate=0.01")
        for flag in ("true", "false")
    )
    assert type(plain.online.head) is Head
    for seed in range(5):
        batch = random_batch(shape[0], seed=seed)
        asked = batch.observation, batch.t, batch.stock
        np.testing.assert_array_equal(fast.greedy(*asked), plain.greedy(*asked))
        losses = [agent.update(batch).item() for agent in (fast, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=RELATIVE)
        for agent in (fast, plain):
            agent.update_target()
    for left, right in zip(fast.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-11)


def assert_fresh(network):
    hidden = torch.randn(5, network.head.linear.in_features, dtype=torch.float64)
    means = network.head(hidden).mean(3)
    torch.testing.assert_close(network.head.means(hidden), means, rtol=RELATIVE, atol=ABSOLUTE)


def test_averaged_heads_are_fresh_after_every_change(compose):
    options = ["train.double=target", "train.learning_rate=0.1", "train.target_smoothing=0.5"]
    agent, other = (make_agent(compose, (3, 2, 5), *options) for _ in range(2))
    batch = random_batch(3)
    for _ in range(3):
        agent.update(batch)
        assert_fresh(agent.online)
        assert_fresh(agent.target)
        agent.update_target()
        assert_fresh(agent.target)
    for network in (other.online, other.target):
        assert_fresh(network)
    other.update(batch)
    assert_fresh(other.online)
    restore_agent(other, agent_state(agent))
    for network in (other.online, other.target):
        assert_fresh(network)


def train_cartpole(agent, greedy, loss, updates):
    """Return the actions taken and the losses of so many updates, one for each step."""
    env, rng = gym.make("CartPole-v1"), np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    seen, actions, losses, t = [], [], [], 0
    for step in range(updates + 20):
        now = observation.astype(np.float64), t % 5, 0.0
        action = int(greedy(now[0][None], np.array([now[1]]), np.zeros(1))[0])
        action = int(rng.integers(2)) if rng.random() < 0.3 else action
        observation, _, terminated, truncated, _ = env.step(action)
        seen.append((*now, action, observation.astype(np.float64), terminated))
        actions.append(action)
        t += 1
        if terminated or truncated:
            observation, _ = env.reset()
            t = 0
        if step < 20:
            continue
        rows = [seen[i] for i in rng.integers(0, len(seen), 16)]
        here, times, stocks, taken, there, ends = map(np.array, zip(*rows, strict=True))
        ones = np.ones(16, np.int64)
        batch = Batch(here, there, times, stocks, stocks, taken, ones[None], ends[None], ones)
        agent.optimizer.zero_grad(set_to_none=True)
        losses.append(loss(batch))
        losses[-1].backward()
        agent.optimizer.step()
        if step % 10 == 0:
            agent.update_target()
    return actions, [one.item() for one in losses]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 1, 20), (2, 4, 10)], ids=str)
def test_cartpole_is_learned_alike(compose, shape):
    options = ["train.learning_rate=5e-4", "train.target_smoothing=0.05"]
    fast, plain = (make_agent(compose, shape, *options, features=4) for _ in range(2))
    there = train_cartpole(
        plain,
        lambda *asked: plain_greedy(plain, *asked),
        lambda batch: plain_loss(plain, batch),
        1000,
    )
    here = train_cartpole(fast, fast.greedy, lambda batch: fast_loss(fast, batch), 1000)
    assert here[0] == there[0]
    np.testing.assert_allclose(here[1], there[1], rtol=1e-8)
    for left, right in zip(fast.online.parameters(), plain.online.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-8, atol=1e-10)
