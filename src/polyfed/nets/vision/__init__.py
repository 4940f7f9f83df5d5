"""Images: networks that were trained elsewhere, frozen with their features kept on disk, or as trunks that are trained on.

    vision.embed(["a.jpg", "b.jpg"], "efficientnet-lite2")             (2, 1280) features, computed once
    vision.backbone("resnet18", cut="layer3", grid=4, size=128)        the network up to a cut, as a module
    vision.trunk("resnet18", size=64, train="last")                    flat pixels → features, partly trained
    network = "polyfed.nets.vision:resnet18?cut=layer3&train=last"     the same in the options of a method
    network = "polyfed.nets.vision:resnet18?from=layer2&cut=layer3"    on the maps of embed(cut="layer2"), all that follows

Nothing here imports torchvision or Pillow before it is needed (`pip install 'polyfed[vision]'`).

>>> list(BACKBONES)[:3]
['resnet18', 'resnet18-layer3', 'efficientnet-b2']
"""

from __future__ import annotations

from collections.abc import Callable

from polyfed.nets.vision.building import backbone
from polyfed.nets.vision.cutting import Backbone
from polyfed.nets.vision.embedding import embed
from polyfed.nets.vision.images import read_images
from polyfed.nets.vision.registry import BACKBONES
from polyfed.nets.vision.trainable import Trunk, factory_of, trunk

__all__ = ["BACKBONES", "Backbone", "Trunk", "backbone", "embed", "read_images", "trunk"]


def __getattr__(name: str) -> Callable[[int], Trunk]:
    """Factories of trunks by name: a method's option can only be a text, `polyfed.nets.vision:NAME?cut=…&train=…`."""
    if name.partition("?")[0] in BACKBONES or ":" in name:
        return factory_of(name)
    raise AttributeError(f"polyfed.nets.vision has no {name!r}; backbones are {', '.join(BACKBONES)}")
