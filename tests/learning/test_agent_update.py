"""A gradient step and all that follows it: compiled, in half precision, recorded and loaded."""

import functools

import numpy as np
import pytest
import torch
from agents import CPU, RISKS, batch_of, make_agent, make_env
from scripted import CallRecorder
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from rigor.learning import checkpoint, compiled_loss, fast_loss
from rigor.learning.agent import Agent
from rigor.learning.agent_state import agent_state, restore_agent
from rigor.learning.engine import WARM_UP, Recorded
from rigor.learning.replay import Transitions
from rigor.learning.units import follow


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


@pytest.mark.parametrize("risk", RISKS)
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


def test_the_unit_of_the_outputs_follows_the_returns_where_the_problem_has_bounds(compose):
    small = ["tracker=none", "env=gbwm", "env.periods=4", "train.reward_scale=null"]
    config = compose(small=small).config
    env = config.env.make(1, evaluation=False)
    agent = Agent(config, env, CPU, 0)
    assert agent.knows_bounds
    stock_unit = agent.stock_unit
    observation = torch.from_numpy(env.reset(np.random.SeedSequence(0)))
    asked = observation, torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    before = agent.values.quantiles(agent.online(*asked), *asked[1:])
    agent.returns.observe(np.array([1000.0]), np.zeros(1), np.array([True]))
    follow(agent, keep=True)
    assert agent.values.scale == 32.0  # 1000/32 = 31
    assert agent.stock_unit == stock_unit
    after = agent.values.quantiles(agent.online(*asked), *asked[1:])
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-3)


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
