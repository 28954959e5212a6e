import numpy as np
import pytest
import torch
from torch import nn

from rigor.envs.problem import return_to_go
from rigor.learning.agent import Agent
from rigor.learning.fast_head import FastHead
from rigor.learning.networks import QuantileNetwork
from rigor.learning.prediction import predict, realised_returns
from rigor.learning.replay import Batch, Transitions

# T = 2: an early goal of 100 at t = 1 and a late one of 300 at t = 2; γ = .5, so 50 and 75
GBWM = [
    "env=gbwm",
    "env.periods=2",
    "env.early_utility=100",
    "env.late_utility=300",
    "agent=expected_utility",
    "agent.quantiles=1",
    "discount=exponential",
    "discount.gamma=0.5",
    "train.weight_average=0",
    "env.num_envs=4",
]
TOTALS = [[0, 50, 75, 125], [0, 50, 75, 125], [0, 0, 75, 75], [0, 0, 0, 0], [0, 0, 0, 0]]


def make_agent(compose, *overrides):
    config = compose(*GBWM, *overrides).config
    return Agent(config, config.env.make(4, evaluation=False), torch.device("cpu"), seed=0)


def rigged(agent, logits):
    """Make the agent's networks answer the same logit for every action, [A]."""
    head = nn.Linear(2, len(logits))
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor(logits))
    head = FastHead(head, (len(logits), 1, 1), None)
    network = QuantileNetwork(nn.Identity(), nn.Identity(), head, None, None, 1.0, 1.0)
    agent.online = agent.target = agent.averaged = network


def batch_of(t, stock, reward, terminated):
    n = len(t)
    return Batch(
        observation=np.zeros((n, 2), np.float32),
        observation_next=np.zeros((n, 2), np.float32),
        t=np.array(t, np.int64),
        stock=np.array(stock, float),
        stock_start=np.array(stock, float),
        action=np.zeros(n, np.int64),
        reward=np.array([reward], float),
        terminated=np.array([terminated]),
        length=np.ones(n, np.int64),
    )


def targets(agent, batch):
    return agent.targets(Transitions(*map(agent.engine.upload, agent.transitions(batch))))


def test_what_is_still_possible_falls_with_time(compose):
    agent = make_agent(compose)
    assert agent.candidates._bounds.attainable.tolist() == TOTALS
    assert agent.candidates._bounds.low.tolist() == [0] * 5
    assert agent.candidates._bounds.high.tolist() == [125, 125, 75, 0, 0]
    assert (
        return_to_go(compose().config.env.problem, agent.discount) is None
    )  # CartPole declares nothing


def test_what_an_environment_only_bounds(compose):
    put = compose("env=american_put", "env.steps=3", "env.num_envs=4").config.env
    found = return_to_go(put.problem, np.array([1.0, 0.5, 0.25, 0.125, 0.0]))
    assert found.attainable is None
    bounds = put.payoff_bounds * [1.0, 0.5, 0.25, 0.125]
    np.testing.assert_allclose(found.high[:4], [bounds[k:].max() for k in range(4)])
    assert found.high[4] == 0.0
    assert not found.low.any()


def test_targets_are_shares_of_what_is_possible(compose):
    agent = make_agent(compose, "risk=cvar", "risk.tau=0.5")  # f = 2 min(x, 0)
    logits = [0.0] * 29 + [1.0]  # the last action is the best, σ = 1/(1 + 1/e)
    rigged(agent, logits)
    sigma = 1 / (1 + np.exp(-1))
    # t = 1, S = −80: −160 to 0. The early goal leaves −30, of which 75 may still come: −60 to 0.
    # Without it −80 stays, and the best is −5: −160 to −10. t = 2 is the end. 1 is settled.
    found = targets(
        agent,
        batch_of(
            t=[1, 1, 2, 2, 0],
            stock=[-80, -80, -30, -30, 1],
            reward=[100, 0, 300, 0, 0],
            terminated=[False, False, True, True, False],
        ),
    )
    expected = [(100 + 60 * sigma) / 160, 150 * sigma / 160, 1.0, 0.0, np.nan]
    np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-6)


