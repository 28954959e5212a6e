"""The actions that an agent takes and the targets that it learns."""

import numpy as np
import pytest
import torch
from agents import QUANTILES, RISKS, TWO_HORIZONS, batch_of, make_agent, on_device, rig, targets


# The greedy action at t = 0 is 0 by (10 + 1)/2 against (0 + 2)/2, at t = 1 it is 1 by 2 against 1.
@pytest.mark.parametrize(
    ("variant", "actions"),
    [
        ("time_consistent", [0, 1, 1]),
        ("time_aware", [0, 0, 0]),
        ("time_inconsistent", [0, 0, 0]),
    ],
)
def test_the_mixture_follows_the_clock_or_stays_at_zero(compose, variant, actions):
    agent = make_agent(compose, *TWO_HORIZONS, f"variant={variant}")
    rig(agent, QUANTILES)
    t = np.array([0, 1, 5])
    assert agent.greedy(np.zeros((3, 3), np.float32), t, np.zeros(3)).tolist() == actions


@pytest.mark.parametrize(
    ("variant", "sees"),
    [("time_consistent", True), ("time_aware", True), ("time_inconsistent", False)],
)
def test_only_two_variants_see_the_time(compose, variant, sees):
    agent = make_agent(compose, *TWO_HORIZONS, f"variant={variant}")
    observation, stock = torch.ones(1, 3), torch.zeros(1)
    there, later = (agent.online(observation, torch.tensor([t]), stock) for t in (0, 4))
    assert torch.equal(there, later) is not sees


def test_greedy_for_cvar_depends_on_the_stock(compose):
    # One horizon, tau = .5: f(x) = 2 min(x, 0). Action 0 gives -1 or 5, action 1 gives 1 or 1.
    # S = 0: means of f are -1 and 0, so 1. S = 2: both never fall below 0, so the larger mean, 0.
    agent = make_agent(compose, "risk=cvar", "risk.tau=0.5", "agent.quantiles=2")
    rig(agent, [[[-1.0, 5.0]], [[1.0, 1.0]]])
    observation, t = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    assert agent.greedy(observation, t, np.array([0.0, 2.0])).tolist() == [1, 0]


def test_act_mixes_uniform_actions_in_at_the_rate_epsilon(compose):
    agent = make_agent(compose, *TWO_HORIZONS, actions=4)
    rig(agent, [*QUANTILES, *QUANTILES])
    rng = np.random.default_rng(0)
    many = (np.zeros((4000, 3), np.float32), np.zeros(4000, np.int64), np.zeros(4000))
    assert set(agent.act(*many, 0.0, rng).tolist()) == {0}
    shares = np.bincount(agent.act(*many, 1.0, rng), minlength=4) / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)
    shares = np.bincount(agent.act(*many, 0.4, rng), minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.7, 0.1, 0.1, 0.1], atol=0.03)


def test_acting_draws_as_much_whatever_epsilon_is(compose):
    """Else a run's later random numbers would depend on which actions were random."""
    agent = make_agent(compose, *TWO_HORIZONS)
    one = (np.zeros((3, 3), np.float32), np.zeros(3, np.int64), np.zeros(3))
    after = []
    for epsilon in (0.0, 0.5, 1.0):
        rng = np.random.default_rng(1)
        agent.act(*one, epsilon, rng)
        after.append(rng.random())
    assert len(set(after)) == 1


def test_targets_mask_termination_and_back_each_horizon_up_by_its_own_factor(compose):
    agent = make_agent(compose, *TWO_HORIZONS, "train.double=target")
    rig(agent, QUANTILES)
    # t + 1 is 1 or more, so the next action is 1: quantiles (-1, 1) and (2, 2); factors 0 and .5
    batch = batch_of(t=[0, 3, 3], reward=[7.0, -1.0, -1.0], terminated=[False, False, True])
    expected = [[[7, 7], [8, 8]], [[-1, -1], [0, 0]], [[-1, -1], [-1, -1]]]
    torch.testing.assert_close(targets(agent, batch), torch.tensor(expected, dtype=torch.float32))


def test_targets_of_one_horizon_use_the_discount_of_their_time(compose):
    # Hyperbolic k = 1: d_1/d_0 = 1/2, d_3/d_2 = 3/4
    agent = make_agent(compose, "discount=hyperbolic", "discount.k=1", "agent.quantiles=2")
    rig(agent, [[[1.0, 3.0]], [[4.0, 8.0]]])
    found = targets(agent, batch_of(t=[0, 2]))
    torch.testing.assert_close(found, torch.tensor([[[2.0, 4.0]], [[3.0, 6.0]]]))


