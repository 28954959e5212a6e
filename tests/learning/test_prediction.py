import numpy as np
import pytest
import torch
from scripted import Episode, ScriptedEnv

from rigor.learning.agent import Agent
from rigor.learning.prediction import predict, realised_returns


def make_agent(compose, *overrides, clip=False):
    config = compose(*overrides).config
    env = ScriptedEnv([[Episode((1.0,) * 8)]], clip=clip)
    return Agent(config, env, torch.device("cpu"), seed=3), env


def observed(agent, env, n=5):
    rng = np.random.default_rng(0)
    observation = rng.random((n, *env.observation_shape), np.float32)
    stock = np.full(n, agent.initial_stock)
    return observation, np.arange(n), stock


@pytest.mark.parametrize(
    ("variant", "risk"),
    [("time_consistent", "mean"), ("time_inconsistent", "mean"), ("time_consistent", "cvar")],
)
def test_it_says_by_what_the_agent_chooses(compose, variant, risk):
    overrides = ("agent=multihorizon", "horizons.m=3", f"risk={risk}", f"variant={variant}")
    agent, env = make_agent(compose, *overrides, "discount=hyperbolic")
    inputs = observed(agent, env)
    seen = predict(agent, *inputs)
    assert seen.quantiles.shape == (5, 3, 3, 5)
    assert seen.action.tolist() == agent.greedy(*inputs).tolist()
    if risk == "mean":
        assert seen.values.argmax(1).tolist() == seen.action.tolist()
        np.testing.assert_allclose(seen.values, seen.outcomes.mean(-1), rtol=1e-5)
    clock = inputs[1] if variant == "time_consistent" else np.zeros(5, int)
    weights = agent.config.bundle.normalised_weights(clock)
    np.testing.assert_allclose(
        seen.outcomes, np.einsum("em,eamn->ean", weights, seen.quantiles), rtol=1e-6
    )


def test_realised_returns_by_hand(compose):
    agent, _ = make_agent(compose, "discount.gamma=0.5", clip=True)
    reward = np.array([4.0, 0.0, -2.0])  # clipped to 1, 0, −1
    whole = realised_returns(agent, reward, np.array([False, False, True]))
    np.testing.assert_allclose(whole, [1 - 0.25, -0.5, -1.0])
    # the bootstrap was cut after the first step: the first state stands for its reward alone
    cut = realised_returns(agent, reward, np.array([True, False, True]))
    np.testing.assert_allclose(cut, [1.0, -0.5, -1.0])


def test_the_realised_return_at_the_start_is_the_return_under_the_agents_mixture(compose):
    agent, _ = make_agent(compose, "agent=multihorizon", "horizons.m=4", "discount=hyperbolic")
    reward = np.random.default_rng(0).normal(size=8)
    found = realised_returns(agent, reward, np.zeros(8, bool))
    assert found[0] == pytest.approx(agent.discount[:8] @ reward)
    # and later, seen from then: Σ_k discount(k) r_k / discount(t)
    assert found[3] == pytest.approx(agent.discount[3:8] @ reward[3:] / agent.discount[3])


def test_a_frozen_clock_promises_the_weights_of_the_start(compose):
    overrides = ("agent=multihorizon", "horizons.m=4", "discount=hyperbolic")
    agent, _ = make_agent(compose, *overrides, "variant=time_inconsistent")
    reward = np.random.default_rng(0).normal(size=8)
    found = realised_returns(agent, reward, np.zeros(8, bool))
    assert found[3] == pytest.approx(agent.discount[:5] @ reward[3:])


@pytest.mark.parametrize("risk", ["mean", "entropic"])
def test_it_predicts_in_raw_units_by_the_network_that_acts(compose, risk):
    scaled = ("train.reward_scale=100", "train.weight_average=0.9", f"risk={risk}")
    agent, env = make_agent(compose, *scaled, *(["risk.beta=-0.1"] if risk == "entropic" else []))
    with torch.no_grad():
        for parameter in agent.online.parameters():
            parameter.add_(torch.randn_like(parameter))  # learns on while the average follows
    inputs = observed(agent, env)
    seen = predict(agent, *inputs)
    assert seen.values.argmax(1).tolist() == seen.action.tolist()
    with torch.no_grad():
        said = agent.averaged(*map(torch.from_numpy, inputs))
    np.testing.assert_allclose(seen.quantiles, 100 * said.numpy(), rtol=1e-6)