def test_without_the_problems_features_the_bounds_are_those_seen(compose):
    agent = make_agent(compose, "network=mlp", "risk=cvar", "risk.tau=0.5")  # f = 2 min(x, 0)
    batch = batch_of(t=[0, 2], stock=[-80, -80], reward=[60, 20], terminated=[False, True])
    rigged(agent, [0.0] * 30)  # σ = 1/2
    assert targets(agent, batch).isnan().all()  # nothing was seen to come
    yes = np.ones(2, bool)
    agent.to_go.observe(np.array([0, 1]), np.array([-20.0, 60.0]), yes, yes)
    # t = 0: −80 may become −100 to −20: −200 to −40. The reward leaves −20, of which, at half the
    # discount, −10 to 30 may still come: −60 to 0, and σ = 1/2 of it is −30.
    # t = 2, a quarter: −85 to −65, which are −170 to −130. A reward of 20 leaves −75: −150.
    found = targets(agent, batch)[:, 0, 0]
    np.testing.assert_allclose(found, [(200 - 30) / 160, 20 / 40], rtol=1e-6)
    found = predict(agent, np.zeros((1, 2), np.float32), np.zeros(1, np.int64), np.array([-80.0]))
    np.testing.assert_allclose(found.outcomes[0, :, 0], -120 + 160)  # E f(S_T) − f(S_0)


def test_between_bounds_that_are_seen_the_target_of_the_mean_contracts(compose):
    """σ_t = (r − L)/(H − L) + γ (σ_{t+1} (H − L) + L)/(H − L): no slope of 1 at a time limit."""
    agent = make_agent(compose, "network=mlp")
    yes = np.ones(4, bool)
    agent.to_go.observe(np.arange(4), np.array([-1.0, 0.0, 3.0, 1.0]), yes, yes)
    steps = agent.values.steps(
        np.arange(2), np.zeros(2), np.ones(2), np.array([1.0, 0.5]), np.zeros(2, bool)
    )
    np.testing.assert_allclose(steps[1], 0.5)  # γ
    np.testing.assert_allclose(steps[0], (1.0 + 1.0 - 0.5) / 4.0)


def test_the_loss_is_least_at_the_mean_of_the_targets_and_leaves_the_settled_out(compose):
    learned = make_agent(compose, "risk=cvar").values
    targets = torch.tensor([[[0.2, 0.6]], [[torch.nan, torch.nan]]])
    at = torch.tensor([[[np.log(0.4 / 0.6)]], [[3.0]]], dtype=torch.float32, requires_grad=True)
    learned.loss(at, targets).backward()
    np.testing.assert_allclose(at.grad.flatten(), [0.0, 0.0], atol=1e-7)
    above = torch.tensor([[[0.0]], [[3.0]]], requires_grad=True)
    learned.loss(above, targets).backward()
    assert above.grad.flatten().tolist() == pytest.approx([0.05, 0.0])  # (.5 − .4)/2


def test_the_initial_stock_is_found_on_a_total_between_the_points_of_the_grid(compose):
    """J(c) = −c + f(c) + room(c) · σ; a total is where it bends, and no grid need hold it."""
    agent = make_agent(compose, "risk=cvar", "risk.tau=0.5", "outer.points=4")
    rigged(agent, [-50.0] * 30)

    def logits(hidden):
        # the early goal is certain: E f = 2 min(c + 50, 0) of 2 min(c, 0) to 2 min(c + 125, 0)
        least, most, expected = (2 * (hidden + add).clamp(max=0.0) for add in (0, 125, 50))
        sigma = torch.where(most > least, (expected - least) / (most - least), 0.5)
        return sigma.logit()[:, :, None, None].expand(-1, 30, 1, 1)

    agent.averaged.join = lambda features, t, stock: stock[:, None]
    del agent.averaged.head
    agent.averaged.head = logits
    agent.choose_initial_stock(np.zeros((2, 2), np.float32))
    assert agent.initial_stock == -50.0  # the grid is −125, −83.3, −41.7, 0


