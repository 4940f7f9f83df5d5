"""How each family of networks is built, and where it can be cut.

Cuts have the same names everywhere: `layerK` is the last map whose side is about 1/2^(K+1) of the image's (layer1 a quarter,
layer4 a 32nd). The parts before the cuts are the network's own modules, so that its weights load as they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from polyfed.errors import MissingExtraError
from polyfed.nets.vision.torchvision_door import torchvision_models

Stages = dict[str, nn.Module]


def from_torchvision(model: str) -> Callable[[int], nn.Module]:
    """A builder of this network, untrained. Those of torchvision take images of any size."""

    def build(size: int) -> nn.Module:
        return torchvision_models().get_model(model, weights=None)

    return build


def from_lite_package(model: str) -> Callable[[int], nn.Module]:
    """A builder of an EfficientNet-Lite, whose padding depends on the size of the images."""

    def build(size: int) -> nn.Module:
        try:
            package = importlib.import_module("efficientnet_lite_pytorch")
        except ModuleNotFoundError:
            what = "the package efficientnet-lite-pytorch is not installed"
            raise MissingExtraError(what, where=f"backbone {model!r}", remedy="pip install 'polyfed[vision]'") from None
        return package.EfficientNet.from_name(model, image_size=size)

    return build


def resnet(net: Any) -> Stages:
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
    return {"layer1": stem, "layer2": net.layer2, "layer3": net.layer3, "layer4": net.layer4}


def resnet_to_layer3(net: Any) -> Stages:
    return {name: stage for name, stage in resnet(net).items() if name != "layer4"}


def shufflenet(net: Any) -> Stages:
    stem, last = nn.Sequential(net.conv1, net.maxpool), nn.Sequential(net.stage4, net.conv5)
    return {"layer1": stem, "layer2": net.stage2, "layer3": net.stage3, "layer4": last}


def regnet(net: Any) -> Stages:
    blocks = net.trunk_output
    stem = nn.Sequential(net.stem, blocks.block1)
    return {"layer1": stem, "layer2": blocks.block2, "layer3": blocks.block3, "layer4": blocks.block4}


def features_until(*ends: int) -> Callable[[Any], Stages]:
    """Cuts of a network whose `features` are one row of modules: after the first `ends[0]` of them, and so on."""

    def stages(net: Any) -> Stages:
        starts = (0, *ends[:-1])
        return {f"layer{k}": net.features[a:b] for k, (a, b) in enumerate(zip(starts, ends, strict=True), start=1)}

    return stages


def efficientnet_lite(net: Any) -> Stages:
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
