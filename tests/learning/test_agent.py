import functools

import numpy as np
import pytest
import torch
from scripted import CallRecorder, Episode, ScriptedEnv
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from rigor.envs.problem import Problem
from rigor.errors import UserError
from rigor.learning import checkpoint, compiled_loss, fast_loss
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state, restore_agent
from rigor.learning.engine import WARM_UP, Recorded
from rigor.learning.fast_head import FastHead
from rigor.learning.networks import QuantileNetwork
from rigor.learning.replay import Batch, Transitions
from rigor.learning.units import follow

CPU = torch.device("cpu")

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


def test_update_lowers_the_loss_and_leaves_the_target_network(compose):
    agent = make_agent(compose, "train.learning_rate=0.01")
    before = [one.clone() for one in agent.target.parameters()]
    batch = batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0], terminated=[True] * 4)
    first = agent.update(batch).item()
    for _ in range(60):
        last = agent.update(batch).item()
    assert last < 0.5 * first
    assert all(map(torch.equal, before, agent.target.parameters()))


def refused(*shape):
    raise RuntimeError("no compiler here\nand much more")


@pytest.mark.parametrize(
    ("compiler", "lines"), [(lambda *shape: fast_loss.sum_over_pairs, 1), (refused, 2)]
)
def test_a_long_run_compiles_its_loss_and_goes_on_without_a_compiler(
    compose, monkeypatch, compiler, lines
):
    monkeypatch.setattr(compiled_loss, "compiled_sum_over_pairs", compiler)
    batch, losses = batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0]), []
    for steps in (1000, 10**12):
        notes = []
        agent = make_agent(compose, f"train.steps={steps}")
        agent.values.compile_loss(notes.append, 64, 1, steps / 2)
        losses.append(agent.update(batch).item())
        assert len(notes) == (0 if steps == 1000 else lines)
    assert losses[0] == losses[1]
    assert lines == 1 or "not compiled (no compiler here);" in notes[1]


def test_the_loss_is_compiled_once_and_not_again_in_the_first_update(compose, monkeypatch):
    from torch._dynamo.utils import counters

    # the compiler's front decides whether to compile again; its back would take half a minute
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    # as on a GPU
    monkeypatch.setattr(
        compiled_loss, "_from_file", lambda shapes, kappa: compiled_loss.compiled_in_process(kappa)
    )
    counters.clear()
    agent = make_agent(compose, "train.steps=1_000_000_000_000", "train.batch_size=4")
    agent.values.compile_loss(lambda note: None, 4, 1, 1e12)
    assert counters["stats"]["unique_graphs"] == 1
    for seed in range(2):
        agent.update(batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0], seed=seed))
    assert counters["stats"]["unique_graphs"] == 1


def test_half_precision_is_near_and_leaves_the_parameters_single(compose):
    single, half = (
        make_agent(compose, "agent=multihorizon", f"train.precision={precision}")
        for precision in ("fp32", "bf16")
    )
    batch = batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0])
    there, here = (agent.update(batch).item() for agent in (single, half))
    assert here == pytest.approx(there, rel=0.02)
    assert here != there
    assert {one.dtype for one in half.online.parameters()} == {torch.float32}
    # acting stays single
    asked = batch.observation, batch.t, batch.stock
    restore_agent(half, agent_state(single))
    np.testing.assert_array_equal(half.greedy(*asked), single.greedy(*asked))


class OneDevice(TorchDispatchMode):
    """Refuses a kernel that would read a number of the machine's memory, which makes a GPU wait."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        assert len({one.device for one in tensors}) <= 1, func
        return func(*args, **(kwargs or {}))


NEEDS = ["risk=mean", "risk=cvar", "risk=mean_cvar", "risk=entropic", "risk=mean_variance"]


@pytest.mark.parametrize("risk", NEEDS)
@pytest.mark.parametrize(("images", "samples"), [(False, 1), (True, 1), (False, 3)])
def test_off_the_cpu_nothing_waits_for_a_number_of_the_device(compose, risk, images, samples):
    """Tensors without contents: a GPU's path, where to look at one is an error."""
    env, device = make_env(), torch.device("meta")
    network = ["network=nature_cnn", "network.hidden=8"] if images else []
    env.observation_shape = (2, 36, 36) if images else (3,)
    kind = torch.uint8 if images else torch.float32
    agent = Agent(compose(risk, *network).config, env, device, 0)
    seen = torch.empty(5, *env.observation_shape, dtype=kind, device=device)
    stock = torch.empty(5, dtype=torch.float64, device=device)
    t, action = torch.empty(2, 5, dtype=torch.int64, device=device)
    after = (one.repeat_interleave(samples, 0) for one in (seen, t, stock))
    step = torch.empty(2, 5 * samples, 1, device=device)
    with OneDevice():
        agent.loss(Transitions(seen, t, stock, action, *after, *step)).backward()
    assert all(one.grad.device == device for one in agent.online.parameters())
    with OneDevice():
        assert agent.greedy_actions(seen, t, stock).shape == (5,)