def test_the_frozen_clock_chooses_the_next_action_as_at_zero(compose):
    agent = make_agent(compose, *TWO_HORIZONS, "variant=time_aware")
    rig(agent, QUANTILES)
    # action 0 in spite of t + 1 = 1: quantiles (9, 11) times 0, (.5, 1.5) times .5
    expected = torch.tensor([[[0.0, 0.0], [0.25, 0.75]]])
    torch.testing.assert_close(targets(agent, batch_of(t=[0])), expected)


def test_per_head_bootstraps_each_horizon_from_its_own_best_action(compose):
    # Γ = (.25, .75) by the middles of the cells (0, .5) and (.5, 1)
    midpoint = [*TWO_HORIZONS, "horizons.quadrature=midpoint", "variant=time_inconsistent"]
    shared = make_agent(compose, *midpoint)
    each = make_agent(compose, *midpoint, "agent.bootstrap=per_head")
    for agent in (shared, each):
        rig(agent, QUANTILES)
    # head 0 prefers action 0 (mean 10), head 1 prefers action 1 (mean 2)
    torch.testing.assert_close(
        targets(each, batch_of(t=[0])), torch.tensor([[[2.25, 2.75], [1.5, 1.5]]])
    )
    torch.testing.assert_close(
        targets(shared, batch_of(t=[0])), torch.tensor([[[2.25, 2.75], [0.375, 1.125]]])
    )


@pytest.mark.parametrize("bootstrap", ["shared", "per_head"])
def test_double_says_who_chooses_and_the_target_network_answers(compose, bootstrap):
    online, target = [[[1.0, 1.0]], [[2.0, 2.0]]], [[[6.0, 8.0]], [[3.0, 5.0]]]
    options = ["discount.gamma=0.5", "agent.quantiles=2", f"agent.bootstrap={bootstrap}"]
    for double, expected in (("online", [1.5, 2.5]), ("target", [3.0, 4.0])):
        agent = make_agent(compose, *options, f"train.double={double}")
        rig(agent, online, target)
        found = targets(agent, batch_of(t=[0]))
        torch.testing.assert_close(found, torch.tensor([[expected]]))


def test_next_action_for_cvar_is_chosen_at_the_next_stock(compose):
    # As above: action 1 while the stock is 0, action 0 at 2 or more. discount(1) = d_1 = 1/2.
    options = ["discount=hyperbolic", "discount.k=1", "risk=cvar", "risk.tau=0.5"]
    agent = make_agent(compose, *options, "agent.quantiles=2")
    rig(agent, [[[-1.0, 5.0]], [[1.0, 1.0]]])
    batch = batch_of(t=[1, 1], reward=[0.0, 4.0])  # S' = 0, S' = 0 + 4/2
    # factor d_2/d_1 = 2/3
    expected = torch.tensor([[[2 / 3, 2 / 3]], [[4 - 2 / 3, 4 + 10 / 3]]])
    torch.testing.assert_close(targets(agent, batch), expected)


def test_rewards_are_clipped_in_targets_and_in_the_stock(compose):
    agent = make_agent(compose, "discount.gamma=0.5", "agent.quantiles=2", clip=True)
    rig(agent, [[[0.0, 0.0]], [[0.0, 0.0]]])
    batch = batch_of(t=[0, 0, 0], reward=[5.0, -3.0, 0.5])
    assert targets(agent, batch)[:, 0, 0].tolist() == [1.0, -1.0, 0.5]
    moved = agent.next_stock(np.array([10.0, 10.0]), np.array([0, 2]), np.array([5.0, -3.0]))
    assert moved.tolist() == [11.0, 9.75]


def plain_qr_dqn(agent, batch, gamma, kappa):
    """Dabney et al. (2018), Algorithm 1, with loops."""
    zeros = torch.zeros(len(batch.t))
    with torch.no_grad():
        here = agent.online(torch.from_numpy(batch.observation), zeros, zeros)[:, :, 0]
        there = agent.target(torch.from_numpy(batch.observation_next), zeros, zeros)[:, :, 0]
    n, total = here.shape[2], 0.0
    for b in range(len(batch.t)):
        best = int(there[b].mean(1).argmax())
        for i in range(n):
            tau = (2 * i + 1) / (2 * n)
            for j in range(n):
                alive = 0.0 if batch.terminated[0, b] else 1.0
                y = float(batch.reward[0, b] + alive * gamma * there[b, best, j])
                u = y - float(here[b, batch.action[b], i])
                huber = u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                total += abs(tau - (u < 0)) * huber / n
    return total / len(batch.t)


