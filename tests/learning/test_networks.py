from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rigor.errors import UserError
from rigor.learning import networks
from rigor.learning.networks import Bumps, build_network
from rigor.schemas import Mlp, NatureCnn


def seen(observation, time_scale=10.0, **knows):
    """What a network is told of an environment."""
    return SimpleNamespace(observation_shape=observation, time_scale=time_scale, **knows)


def mlp(sees_time=True, sees_stock=True, shape=(3, 2, 5), hidden=(8,), observation=(4,)):
    torch.manual_seed(0)
    spec = Mlp(list(hidden), 0, "separate")
    return build_network(spec, seen(observation), shape, sees_time, sees_stock, 100.0)


def inputs(batch=6, observation=(4,)):
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(batch, *observation, generator=generator),
        torch.arange(batch),
        torch.linspace(-300.0, 300.0, batch, dtype=torch.float64),
    )


def test_shape_is_batch_actions_horizons_quantiles():
    assert mlp()(*inputs()).shape == (6, 3, 2, 5)


@pytest.mark.parametrize("sees_time", [True, False])
@pytest.mark.parametrize("sees_stock", [True, False])
def test_only_what_it_sees_changes_what_it_says(sees_time, sees_stock):
    network = mlp(sees_time, sees_stock)
    observation, t, stock = inputs()
    there = network(observation, t, stock)
    later, richer = network(observation, t + 7, stock), network(observation, t, stock + 50.0)
    assert torch.equal(there, later) is not sees_time
    assert torch.equal(there, richer) is not sees_stock


def test_scalars_enter_in_units_of_their_scales():
    network = mlp(hidden=(), shape=(1, 1, 1))
    observation, t, stock = inputs()
    weight, bias = network.head.weight[0], network.head.bias
    by_hand = observation @ weight[:4] + t / 10.0 * weight[4] + stock / 100.0 * weight[5] + bias
    torch.testing.assert_close(network(observation, t, stock).flatten(), by_hand.float())


def test_one_encoding_serves_many_stocks():
    network = mlp()
    observation, t, stock = inputs()
    features = network.encode(observation)
    for c in (-1.0, 0.0, 5.0):
        moved = stock + c
        assert torch.equal(network.read(features, t, moved), network(observation, t, moved))


def test_images_are_scaled_to_one_and_read_alike_in_any_memory_layout():
    torch.manual_seed(0)
    env = seen((4, 36, 36), 1000.0)
    network = build_network(NatureCnn(16, 4), env, (2, 3, 5), True, True, 1.0)
    images = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    scalars = torch.tensor([0, 27_000]), torch.tensor([0.0, -3.0], dtype=torch.float64)
    before = images.clone()
    there = network(images, *scalars)
    assert there.shape == (2, 2, 3, 5)
    assert torch.isfinite(there).all()
    assert torch.equal(images, before)
    by_hand = network.read(network.encoder(images.float() / 255.0), *scalars)
    torch.testing.assert_close(there, by_hand)
    other = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(other, *scalars), there)


def test_mlp_takes_images_too_and_in_the_order_of_their_pixels():
    network = mlp(False, False, shape=(1, 1, 1), hidden=(), observation=(2, 3, 4))
    images = torch.randint(0, 256, (5, 2, 3, 4), dtype=torch.uint8)
    zeros = torch.zeros(5)
    by_hand = images.reshape(5, 24).float() / 255.0 @ network.head.weight[0] + network.head.bias
    torch.testing.assert_close(network(images, zeros, zeros).flatten(), by_hand)


def test_same_seed_same_weights():
    first, second = mlp(), mlp()
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("observation", [(4,), (4, 35, 84), (3, 8, 8)])
def test_convolutions_refuse_what_is_no_image_or_too_small(observation):
    with pytest.raises(UserError, match=r"network=nature_cnn.*network=mlp"):
        build_network(NatureCnn(16, 4), seen(observation), (2, 1, 5), True, False, 1.0)


@pytest.fixture(params=[0, 10**9], ids=["large", "small"])
def head(request, monkeypatch):
    """Let every head count as large or as small."""
    monkeypatch.setattr(networks, "_LARGE_HEAD", request.param)


