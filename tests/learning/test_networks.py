import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from rigor.config.schemas import Mlp, NatureCnn, SmallCnn
from rigor.envs.problem import Problem
from rigor.errors import UserError
from rigor.learning import fast_head
from rigor.learning.build_network import build_network
from rigor.learning.fast_head import FastHead
from rigor.learning.layers import NumberEmbedding, RbfFeatures
from rigor.learning.networks import Head
from rigor.learning.observations_seen import ObservationsSeen


def seen(observation, time_scale=10.0, **knows):
    """What a network is told of an environment."""
    return SimpleNamespace(
        observation_shape=observation, time_scale=time_scale, problem=Problem(**knows)
    )


def mlp(sees_time=True, sees_stock=True, shape=(3, 2, 5), hidden=(8,), observation=(4,)):
    torch.manual_seed(0)
    spec = Mlp(list(hidden), 0, 0, "none", False, "none")
    return build_network(
        spec, seen(observation), shape, sees_time, sees_stock, 100.0, make_head=FastHead
    )


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
    weight, bias = network.head.linear.weight[0], network.head.linear.bias
    by_hand = observation @ weight[:4] + t / 10.0 * weight[4] + stock / 100.0 * weight[5] + bias
    torch.testing.assert_close(network(observation, t, stock).flatten(), by_hand.float())


def test_one_encoding_serves_many_stocks():
    network = mlp()
    observation, t, stock = inputs()
    features = network.encode(observation)
    for c in (-1.0, 0.0, 5.0):
        moved = stock + c
        assert torch.equal(
            network.head(network.join(features, t, moved)), network(observation, t, moved)
        )


def test_images_are_scaled_to_one_and_read_alike_in_any_memory_layout():
    torch.manual_seed(0)
    env = seen((4, 36, 36), 1000.0)
    network = build_network(NatureCnn(16, 4, "none"), env, (2, 3, 5), True, True, 1.0)
    images = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    scalars = torch.tensor([0, 27_000]), torch.tensor([0.0, -3.0], dtype=torch.float64)
    before = images.clone()
    there = network(images, *scalars)
    assert there.shape == (2, 2, 3, 5)
    assert torch.isfinite(there).all()
    assert torch.equal(images, before)
    by_hand = network.head(network.join(network.encoder(images.float() / 255.0), *scalars))
    torch.testing.assert_close(there, by_hand)
    other = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(other, *scalars), there)


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.float32])
def test_the_small_network_by_hand(kind):
    torch.manual_seed(0)
    network = build_network(
        SmallCnn(5, 16, 4, "none"), seen((4, 10, 10)), (2, 3, 5), True, True, 1.0
    )
    cells = torch.randint(0, 2, (6, 4, 10, 10))
    images = (cells * 255 if kind == torch.uint8 else cells).to(kind)
    scalars = torch.arange(6), torch.linspace(-3, 3, 6, dtype=torch.float64)
    there = network(images, *scalars)
    assert there.shape == (6, 2, 3, 5)
    convolution = network.encoder[0]
    assert (convolution.kernel_size, convolution.out_channels) == ((3, 3), 5)
    features = convolution(cells.float()).relu().flatten(1)
    assert features.shape == (6, 5 * 8 * 8)
    torch.testing.assert_close(network.head(network.join(features, *scalars)), there)
    assert not torch.equal(network(images, scalars[0] + 1, scalars[1]), there)
    assert not torch.equal(network(images, scalars[0], scalars[1] + 1), there)


@pytest.mark.parametrize("observation", [(4,), (4, 2, 10)])
def test_the_small_network_refuses_what_is_no_image_or_too_small(observation):
    with pytest.raises(UserError, match=r"network=small_cnn: .*network=mlp"):
        build_network(SmallCnn(5, 16, 4, "none"), seen(observation), (2, 1, 5), True, False, 1.0)


def test_mlp_takes_images_too_and_in_the_order_of_their_pixels():
    network = mlp(False, False, shape=(1, 1, 1), hidden=(), observation=(2, 3, 4))
    images = torch.randint(0, 256, (5, 2, 3, 4), dtype=torch.uint8)
    zeros = torch.zeros(5)
    weight, bias = network.head.linear.weight, network.head.linear.bias
    by_hand = images.reshape(5, 24).float() / 255.0 @ weight[0] + bias
    torch.testing.assert_close(network(images, zeros, zeros).flatten(), by_hand)


def test_same_seed_same_weights():
    first, second = mlp(), mlp()
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize(
    ("observation", "instead"),
    [((4,), "mlp"), ((4, 35, 84), "small_cnn"), ((3, 8, 8), "small_cnn"), ((3, 2, 8), "mlp")],
)
def test_convolutions_refuse_what_is_no_image_or_too_small(observation, instead):
    with pytest.raises(UserError, match=rf"network=nature_cnn.*network={instead}$"):
        build_network(NatureCnn(16, 4, "none"), seen(observation), (2, 1, 5), True, False, 1.0)