@pytest.mark.parametrize("risk", ["risk=mean", "risk=cvar"])
def test_a_recorded_agent_learns_and_acts_as_one_that_is_not(compose, risk):
    plain, recorded = (make_agent(compose, risk, "train.learning_rate=0.01") for _ in range(2))
    recorders = CallRecorder(), CallRecorder()
    recorded.gradient_step_on_device = Recorded(recorded.gradient_step, CPU, recorders[0])
    recorded.greedy_on_device = Recorded(recorded.greedy_actions, CPU, recorders[1])
    for k in range(9):
        batch = batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0], seed=k)
        losses = [agent.update(batch).item() for agent in (plain, recorded)]
        assert losses[0] == losses[1]
        plain.update_target()
        recorded.update_target()
        asked = batch.observation, batch.t, batch.stock
        np.testing.assert_array_equal(recorded.greedy(*asked), plain.greedy(*asked))
    assert recorded.loss_sum == plain.loss_sum
    assert [one.replays for one in recorders] == [9 - WARM_UP] * 2


def test_losses_add_up_until_they_are_logged(compose):
    agent = make_agent(compose)
    batch = batch_of(t=[0, 1], reward=[1.0, 2.0])
    losses = [agent.update(batch).item() for _ in range(3)]
    assert agent.loss_sum.item() == pytest.approx(sum(losses), rel=1e-12)


def test_target_network_starts_as_a_copy_and_moves_by_its_smoothing(compose):
    agent = make_agent(compose, "train.target_smoothing=0.25")
    pairs = list(zip(agent.target.parameters(), agent.online.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in pairs)
    with torch.no_grad():
        for target, online in pairs:
            target.fill_(1.0)
            online.fill_(5.0)
    agent.update_target()
    assert all((target == 2.0).all() for target, _ in pairs)
    assert all((online == 5.0).all() for _, online in pairs)


def test_smoothing_of_one_is_an_exact_copy_and_no_alias(compose):
    agent = make_agent(compose, "train.target_smoothing=1")
    batch = batch_of(t=[0, 1], reward=[1.0, 2.0])
    agent.update(batch)
    agent.update_target()
    pairs = list(zip(agent.target.parameters(), agent.online.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in pairs)
    agent.update(batch)
    assert not any(torch.equal(*pair) for pair in pairs)


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


def test_same_seed_same_first_weights(compose):
    first, second, third = (make_agent(compose, seed=seed) for seed in (3, 3, 4))
    pairs = list(zip(first.online.parameters(), second.online.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in pairs)
    assert not torch.equal(next(first.online.parameters()), next(third.online.parameters()))


def assert_goes_on_alike(agent, other, batch):
    restore_agent(other, checkpoint.load(checkpoint.save(batch.folder, 1, agent_state(agent))))
    assert (other.initial_stock, other.values.scale) == (agent.initial_stock, agent.values.scale)
    assert other.stock_unit == agent.stock_unit == tuple(other.target.stock_unit.tolist())
    np.testing.assert_array_equal(other.candidates.searched, agent.candidates.searched)
    assert other.candidates.range() == agent.candidates.range()
    for _ in range(3):
        assert agent.update(batch).item() == other.update(batch).item()
        agent.update_target()
        other.update_target()
    for name in ("online", "target"):
        there, here = getattr(agent, name).state_dict(), getattr(other, name).state_dict()
        assert all(torch.equal(there[key], here[key]) for key in there)


def test_a_loaded_agent_learns_on_as_the_saved_one(compose, tmp_path):
    agent = make_agent(compose, "risk=cvar")
    batch = batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0])
    batch.folder = tmp_path
    for _ in range(3):
        agent.update(batch)
    agent.returns.observe(np.array([300.0]), np.array([3.0]), np.array([True]))
    follow(agent, keep=True)
    agent.choose_initial_stock(batch.observation)
    assert_goes_on_alike(agent, make_agent(compose, "risk=cvar", seed=9), batch)


def test_a_loaded_agent_with_convolutions_learns_on_as_the_saved_one(compose, tmp_path):
    """Adam's moments must come back in the memory layout of the convolutions."""

    def make(seed):
        env = make_env()
        env.observation_shape = (2, 36, 36)
        overrides = ["tracker=none", "network=nature_cnn", "network.hidden=8", "agent.quantiles=5"]
        return Agent(compose(small=overrides).config, env, CPU, seed)

    agent, batch = make(0), batch_of(t=[0, 1, 2], reward=[1.0, 2.0, 3.0])
    rng = np.random.default_rng(0)
    for name in ("observation", "observation_next"):
        setattr(batch, name, rng.integers(0, 256, (3, 2, 36, 36), dtype=np.uint8))
    batch.folder = tmp_path
    for _ in range(3):
        agent.update(batch)
    assert_goes_on_alike(agent, make(9), batch)


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


@pytest.mark.parametrize("risk", NEEDS)
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


def test_averaged_weights_follow_slowly_and_choose(compose):
    agent = make_agent(compose, "train.weight_average=0.9", "train.learning_rate=0.01")
    shares = []
    for k in range(60):
        before = [one.clone() for one in agent.averaged.parameters()]
        agent.update(batch_of(t=[0, 1, 2, 3], reward=[1.0, 2.0, 3.0, 4.0], seed=k))
        online, now = (next(iter(one.parameters())) for one in (agent.online, agent.averaged))
        moved, way = (now - before[0]).norm().item(), (online - before[0]).norm().item()
        shares.append(moved / way)
    assert shares[:2] == pytest.approx([5 / 6, 5 / 7], rel=1e-4)
    assert shares[45:] == pytest.approx([0.1] * 15, rel=1e-3)
    batch = batch_of(t=[0, 1, 2, 3])
    asked = batch.observation, batch.t, batch.stock
    want = agent.averaged(torch.from_numpy(batch.observation), *map(torch.from_numpy, asked[1:]))
    np.testing.assert_array_equal(agent.greedy(*asked), want.mean((2, 3)).argmax(1))
    copied = make_agent(compose, "train.weight_average=0.9", seed=7)
    restore_agent(copied, agent_state(agent))
    assert copied.n_averaged == 60
    np.testing.assert_array_equal(copied.greedy(*asked), agent.greedy(*asked))


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


@pytest.mark.parametrize("network", ["mlp", "nature_cnn"])
def test_new_units_keep_the_function_of_the_networks(compose, network):
    env = make_env()
    small = ["tracker=none", "agent.quantiles=5", "risk=cvar"]
    if network == "nature_cnn":
        env.observation_shape = (2, 36, 36)
        small += ["network=nature_cnn", "network.hidden=8"]
    config = compose(small=small).config
    agent = Agent(config, env, CPU, 0)
    rng = np.random.default_rng(0)
    observation = torch.from_numpy(rng.random((4, *env.observation_shape), np.float32))
    t, stock = torch.arange(4), torch.tensor([-900.0, -400.0, 0.0, 100.0], dtype=torch.float64)
    ends = np.array([True, True])
    agent.returns.observe(np.array([-100.0, 200.0]), np.zeros(2), ends)
    follow(agent, keep=False)
    assert agent.values.scale == 8.0  # 200/8 = 25
    assert agent.online.stock_unit.tolist() == [-50.0, 150.0]
    before = agent.values.quantiles(agent.online(observation, t, stock), t, stock)
    agent.returns.observe(np.array([1000.0, 210.0]), np.zeros(2), ends)
    follow(agent, keep=True)
    assert agent.values.scale == 32.0
    assert agent.online.stock_unit.tolist() == [-450.0, 550.0]
    after = agent.values.quantiles(agent.online(observation, t, stock), t, stock)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-3)
    target = agent.values.quantiles(agent.target(observation, t, stock), t, stock)
    torch.testing.assert_close(target, before, rtol=1e-4, atol=1e-3)


