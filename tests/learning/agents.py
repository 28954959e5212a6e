"""Agents whose networks answer what a test wants, and batches for them."""

import numpy as np
import torch
from scripted import Episode, ScriptedEnv
from torch import nn

from rigor.learning.agent import Agent
from rigor.learning.fast_head import FastHead
from rigor.learning.networks import QuantileNetwork
from rigor.learning.replay import Batch, Transitions

CPU = torch.device("cpu")
RISKS = ["risk=mean", "risk=cvar", "risk=mean_cvar", "risk=entropic", "risk=mean_variance"]

# Hyperbolic k = 1, m = 2, gamma_max = .75: b = (1 - .75)^(1/2) = .5, nodes u = 0, .5 and so
# Γ = (0, .5), w = (.5, .5). w_i γ_i^t: (.5, .5) at t = 0, (0, .25) at 1, (0, .125) at 2; d̃_t 1,
# .25, .125; normalised weights (.5, .5), then (0, 1).
TWO_HORIZONS = [
    "agent=multihorizon",
    "discount=hyperbolic",
    "discount.k=1",
    "horizons.m=2",
    "horizons.gamma_max=0.75",
    "horizons.quadrature=lower",
    "agent.quantiles=2",
]


def rigged(quantiles):
    """Return a network that answers the same quantiles [A, M, N] to every question."""
    quantiles = torch.tensor(quantiles, dtype=torch.float32)
    head = nn.Linear(3, quantiles.numel())
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(quantiles.flatten())
    shape = tuple(quantiles.shape)
    parts = nn.Identity(), nn.Identity(), FastHead(head, shape, None)
    return QuantileNetwork(*parts, None, None, 1.0, 1.0)


def make_env(n_envs=1, clip=False, actions=2):
    env = ScriptedEnv([[Episode((1.0,) * 5)]] * n_envs, clip=clip)
    env.n_actions = actions
    return env


def make_agent(compose, *overrides, clip=False, actions=2, seed=0):
    return Agent(compose(*overrides).config, make_env(clip=clip, actions=actions), CPU, seed)


def rig(agent, online, target=None):
    agent.online = agent.averaged = rigged(online)
    agent.target = rigged(online if target is None else target)


def on_device(agent, batch):
    return Transitions(*map(agent.engine.upload, agent.transitions(batch)))


def targets(agent, batch):
    return agent.targets(on_device(agent, batch))


def batch_of(t, reward=None, terminated=None, stock=None, actions=2, seed=0):
    rng, n = np.random.default_rng(seed), len(t)
    stock = np.zeros(n) if stock is None else np.array(stock, np.float64)
    return Batch(
        observation=rng.normal(size=(n, 3)).astype(np.float32),
        observation_next=rng.normal(size=(n, 3)).astype(np.float32),
        t=np.array(t, np.int64),
        stock=stock,
        stock_start=stock.copy(),
        action=rng.integers(0, actions, n),
        reward=np.zeros((1, n)) if reward is None else np.array([reward], np.float64),
        terminated=np.zeros((1, n), bool) if terminated is None else np.array([terminated]),
        length=np.ones(n, np.int64),
    )


# Two actions, [A, M, N]. Means of the horizons: (10, 1) and (0, 2).
QUANTILES = [[[9.0, 11.0], [0.5, 1.5]], [[-1.0, 1.0], [2.0, 2.0]]]
