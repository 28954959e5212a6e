"""The stock along an episode, relabelled and at its start."""

import numpy as np
import pytest
import torch
from agents import CPU, TWO_HORIZONS, batch_of, make_agent, make_env, rig

from rigor.envs.problem import Problem
from rigor.errors import UserError
from rigor.learning.agent import Agent


@pytest.mark.parametrize("clip", [False, True])
def test_stock_is_the_initial_stock_and_the_discounted_rewards(compose, clip):
    agent = make_agent(compose, *TWO_HORIZONS, clip=clip)
    rewards = np.array([3.0, -0.5, 1.0, -7.0])
    total = np.array([-2.0])
    for t, reward in enumerate(rewards):
        total = agent.next_stock(total, np.array([t]), np.array([reward]))
    discount = np.array([1.0, 0.25, 0.125, 0.0625])
    learned = np.clip(rewards, -1, 1) if clip else rewards
    assert total.dtype == np.float64
    assert total[0] == pytest.approx(-2.0 + (discount * learned).sum(), abs=1e-15)


def test_relabelled_stocks_are_those_of_the_same_rewards(compose):
    agent = make_agent(compose, "risk=cvar", "outer.relabel=0.5", "outer.low=-3", "outer.high=1")
    n = 2000
    batch = batch_of(t=[2] * n, stock=np.full(n, 4.0))
    batch.stock_start = np.full(n, -1.0)
    agent.relabel(batch, np.random.default_rng(0))
    np.testing.assert_allclose(batch.stock - batch.stock_start, 5.0)
    moved = batch.stock_start != -1.0
    assert moved.mean() == pytest.approx(0.5, abs=0.05)
    starts = batch.stock_start[moved]
    assert starts.min() >= -3.0
    assert starts.max() <= 1.0
    np.testing.assert_allclose(np.quantile(starts, [0.1, 0.5, 0.9]), [-2.6, -1.0, 0.6], atol=0.15)


@pytest.mark.parametrize(("fraction", "moved"), [(0.0, 0), (1.0, 50)])
def test_relabelling_none_or_all(compose, fraction, moved):
    agent = make_agent(compose, "risk=cvar", f"outer.relabel={fraction}")
    batch = batch_of(t=[1] * 50, stock=np.full(50, 4.0))
    agent.relabel(batch, np.random.default_rng(0))
    assert (batch.stock != 4.0).sum() == moved


def test_relabelling_does_nothing_where_the_stock_does_not_matter(compose):
    agent = make_agent(compose, "outer.relabel=1.0")
    batch, rng = batch_of(t=[1] * 5, stock=np.full(5, 4.0)), np.random.default_rng(0)
    agent.relabel(batch, rng)
    assert (batch.stock == 4.0).all()
    assert rng.random() == np.random.default_rng(0).random()


def test_initial_stock_maximises_the_predicted_objective(compose):
    # CVaR at 1/2 of {1, 3} is 1 and of {.5, 9} is .5; every c in [-3, -1] gives 1, -1 is nearest 0
    options = ["risk=cvar", "risk.tau=0.5", "agent.quantiles=2", "outer.points=9"]
    agent = make_agent(compose, *options, "outer.low=-4", "outer.high=4")
    rig(agent, [[[1.0, 3.0]], [[0.5, 9.0]]])
    assert agent.choose_initial_stock(np.zeros((4, 3), np.float32)) is None
    assert agent.initial_stock == -1.0
    edge = make_agent(compose, *options, "outer.low=-0.5", "outer.high=4")
    rig(edge, [[[1.0, 3.0]], [[0.5, 9.0]]])
    notes = [edge.choose_initial_stock(np.zeros((4, 3), np.float32)) for _ in range(4)]
    assert edge.initial_stock == -0.5
    assert [note is None for note in notes] == [True, True, False, True]
    assert "is an end of its range [-0.5, 4] in 3 searches" in notes[2]