@pytest.fixture(params=[0, 10**9], ids=["large", "small"])
def head(request, monkeypatch):
    """Let every head count as large or as small."""
    monkeypatch.setattr(fast_head, "LARGE", request.param)


def loss_of_actions(network, action, all_quantiles):
    hidden = network.hidden(*inputs())
    if all_quantiles:
        return network.head(hidden)[torch.arange(6), action].square().sum()
    return network.head.of_actions(hidden, action).square().sum()


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
    monkeypatch.setattr(fast_head, "LARGE", 0)
    network = mlp()
    for _ in range(2):
        network.zero_grad()
        loss_of_actions(network, torch.arange(6) % 3, False).backward()
        # autograd has taken it, not copied it
        assert network.head.linear.weight.grad.data_ptr() == network.head._gradient.data_ptr()


def test_means_are_those_of_the_quantiles_after_every_change_of_the_head():
    network = mlp()
    hidden = network.hidden(*inputs())
    for _ in range(2):
        with torch.no_grad():
            network.head.linear.weight.mul_(2.0)
            network.head.linear.bias.add_(1.0)
        assert network.head.means(hidden).shape == (6, 3, 2)
        expected = network.head(hidden).mean(3)
        torch.testing.assert_close(network.head.means(hidden), expected)


def test_rbf_features_of_a_coordinate_by_hand():
    network = RbfFeatures(3, lambda observation: 2.0 * observation)  # centres −3, 0, 3, width 3
    features = network(torch.tensor([[1.5], [-3.0]]))
    half, one, two = (float(np.exp(-0.5 * z * z)) for z in (1.0, 2.0, 3.0))
    assert features[0].tolist() == pytest.approx([one, half, 1.0, 1.0, 1.0])
    assert features[1].tolist() == pytest.approx([half, one, two, -1.0, 0.0])


BASIS = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, -2.0]])


@pytest.mark.parametrize("make_head", [Head, FastHead])
def test_actions_on_a_basis_are_combinations_of_the_sets(make_head):
    torch.manual_seed(0)
    env = seen((4,), action_basis=BASIS)
    network = build_network(
        Mlp([8], 0, 0, "polynomial", False, "none"),
        env,
        (3, 2, 5),
        False,
        False,
        1.0,
        make_head=make_head,
    )
    observation, t, stock = inputs()
    hidden = network.hidden(observation, t, stock)
    sets = network.head.linear(hidden).view(6, 2, 2, 5)
    found = network(observation, t, stock)
    for a, (first, second) in enumerate(BASIS):
        torch.testing.assert_close(found[:, a], first * sets[:, 0] + second * sets[:, 1])
    torch.testing.assert_close(network.head.means(hidden), found.mean(-1))
    action = torch.tensor([0, 1, 2, 2, 1, 0])
    torch.testing.assert_close(
        network.head.of_actions(hidden, action), found[torch.arange(6), action]
    )


@pytest.mark.parametrize(("rbf_features", "action_basis"), [(5, "none"), (0, "polynomial")])
def test_what_an_environment_does_not_declare_is_refused(rbf_features, action_basis):
    with pytest.raises(UserError, match=r"declares no .*use network\.rbf_features=0"):
        build_network(
            Mlp([8], 0, rbf_features, action_basis, False, "none"),
            seen((4,)),
            (3, 1, 5),
            True,
            False,
            1.0,
        )


def test_averaged_weights_follow_every_change_of_the_parameters():
    """A new parameter, one that a conversion replaced, a loaded one, and those of a deep copy."""
    hidden = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))

    def agrees(head, hidden=hidden):
        with torch.no_grad():
            return torch.allclose(head.means(hidden), head(hidden).mean(-1), atol=1e-6)

    head = FastHead(nn.Linear(8, 30), (3, 2, 5), None)
    assert agrees(head)
    head.linear.weight = nn.Parameter(torch.randn(30, 8))
    assert agrees(head)
    head.load_state_dict(FastHead(nn.Linear(8, 30), (3, 2, 5), None).state_dict(), assign=True)
    assert agrees(head)
    copied = copy.deepcopy(head)
    for _ in range(3):  # the copy's counters start at 0 and meet those of the original
        with torch.no_grad():
            copied.linear.weight.mul_(2.0)
        assert agrees(copied)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        head.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert agrees(head, hidden.double())


def test_the_memory_of_a_gradient_follows_a_conversion(monkeypatch):
    monkeypatch.setattr(fast_head, "LARGE", 1)
    head = FastHead(nn.Linear(8, 30), (3, 2, 5), None)
    for dtype in (torch.float32, torch.float64):
        head.to(dtype).zero_grad()
        hidden = torch.randn(4, 8, dtype=dtype)
        head.of_actions(hidden, torch.tensor([0, 2, 1, 0])).sum().backward()
        assert head.linear.weight.grad.dtype == dtype