def test_exponential_single_mean_time_inconsistent_is_qr_dqn(compose):
    options = ["variant=time_inconsistent", "discount.gamma=0.9", "train.double=target"]
    agent = make_agent(compose, *options, "train.huber=0.5")
    with torch.no_grad():
        for parameter in agent.online.parameters():  # so that online and target differ
            parameter.mul_(1.5)
    batch = batch_of(
        t=[0, 1, 4, 2], reward=[1.0, -2.0, 0.0, 0.3], terminated=[False, False, False, True]
    )
    expected = plain_qr_dqn(agent, batch, 0.9, 0.5)
    assert agent.loss(on_device(agent, batch)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("variant", ["time_consistent", "time_inconsistent"])
def test_a_bundle_of_one_exponential_is_the_single_horizon(compose, variant):
    multi = ["horizons=multi", "horizons.m=1", "horizons.quadrature=fitted"]
    single = make_agent(compose, f"variant={variant}")
    bundle = make_agent(compose, f"variant={variant}", *multi)
    batch = batch_of(t=[0, 1, 4, 2], reward=[1.0, -2.0, 0.0, 0.3])
    assert torch.equal(targets(single, batch), targets(bundle, batch))
    for _ in range(3):
        assert single.update(batch).item() == bundle.update(batch).item()
    observation, t = batch.observation, batch.t
    assert (single.greedy(observation, t, t * 0.0) == bundle.greedy(observation, t, t * 0.0)).all()


def test_targets_of_sampled_next_states_lie_side_by_side(compose):
    agent = make_agent(compose, "discount.gamma=0.5", "agent.quantiles=2")
    rig(agent, [[[0.0, 0.0]], [[2.0, 6.0]]])
    batch = batch_of(t=[0, 1], reward=[1.0, 1.0], actions=2)
    batch.observation_next = np.zeros((6, 3), np.float32)
    batch.reward = np.array([[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]])
    batch.terminated = np.array([[False, True, False, False, False, True]])
    batch.length = np.ones(6, np.int64)
    assert targets(agent, batch).tolist() == [
        [[2.0, 4.0, 2.0, 2.0, 4.0, 6.0]],
        [[11.0, 13.0, 21.0, 23.0, 30.0, 30.0]],
    ]


@pytest.mark.parametrize("risk", RISKS)
def test_scaled_rewards_choose_alike(compose, risk):
    """The network's numbers are smaller by the scale; stocks, risks and choices stay raw."""
    plain, scaled = (make_agent(compose, risk, f"train.reward_scale={s}") for s in (1, 100))
    rig(plain, [[[0.0, 3.0, 3.0, 4.0, 9.0]], [[2.0, 2.5, 3.0, 3.0, 3.1]]])
    rig(scaled, [[[0.0, 0.03, 0.03, 0.04, 0.09]], [[0.02, 0.025, 0.03, 0.03, 0.031]]])
    observation, t = np.zeros((5, 3), np.float32), np.arange(5)
    stocks = np.array([-9.0, -3.0, -1.0, 0.0, 4.0])
    chosen = [agent.greedy(observation, t, stocks).tolist() for agent in (plain, scaled)]
    assert chosen[0] == chosen[1]
    starts = np.zeros((2, 3), np.float32)
    for agent in (plain, scaled):
        agent.choose_initial_stock(starts)
    assert scaled.initial_stock == pytest.approx(plain.initial_stock)
    batch = batch_of(t=[0, 1], reward=[200.0, 100.0], terminated=[True, True])
    assert targets(scaled, batch)[:, 0, 0].tolist() == [2.0, 1.0]


def test_targets_of_several_steps_by_hand(compose):
    """Hyperbolic k = 1: d = 1, 1/2, 1/3, 1/4, so d̂ = 1/2, 2/3, 3/4. Rewards 1, 2, 4.

    The second transition ends after two steps, the third terminates at its second step.
    """
    agent = make_agent(compose, "discount=hyperbolic", "discount.k=1", "agent.quantiles=2")
    rig(agent, [[[10.0, 20.0]], [[0.0, 0.0]]])
    batch = batch_of(t=[0, 0, 0])
    batch.reward = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [4.0, 0.0, 0.0]])
    batch.terminated = np.array([[False] * 3, [False, False, True], [False] * 3])
    batch.length = np.array([3, 2, 2])
    transitions = agent.transitions(batch)
    assert transitions.t_next.tolist() == [3, 2, 2]
    found = targets(agent, batch).squeeze(1)
    whole = [1.0 + 2.0 / 2.0 + 4.0 / 3.0 + z / 4.0 for z in (10.0, 20.0)]
    short = [1.0 + 2.0 / 2.0 + z / 3.0 for z in (10.0, 20.0)]
    expected = torch.tensor([whole, short, [2.0, 2.0]])
    torch.testing.assert_close(found, expected)
