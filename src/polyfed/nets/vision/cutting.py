"""A network up to a cut: images in, one row of features for each out.

>>> net = Backbone("mine", {"layer1": nn.AvgPool2d(4), "layer2": nn.Identity()}, size=8, cut="layer1", grid=None)
>>> net.n_features, net(torch.rand(5, 3, 8, 8)).shape  # 3 colours of 2×2 points
(12, torch.Size([5, 12]))
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict

import torch
from torch import Tensor, nn

from polyfed.errors import ConfigError, nearest

POOL = "pool"


class Backbone(nn.Module):
    """Stages up to a cut, and what is made of the last map.

    Takes (images, 3, size, size) with colours in [0, 1]; gives (images, n_features), float32.
    `cut="pool"`: the mean of each channel. Another cut: the map itself, as means over a grid×grid raster if `grid` is given.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        stages: dict[str, nn.Module],
        size: int,
        cut: str,
        grid: int | None,
        normal: tuple[tuple[float, ...], tuple[float, ...]] = ((0.0,) * 3, (1.0,) * 3),
    ) -> None:
        super().__init__()
        if cut != POOL and cut not in stages:
            raise ConfigError(f"cut {cut!r} is unknown", where=place_of(name), remedy=nearest(cut, [*stages, POOL]))
        if grid is not None and cut == POOL:
            last = list(stages)[-1]
            raise ConfigError(f"cut='pool' has no grid of {grid}", where=place_of(name), remedy=f"give cut={last!r}")
        if grid is not None and (isinstance(grid, bool) or not isinstance(grid, int) or grid < 1):
            raise ConfigError(f"grid is {grid!r}", where=place_of(name), remedy="give a whole number from 1")
        self.name, self.size, self.cut, self.grid = name, size, cut, grid
        last = len(stages) if cut == POOL else list(stages).index(cut) + 1
        self.stages = nn.Sequential(OrderedDict(list(stages.items())[:last]))
        for buffer, values in zip(("mean", "std"), normal, strict=True):
            self.register_buffer(buffer, torch.tensor(values).reshape(1, 3, 1, 1))
        self.eval().requires_grad_(False)
        self.shapes: dict[str, tuple[int, ...]] = {}  # stage → the shape of its map of one image
        self.n_features = self._try()

    def forward(self, images: Tensor) -> Tensor:
        return self.read_out(self.stages(self.normalise(images)))

    def normalise(self, images: Tensor) -> Tensor:
        return in_memory((images.to(torch.float32) - self.mean) / self.std)

    def read_out(self, maps: Tensor) -> Tensor:
        """The row of features that is made of the last map; what is a row already stays so."""
        if maps.dim() == 2:
            return maps
        if self.cut == POOL:
            return maps.mean((2, 3))
        return (maps if self.grid is None else nn.functional.adaptive_avg_pool2d(maps, self.grid)).flatten(1)

    @property
    def digest(self) -> str:
        """What the numbers depend on, apart from the image: layers, weights, size, cut and grid."""
        # Addresses in the description of a layer change from run to run.
        layers = re.sub(r"0x[0-9a-f]+", "", repr(self.stages))
        total = hashlib.sha256(f"{self.name}|{self.size}|{self.cut}|{self.grid}|{layers}".encode())
        total.update(digest_of(self).encode())
        return total.hexdigest()

    def _try(self) -> int:
        """The number of features, found by trying: a factory may return anything."""
        with torch.no_grad():
            try:
                maps = self.normalise(torch.zeros(2, 3, self.size, self.size))
                for name, stage in self.stages.named_children():
                    maps = stage(maps)
                    if isinstance(maps, Tensor):
                        self.shapes[name] = tuple(maps.shape[1:])
            except Exception as error:  # whatever a module of somebody else raises
                what = f"it does not take images of {self.size}×{self.size} ({str(error).splitlines()[0]})"
                remedy = "give another size, or a network that takes (images, 3, size, size)"
                raise ConfigError(what, where=place_of(self.name), remedy=remedy) from error
        if not isinstance(maps, Tensor) or maps.dim() not in (2, 4) or len(maps) != 2:
            made = f"the shape {tuple(maps.shape)}" if isinstance(maps, Tensor) else f"a {type(maps).__name__}"
            remedy = "return (images, features) or their maps"
            raise ConfigError(f"it makes {made} of 2 images", where=place_of(self.name), remedy=remedy)
        if self.grid is not None and (maps.dim() == 2 or self.grid > min(maps.shape[2:])):
            side = "no map" if maps.dim() == 2 else f"a map of {maps.shape[2]}×{maps.shape[3]}"
            what = f"cut {self.cut!r} has {side} for a grid of {self.grid}"
            remedy = "give a smaller grid, an earlier cut or larger images"
            raise ConfigError(what, where=place_of(self.name), remedy=remedy)
        return self.read_out(maps).shape[1]


def in_memory(maps: Tensor) -> Tensor:
    """Maps as convolutions want them: channels last, a fifth less time for depthwise ones (CPU, 8 images at once)."""
    return maps.contiguous(memory_format=torch.channels_last)


def digest_of(module: nn.Module) -> str:
    total = hashlib.sha256()
    for key, tensor in module.state_dict().items():
        total.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def place_of(name: str) -> str:
    return f"backbone {name!r}"