def loss_of_actions(network, action, all_quantiles):
    hidden = network.hidden(*inputs())
    if all_quantiles:
        return network.quantiles(hidden)[torch.arange(6), action].square().sum()
    return network.of_actions(hidden, action).square().sum()


@pytest.mark.usefixtures("head")
def test_quantiles_of_one_action_each_and_their_gradients():
    network, plain = mlp(), mlp()
    for taken in ([0, 2, 0, 0, 2, 2], [1] * 6, [2, 1, 0, 2, 1, 0]):
        action = torch.tensor(taken)
        for one, all_quantiles in ((network, False), (plain, True)):
            one.zero_grad()
            loss_of_actions(one, action, all_quantiles).backward()
        for here, there in zip(network.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(here.grad, there.grad)


@pytest.mark.usefixtures("head")
def test_gradients_of_two_backward_passes_add_up():
    network, plain = mlp(), mlp()
    for taken in ([0, 2, 0, 0, 2, 2], [1] * 6, [2, 1, 0, 2, 1, 0]):
        for one, all_quantiles in ((network, False), (plain, True)):
            loss_of_actions(one, torch.tensor(taken), all_quantiles).backward()
    for here, there in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(here.grad, there.grad)


def test_the_gradient_of_a_large_head_keeps_its_memory(monkeypatch):
    monkeypatch.setattr(networks, "_LARGE_HEAD", 0)
    network = mlp()
    for _ in range(2):
        network.zero_grad()
        loss_of_actions(network, torch.arange(6) % 3, False).backward()
        # autograd has taken it, not copied it
        assert network.head.weight.grad.data_ptr() == network._head_gradient.data_ptr()


def test_means_are_those_of_the_quantiles_until_the_head_changes_and_is_said_to():
    network = mlp()
    hidden = network.hidden(*inputs())
    for _ in range(2):
        with torch.no_grad():
            network.head.weight.mul_(2.0)
            network.head.bias.add_(1.0)
        network.forget_means()
        assert network.means(hidden).shape == (6, 3, 2, 1)
        expected = network.quantiles(hidden).mean(3, keepdim=True)
        torch.testing.assert_close(network.means(hidden), expected)


def test_bumps_of_a_coordinate_by_hand():
    network = Bumps(3, lambda observation: 2.0 * observation)  # middles −3, 0, 3, width 3
    features = network(torch.tensor([[1.5], [-3.0]]))
    half, one, two = (float(np.exp(-0.5 * z * z)) for z in (1.0, 2.0, 3.0))
    assert features[0].tolist() == pytest.approx([one, half, 1.0, 1.0, 1.0])
    assert features[1].tolist() == pytest.approx([half, one, two, -1.0, 0.0])


BASIS = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -2.0]])


def test_actions_on_a_basis_are_combinations_of_the_sets():
    torch.manual_seed(0)
    env = seen((4,), action_basis=BASIS)
    network = build_network(Mlp([8], 0, "smooth"), env, (3, 2, 5), False, False, 1.0)
    observation, t, stock = inputs()
    hidden = network.hidden(observation, t, stock)
    sets = network.head(hidden).view(6, 2, 2, 5)
    found = network(observation, t, stock)
    for a, (first, second) in enumerate(BASIS):
        torch.testing.assert_close(found[:, a], first * sets[:, 0] + second * sets[:, 1])
    torch.testing.assert_close(network.means(hidden), found.mean(-1, keepdim=True))
    action = torch.tensor([0, 1, 2, 2, 1, 0])
    torch.testing.assert_close(network.of_actions(hidden, action), found[torch.arange(6), action])


@pytest.mark.parametrize(("bumps", "actions"), [(5, "separate"), (0, "smooth")])
def test_what_an_environment_does_not_declare_is_refused(bumps, actions):
    with pytest.raises(UserError, match=r"declares no .*use network\.bumps=0"):
        build_network(Mlp([8], bumps, actions), seen((4,)), (3, 1, 5), True, False, 1.0)