def test_it_predicts_the_gain_in_utility_and_what_realised_returns_of_it(compose):
    agent = make_agent(compose, "risk=cvar", "risk.tau=0.5")
    rigged(agent, [0.0] * 29 + [1.0])
    agent.initial_stock = -80.0
    observation, t = np.zeros((2, 2), np.float32), np.array([1, 2])
    seen = predict(agent, observation, t, np.array([-80.0, -30.0]))
    sigma = 1 / (1 + np.exp(-1))
    # from −160: 160 σ more, over a discount of .5; from −60: 60 σ more, over .25
    best = [160 * sigma / 0.5, 60 * sigma / 0.25]
    np.testing.assert_allclose(seen.values[:, 29], best, rtol=1e-6)
    assert seen.action.tolist() == [29, 29]
    assert seen.outcomes.shape == (2, 30, 1)
    assert seen.quantiles.shape == (2, 30, 1, 1)
    # −80 all along until the early goal makes it −30; f = −160, −160, −60 and −60 at the end
    found = realised_returns(agent, np.array([0.0, 100.0, 0.0]), np.array([False, False, True]))
    np.testing.assert_allclose(found, [100, 200, 0])


def test_of_the_mean_it_predicts_the_return(compose):
    agent = make_agent(compose)
    rigged(agent, [0.0] * 30)
    seen = predict(agent, np.zeros((2, 2), np.float32), np.array([0, 2]), np.zeros(2))
    np.testing.assert_allclose(seen.values[:, 0], [125 / 2, 300 / 2])
    found = realised_returns(agent, np.array([0.0, 100.0, 300.0]), np.array([False, False, True]))
    np.testing.assert_allclose(found, [125.0, 250.0, 300.0])


@pytest.mark.parametrize("risk", ["cvar", "entropic"])
def test_it_learns_what_every_risk_asks_for(compose, risk):
    """The value at the start where nothing moves and both goals can be paid."""
    still = ["env.asset_covariance=[[0.0]]", "env.asset_means=[0.0]", "env.weights=[[1.0]]"]
    more = ["env.wealth=400", "train.learning_rate=0.01", "network.rbf_features=5"]
    more += ["risk.beta=-0.02"] if risk == "entropic" else []
    agent = make_agent(compose, f"risk={risk}", *still, *more)
    agent.initial_stock = -125.0 if risk == "cvar" else 0.0
    rng = np.random.default_rng(0)
    for _ in range(300):
        t, goal = rng.integers(0, 3, 64), rng.integers(0, 2, 64)
        earlier = (t == 2) & (rng.random(64) < 0.5)  # whether the early goal was paid for
        wealth = 400.0 - 100.0 * earlier
        cost, utility = agent.config.env.offers[t].T
        paid = (goal == 1) & (wealth >= cost)
        left = wealth - np.where(paid, cost, 0.0)
        stock = agent.initial_stock + 50.0 * earlier
        agent.update(
            Batch(
                observation=np.stack([wealth, t], 1).astype(np.float32),
                observation_next=np.stack([left, t + 1], 1).astype(np.float32),
                t=t,
                stock=stock,
                stock_start=np.full(64, agent.initial_stock),
                action=goal,
                reward=np.where(paid, utility, 0.0)[None],
                terminated=(t == 2)[None],
                length=np.ones(64, np.int64),
            )
        )
        agent.update_target()
    seen = predict(
        agent, np.array([[400.0, 0.0]], np.float32), np.array([0]), np.array([agent.initial_stock])
    )
    f, c = agent.utility.f, np.array(agent.initial_stock)
    assert seen.values.max() == pytest.approx(f(c + 125.0) - f(c), rel=0.02)
    assert agent.greedy(np.array([[400.0, 1.0]], np.float32), np.array([1]), np.array([c])) == [1]


def test_rounding_does_not_move_a_stock_across_a_total(compose):
    agent = make_agent(compose, "risk=cvar", "env.early_utility=0.3", "env.late_utility=0.4")
    network = agent.online
    reached = -(0.15 + 1e-17) - 1e-16  # 0.15 short, but for rounding
    inputs = network.encode(torch.tensor([[100.0, 0.0]])), torch.tensor([0])
    asked = [
        network.join(*inputs, torch.tensor([s], dtype=torch.float64)) for s in (-0.15, reached)
    ]
    assert torch.equal(*asked)
    short = network.join(*inputs, torch.tensor([-0.1501], dtype=torch.float64))
    assert not torch.equal(asked[0], short)