def test_a_number_is_embedded_by_a_linear_layer_and_relu():
    embedding = NumberEmbedding(2, 3)
    with torch.no_grad():
        embedding.weight.copy_(torch.tensor([[1.0, -1.0, 2.0], [0.5, 0.0, 1.0]]))
        embedding.bias.copy_(torch.tensor([[0.0, 1.0, -3.0], [0.0, 2.0, -4.0]]))
    found = embedding(torch.tensor([[3.0, 4.0]]))
    assert found.tolist() == [[3.0, 0.0, 3.0, 2.0, 2.0, 0.0]]


@pytest.mark.parametrize(("hidden", "embedding"), [([8], 0), ([8], 6), ([], 0), ([], 6)])
def test_the_function_stays_when_the_units_of_its_inputs_change(hidden, embedding):
    torch.manual_seed(0)
    spec = Mlp(hidden, embedding, 0, "none", True, "none")
    network = build_network(spec, seen((2,)), (3, 2, 5), True, True, 100.0)
    assert sum(isinstance(part, NumberEmbedding) for part in network.modules()) == (
        3 if embedding else 0
    )
    network.rescale_observations(np.array([100.0, 5.0]), np.array([10.0, 1.0]), keep=False)
    observation = torch.tensor([[90.0, 5.0], [120.0, 7.0]])
    t, stock = torch.tensor([1, 2]), torch.tensor([0.0, 50.0], dtype=torch.float64)
    with torch.no_grad():
        before = network(observation, t, stock)
        assert not torch.allclose(network(observation + 1.0, t, stock), before)
        assert not torch.allclose(network(observation, t, stock + 20.0), before)
        network.rescale_observations(np.array([110.0, 4.0]), np.array([25.0, 3.0]), keep=True)
        torch.testing.assert_close(network(observation, t, stock), before, rtol=1e-4, atol=1e-5)
        network.rescale_stock(-40.0, 30.0, keep=True)
        torch.testing.assert_close(network(observation, t, stock), before, rtol=1e-4, atol=1e-5)


def test_observations_enter_in_their_unit():
    torch.manual_seed(0)
    spec = Mlp([8], 0, 0, "none", True, "none")
    network = build_network(spec, seen((2,)), (3, 2, 5), True, True, 100.0)
    network.rescale_observations(np.array([100.0, 5.0]), np.array([10.0, 1.0]), keep=False)
    observation = torch.tensor([[90.0, 5.0], [120.0, 7.0]])
    assert network.encode(observation).tolist() == [[-1.0, 0.0], [2.0, 2.0]]
    network.rescale_observations(np.array([110.0, 4.0]), np.array([25.0, 3.0]), keep=True)
    assert network.encode(observation)[1].tolist() == pytest.approx([0.4, 1.0])


def test_moments_of_observations_are_those_of_all_of_them():
    rng = np.random.default_rng(0)
    parts = [rng.normal(50.0, 4.0, (n, 2, 3)) for n in (1, 5, 30)]
    parts[0][:, 0, 0] = parts[1][:, 0, 0] = parts[2][:, 0, 0] = 7.0  # never changes
    seen_so_far = ObservationsSeen((2, 3))
    for part in parts:
        seen_so_far.observe(part)
    together = np.concatenate(parts).reshape(36, 6)
    np.testing.assert_allclose(seen_so_far.mean, together.mean(0))
    np.testing.assert_allclose(seen_so_far.deviation[1:], together.std(0)[1:])
    assert seen_so_far.deviation[0] == 1.0
    again = ObservationsSeen((2, 3))
    again.restore(seen_so_far.state())
    np.testing.assert_array_equal(again.deviation, seen_so_far.deviation)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (Mlp([8, 6], 0, 0, "none", False, "layer"), (4,)),
        (NatureCnn(16, 4, "layer"), (4, 36, 36)),
        (SmallCnn(5, 16, 4, "layer"), (4, 10, 10)),
    ],
)
def test_layer_normalisation_makes_the_inputs_of_every_relu_alike(spec, shape):
    network = build_network(spec, seen(shape), (2, 3, 5), True, True, 1.0)
    inputs = []
    parts = [*network.encoder.modules(), *network.torso.modules()]
    relus = [part for part in parts if isinstance(part, nn.ReLU)]
    for part in relus:
        part.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    observation = 100.0 * torch.rand(3, *shape)
    network(observation, torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.float64))
    norms = [part for part in parts if isinstance(part, nn.LayerNorm)]
    assert len(norms) == len(inputs) == len(relus)
    for found in inputs:  # over the units of a layer, over the channels of each pixel
        torch.testing.assert_close(
            found.mean(1), torch.zeros_like(found.mean(1)), atol=1e-4, rtol=0
        )
        assert found.std(1, correction=0).max() < 1.001