def test_initial_stock_reads_the_bundle_at_time_zero(compose):
    # Two horizons with weights (.5, .5): outcomes {(1 + 3)/2, (3 + 5)/2} = {2, 4}, so c = -2
    options = [*TWO_HORIZONS, "risk=cvar", "risk.tau=0.5", "outer.points=9"]
    agent = make_agent(compose, *options, "outer.low=-4", "outer.high=4")
    rig(agent, [[[1.0, 3.0], [3.0, 5.0]]] * 2)
    agent.choose_initial_stock(np.zeros((1, 3), np.float32))
    assert agent.initial_stock == -2.0


def test_initial_stock_asks_the_network_at_each_stock_of_the_grid(compose):
    options = ["risk=cvar", "outer.points=5", "outer.low=-4", "outer.high=4"]
    agent = make_agent(compose, *options)
    rig(agent, [[[1.0]], [[2.0]]])
    asked = []
    agent.online.join = lambda features, t, stock: (
        asked.append((t.tolist(), stock.tolist())) or torch.zeros(len(features), 3)
    )
    agent.choose_initial_stock(np.zeros((2, 3), np.float32))
    # and at −1 or −2, which are the best for the returns that are predicted from each of them
    grid = [-4.0, -2.0, 0.0, 2.0, 4.0]
    assert asked[0] == ([0] * 10, [c for c in grid for _ in range(2)])
    assert asked[1:] == [([0, 0], [-1.0, -1.0])]


def test_one_end_of_the_range_can_be_given(compose):
    agent = make_agent(compose, "risk=cvar", "outer.low=-2")
    agent.returns.observe(np.array([1.0, 11.0]), np.zeros(2), np.array([True, True]))
    assert agent.candidates.range() == (-2.0, 0.0)  # a tenth of the spread above −1
    beyond = make_agent(compose, "risk=cvar", "outer.low=5")
    beyond.returns.observe(np.array([1.0, 11.0]), np.zeros(2), np.array([True, True]))
    assert beyond.candidates.range() == (5.0, 15.0)


def test_a_range_turned_round_by_its_default_side_is_refused(compose):
    def make(*overrides):
        config = compose("discount.gamma=0.5", "network=rbf_mlp", *overrides).config
        env = make_env()
        env.problem = Problem(
            n_decisions=3,
            return_bounds=lambda d: (0.5, float(d.sum())),
            coordinates=lambda observation: observation,
        )
        return Agent(config, env, CPU, 0)

    with pytest.raises(UserError, match=r"outer\.low=5.*outer\.high"):
        make("risk=cvar", "outer.low=5", "network.action_basis=none")
    # the mean looks for no stock
    make("outer.low=5", "network.action_basis=none")


def test_the_initial_stock_is_searched_where_returns_lie(compose):
    """c₀ is minus a quantile of the return: of those seen, or bounded by the environment."""
    config = compose("risk=cvar", "discount.gamma=0.5").config
    env = make_env()
    env.problem = Problem(
        n_decisions=3,
        return_bounds=lambda d: (0.5, float(d.sum())),
        coordinates=lambda observation: observation,
    )
    agent = Agent(config, env, CPU, 0)
    agent.returns.observe(np.array([2.0, -1.0]), np.zeros(2), np.array([True, False]))
    agent.returns.observe(np.array([7.0, 0.0]), np.zeros(2), np.array([False, True]))
    np.testing.assert_allclose(agent.candidates.range(), (-2.2, 0.2))
    grid = agent.candidates.grid()
    assert {-2.0, -0.0} <= set(grid)  # minus the returns, which are quantiles of themselves
    assert (np.diff(grid) > 0).all()
    knows = compose(
        "risk=cvar", "discount.gamma=0.5", "network=rbf_mlp", "network.action_basis=none"
    ).config
    assert Agent(knows, env, CPU, 0).candidates.range() == (-1.75, -0.5)


def test_the_stock_moves_over_several_steps(compose):
    agent = make_agent(compose, "risk=cvar", "discount=hyperbolic", "discount.k=1")
    batch = batch_of(t=[0, 1], stock=[5.0, -1.0])
    batch.reward = np.array([[1.0, 1.0], [2.0, 2.0]])
    batch.terminated, batch.length = np.zeros((2, 2), bool), np.array([2, 1])
    moved = agent.transitions(batch).stock_next
    assert moved.tolist() == pytest.approx([5.0 + 1.0 + 2.0 / 2.0, -1.0 + 1.0 / 2.0])
