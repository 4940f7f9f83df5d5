"""Trunks that begin at maps: an early part is computed once, what follows is trained."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.nets import Network, trunk_of, vision

NO_TORCHVISION = "torchvision (the extra vision) is not installed"
HALVES = "polyfed.nets.vision:tiny:halves?from=0"


def images(n=3, size=32):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def at_home(name, says):
    """A backbone whose package is here; without it, these tests are left out."""
    return pytest.param(name, marks=pytest.mark.skipif(not _found(name), reason=says))


def _found(name):
    packages = ["efficientnet_lite_pytorch"] if "lite" in name else ["torchvision", "PIL"]
    return all(find_spec(package) for package in packages)


@pytest.mark.parametrize(
    "name",
    [
        at_home("resnet18-layer3", NO_TORCHVISION),
        at_home("shufflenet-v2-2x", NO_TORCHVISION),
        at_home("squeezenet1.1", NO_TORCHVISION),
        at_home("efficientnet-lite0", "efficientnet-lite-pytorch is not installed"),
    ],
)
@pytest.mark.parametrize("size", [64, 75])
@pytest.mark.parametrize(("asked", "rest"), [("", {}), ("&cut=layer3&grid=2", {"cut": "layer3", "grid": 2})])
def test_what_follows_a_cut_is_what_follows_in_the_whole_network(name, size, asked, rest):
    whole = vision.backbone(name, size=size, weights="random", **rest)(images(size=size))
    maps = vision.backbone(name, size=size, weights="random", cut="layer2")(images(size=size))
    made = trunk_of(f"polyfed.nets.vision:{name}?from=layer2{asked}&weights=random", maps.shape[1])
    torch.testing.assert_close(made.eval()(maps.double()).float(), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not (find_spec("torchvision") and find_spec("PIL")), reason=NO_TORCHVISION)
def test_on_the_maps_that_embed_keeps(tmp_path):
    """The whole way of a user: files of images, kept maps, a trunk on them."""
    Image = pytest.importorskip("PIL.Image", reason="images are read by Pillow (the extra vision)")
    rng, paths = np.random.default_rng(0), [tmp_path / f"{i}.png" for i in range(4)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(path)
    maps = vision.embed(paths, "resnet18-layer3", size=32, cut="layer2", weights="random", cache_dir=tmp_path)
    assert maps.shape == (4, 128 * 4 * 4)
    made = trunk_of("polyfed.nets.vision:resnet18-layer3?from=layer2&cut=layer3&weights=random", maps.shape[1])
    whole = vision.backbone("resnet18-layer3", size=32, weights="random")  # cut="pool": the means of the channels
    expected = whole(torch.from_numpy(vision.read_images(paths, 32)))
    torch.testing.assert_close(made.eval()(torch.from_numpy(maps)), expected, rtol=1e-5, atol=1e-5)


def test_all_that_follows_is_trained_and_starts_from_what_was_learned(tiny):
    net = Network({"pulse": 1}, 3 * 4 * 4, factory=HALVES)
    values = net.initial(seed=5)
    assert [n.removeprefix("trunk.stages.") for n in values if n.endswith(("weight", "bias")) and n[:5] == "trunk"] == [
        "1.0.weight",
        "1.0.bias",
        "1.1.weight",
        "1.1.bias",
    ]
    torch.testing.assert_close(values["trunk.stages.1.0.weight"].float(), tiny.halves()[1][0].weight.detach())
    live = {n: v.clone().requires_grad_(v.is_floating_point() and n not in net.buffers) for n, v in values.items()}
    net(live, torch.rand(5, 48).double(), "pulse", train=True).square().mean().backward()
    assert live["trunk.stages.1.0.weight"].grad.abs().max() > 0


def test_maps_are_taken_as_they_come(tiny):
    """By hand: the mean over the map of the convolution, the norm and the cut at zero."""
    maps = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(2))
    conv, norm = tiny.halves()[1][:2]
    norm.eval()
    expected = norm(conv(maps)).clamp_min(0).mean((2, 3)).detach()
    torch.testing.assert_close(trunk_of(HALVES, 48).eval()(maps.flatten(1)), expected)


def test_earlier_weights_that_differ_from_the_servers_are_told(tiny):
    """The maps came from them, though the trunk itself no longer uses them."""
    early, rest = torch.nn.Conv2d(3, 3, 1), tiny.halves()
    tiny.three = lambda: torch.nn.Sequential(early, *rest)
    server = trunk_of("polyfed.nets.vision:tiny:three?from=1", 48).state_dict()
    early.bias.data += 1e-3
    client = trunk_of("polyfed.nets.vision:tiny:three?from=1", 48)
    client(torch.zeros(1, 48))
    client.load_state_dict(server)
    with pytest.raises(ConfigError, match="frozen weights of the backbone here differ"):
        client(torch.zeros(1, 48))


@pytest.mark.parametrize(
    ("factory", "n", "says"),
    [
        (
            HALVES,
            50,
            "50 features are not square maps of the 3 channels at from='0'; give 3·side·side columns, as embed",
        ),
        (HALVES, 2, "2 features are not square maps"),
        ("polyfed.nets.vision:tiny:halves?from=1", 48, "nothing follows from '1' up to 'pool'; .*known are '0'"),
        ("polyfed.nets.vision:tiny:halves?from=0&cut=0", 48, "nothing follows from '0' up to '0'; give a later cut"),
        ("polyfed.nets.vision:tiny:halves?from=0&train=some", 48, "train 'some' is unknown"),
        ("polyfed.nets.vision:tiny:halves?from=0&grid=9&cut=1", 48, "a map of 4×4 for a grid of 9"),
    ],
)
@pytest.mark.usefixtures("tiny")
def test_maps_that_make_no_sense(factory, n, says):
    with pytest.raises(ConfigError, match=says):
        trunk_of(factory, n)


def test_rows_instead_of_maps(tiny):
    tiny.flat = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Identity())
    with pytest.raises(ConfigError, match="stage '0' makes no map; begin at an earlier one"):
        trunk_of("polyfed.nets.vision:tiny:flat?from=0", 48)
