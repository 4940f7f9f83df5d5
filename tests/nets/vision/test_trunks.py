"""Backbones as trunks: what is trained, what stays, and that methods can use them."""

import copy

import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.nets import Network, trunk_of, vision

pytestmark = pytest.mark.usefixtures("tiny")
LAST = "polyfed.nets.vision:tiny:halves?train=last"
PIXELS = 3 * 8 * 8


def pixels(rows=6, dtype=torch.float64):
    return torch.rand(rows, PIXELS, dtype=dtype, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trunk_gives_the_features_of_its_backbone_in_the_type_of_its_inputs(dtype):
    x = pixels(dtype=dtype)
    made = vision.trunk("tiny:halves", size=8)(x)
    assert made.dtype == dtype
    images = x.reshape(6, 3, 8, 8).to(torch.float32)
    torch.testing.assert_close(made.to(torch.float32), vision.backbone("tiny:halves", size=8)(images))


@pytest.mark.parametrize(
    ("train", "names"), [("none", []), ("last", ["1.0.weight", "1.0.bias", "1.1.weight", "1.1.bias"])]
)
def test_only_what_is_trained_is_a_parameter(train, names):
    net = vision.trunk("tiny:halves", size=8, train=train)
    assert [name.removeprefix("stages.") for name, _ in net.named_parameters()] == names
    _, frozen = net._at_home
    assert not any(p.requires_grad for p in frozen.parameters())
    assert all(p.requires_grad for p in net.parameters())


def test_frozen_stages_do_not_move_in_training(tiny):
    plain = tiny.halves
    tiny.turned = lambda: torch.nn.Sequential(plain()[1], torch.nn.AvgPool2d(2))  # the batch norm comes first
    net = vision.trunk("tiny:turned", size=8, train="last").train()
    before = net(pixels())
    net(pixels(rows=20))
    torch.testing.assert_close(net(pixels()), before, rtol=0, atol=0)


def test_a_trained_batch_norm_counts_and_dropout_draws_nothing():
    net = vision.trunk("tiny:halves", size=8, train="last").train()
    mean, state = net.stages.get_buffer("1.1.running_mean").clone(), torch.get_rng_state()
    net(pixels())
    assert not torch.equal(net.stages.get_buffer("1.1.running_mean"), mean)
    assert torch.equal(torch.get_rng_state(), state)
    net.eval()
    torch.testing.assert_close(net(pixels()), net(pixels()))


def test_a_network_starts_from_what_was_learned_and_descends():
    net = Network({"pulse": 1}, PIXELS, factory=LAST)
    values, learned = net.initial(seed=5), vision.trunk("tiny:halves", size=8).to(torch.float64)
    torch.testing.assert_close(net.features(values, pixels(), "pulse"), learned(pixels()))
    live = {n: v.clone().requires_grad_(v.is_floating_point() and n not in net.buffers) for n, v in values.items()}
    loss = net(live, pixels(), "pulse", train=True).square().mean()
    loss.backward()
    gradient = live["trunk.stages.1.0.weight"].grad
    assert gradient is not None
    assert gradient.dtype == torch.float64
    assert gradient.abs().max() > 0
    assert live["trunk.stages.1.1.num_batches_tracked"] == 1
    moved = (live["trunk.stages.1.1.running_mean"] - values["trunk.stages.1.1.running_mean"]).abs().max()
    assert moved > 1e-4


def test_random_weights_may_be_drawn_anew():
    net = Network({"pulse": 1}, PIXELS, factory=f"{LAST}&weights=random")
    first, second = net.initial(seed=5), net.initial(seed=6)
    assert not torch.equal(first["trunk.stages.1.0.weight"], second["trunk.stages.1.0.weight"])


def test_a_frozen_network_has_features_though_nothing_of_it_travels():
    net = Network({"pulse": 1}, PIXELS, factory="polyfed.nets.vision:tiny:halves?cut=0&grid=2")
    values = net.initial(seed=0)
    assert [name for name in values if name.startswith("trunk.")] == ["trunk.fingerprint"]
    by_hand = pixels().reshape(6, 3, 2, 4, 2, 4).mean((3, 5)).flatten(1)
    torch.testing.assert_close(net.features(values, pixels(), "pulse"), by_hand, atol=1e-6, rtol=0)


def test_other_frozen_weights_than_the_servers_are_told(tiny):
    server = vision.trunk("tiny:halves", size=8).state_dict()
    other = tiny.halves()
    other[1][0].bias.data += 1e-3
    tiny.halves = lambda: other
    client = vision.trunk("tiny:halves", size=8)
    client(pixels())
    client.load_state_dict(server)
    with pytest.raises(ConfigError, match=r"frozen weights of the backbone here differ .*the same file of weights"):
        client(pixels())


def test_a_trunk_can_be_copied():
    net = vision.trunk("tiny:halves", size=8, train="last").eval()
    twin = copy.deepcopy(net)
    twin.stages.get_parameter("1.0.bias").data += 1
    assert not torch.equal(twin(pixels()), net(pixels()))


@pytest.mark.parametrize(
    ("factory", "n", "says"),
    [
        (LAST, 100, "100 features are not the pixels of a square image in three colours"),
        ("polyfed.nets.vision:resnet19", PIXELS, "resnet19.* cannot be found .*backbones are resnet18,"),
        ("polyfed.nets.vision:tiny:halves?depth=3", PIXELS, "option 'depth' of a backbone is unknown"),
        ("polyfed.nets.vision:tiny:halves?cut=0&grid=x", PIXELS, "grid is 'x'; give a whole number"),
        (
            "polyfed.nets.vision:tiny:halves?train=some",
            PIXELS,
            "train 'some' is unknown; known are 'none', 'last', 'all'",
        ),
    ],
)
def test_factories_that_make_no_sense(factory, n, says):
    with pytest.raises(ConfigError, match=says):
        trunk_of(factory, n)