def test_the_loss_is_compiled_for_the_targets_of_all_sampled_next_states(compose, monkeypatch):
    shapes = []

    def compiled(*sizes):
        def kernel(x, y, levels, kappa):
            shapes.append((tuple(x.shape), tuple(y.shape)))
            return fast_loss.sum_over_pairs(x, y, levels, kappa)

        return kernel

    monkeypatch.setattr(compiled_loss, "_from_file", compiled)
    agent = make_agent(
        compose, "train.steps=1_000_000_000_000", "train.batch_size=2", "train.next_state_samples=3"
    )
    agent.values.compile_loss(lambda note: None, 2, 3, 1e12)
    batch = batch_of(t=[0, 1], reward=[1.0, 2.0])
    batch.observation_next = np.zeros((6, 3), np.float32)
    batch.reward, batch.terminated = np.ones((1, 6)), np.zeros((1, 6), bool)
    batch.length = np.ones(6, np.int64)
    agent.update(batch)
    assert shapes == [((2, 5), (2, 15))] * 2


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


def test_the_stock_moves_over_several_steps(compose):
    agent = make_agent(compose, "risk=cvar", "discount=hyperbolic", "discount.k=1")
    batch = batch_of(t=[0, 1], stock=[5.0, -1.0])
    batch.reward = np.array([[1.0, 1.0], [2.0, 2.0]])
    batch.terminated, batch.length = np.zeros((2, 2), bool), np.array([2, 1])
    moved = agent.transitions(batch).stock_next
    assert moved.tolist() == pytest.approx([5.0 + 1.0 + 2.0 / 2.0, -1.0 + 1.0 / 2.0])
