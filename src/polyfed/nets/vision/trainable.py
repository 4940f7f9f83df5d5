"""Backbones as trunks of networks: flat pixels or maps in, features out, and a choice of what is trained.

What is frozen is at home on every machine and is none of the trunk's parameters: it is not sent round after round, and stays
float32. A fingerprint of it travels instead, so that other weights are noticed.

>>> net = trunk("torch.nn:Identity", size=4)
>>> net(torch.zeros(2, 3 * 4 * 4, dtype=torch.float64)).shape, list(net.state_dict())
(torch.Size([2, 3]), ['fingerprint'])
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from math import isqrt
from pathlib import Path
from urllib.parse import parse_qsl

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polyfed.errors import ConfigError, nearest
from polyfed.nets.vision.building import backbone
from polyfed.nets.vision.cutting import POOL, Backbone, digest_of, in_memory, place_of
from polyfed.nets.vision.weights import RANDOM

TRAIN = ("none", "last", "all")
_OPTIONS = ("from", "cut", "grid", "train", "weights", "weights_dir")


class Trunk(nn.Module):
    """(rows, 3·size·size) pixels with colours in [0, 1], colour by colour and line by line → (rows, n_features).

    With `begin`, the rows are the maps of that stage instead, channel by channel, as `embed(cut=begin)` makes them.
    Computes in float32 and answers in the type of its inputs. Frozen batch norms keep their statistics.
    """

    fingerprint: Tensor

    def __init__(self, net: Backbone, train: str, *, learned: bool, begin: str | None = None) -> None:
        super().__init__()
        if train not in TRAIN:
            raise ConfigError(f"train {train!r} is unknown", remedy=nearest(train, TRAIN))
        names = [name for name, _ in net.stages.named_children()]
        first = 0 if begin is None else names.index(begin) + 1
        n = {"none": 0, "last": 1, "all": len(names) - first}[train]
        frozen = nn.Sequential(*list(net.stages)[: len(names) - n])
        self.begin, self.n_features = begin, net.n_features
        self.shape = (3, net.size, net.size) if begin is None else net.shapes[begin]  # of an input
        # In a tuple torch does not see them: they are none of the parameters.
        self._at_home = (net, frozen[first:])
        trained = names[len(names) - n :]
        self.stages = nn.Sequential(OrderedDict((name, net.stages.get_submodule(name)) for name in trained))
        self.stages.requires_grad_(True)
        # A network that starts anew then starts from what it has.
        self.stages.pretrained = learned  # pyright: ignore[reportArgumentType]
        # Small whole numbers: they survive averaging and any type of number.
        digest = digest_of(frozen)
        self.register_buffer("fingerprint", torch.tensor([int(digest[i : i + 4], 16) for i in range(0, 16, 4)]))
        self._own_fingerprint = self.fingerprint.clone()

    def forward(self, x: Tensor) -> Tensor:
        if not torch.equal(self.fingerprint.to(torch.int64), self._own_fingerprint):
            what = "the frozen weights of the backbone here differ from those with which training began"
            raise ConfigError(what, remedy="give the same file of weights on every machine")
        net, frozen = self._at_home
        shaped = x.reshape(len(x), *self.shape)
        with torch.no_grad():
            maps = frozen(net.normalise(shaped) if self.begin is None else in_memory(shaped.to(torch.float32)))
        return net.read_out(self._trained(maps)).to(x.dtype)

    def train(self, mode: bool = True) -> Trunk:
        super().train(mode)
        for layer in self.stages.modules():
            # They draw from torch's global generator, which no seed of a run reaches.
            if isinstance(layer, nn.modules.dropout._DropoutNd) or type(layer).__name__ == "StochasticDepth":
                layer.eval()
        return self

    def _trained(self, maps: Tensor) -> Tensor:
        """The trained stages in float32, also where all parameters were made float64, as methods keep them."""
        parameters, buffers = dict(self.stages.named_parameters()), dict(self.stages.named_buffers())
        single = {n: v.to(torch.float32) if v.is_floating_point() else v for n, v in (parameters | buffers).items()}
        made = functional_call(self.stages, single, (maps,)) if single else self.stages(maps)
        with torch.no_grad():
            for name, buffer in buffers.items():  # running statistics moved on in the copies
                if single[name] is not buffer:
                    buffer.copy_(single[name])
        return made


def trunk(
    name: str,
    *,
    size: int | None = None,
    cut: str = POOL,
    grid: int | None = None,
    begin: str | None = None,
    train: str = "none",
    weights: str | Path | None = None,
    weights_dir: str | Path | None = None,
) -> Trunk:
    """A backbone as a trunk. Trained are: nothing, the last stage before the cut, or all.

    With `begin`, an earlier cut, the inputs are the maps there, of images of this size; trained is only what follows.
    """
    net = backbone(name, cut=cut, grid=grid, size=size, weights=weights, weights_dir=weights_dir)
    if begin is not None:
        _check_begin(net, begin)
    return Trunk(net, train, learned=weights != RANDOM, begin=begin)


def _check_begin(net: Backbone, begin: str) -> None:
    earlier = list(net.shapes)[:-1]
    if begin not in earlier:
        remedy = nearest(begin, earlier) if earlier else "give a later cut"
        raise ConfigError(f"nothing follows from {begin!r} up to {net.cut!r}", where=place_of(net.name), remedy=remedy)
    if len(net.shapes[begin]) != 3:
        raise ConfigError(f"stage {begin!r} makes no map", where=place_of(net.name), remedy="begin at an earlier one")


def factory_of(text: str) -> Callable[[int], Trunk]:
    """The factory that `NAME?cut=layer3&grid=4&train=last` names; it takes the number of pixels' values.

    `NAME?from=layer2&cut=layer3` begins at maps, and takes the number of their values. It trains all that follows, and
    pools what comes last unless there is a `grid`: a whole map has more numbers than clients have images.
    """
    name, _, query = text.partition("?")
    options: dict = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in _OPTIONS:
            raise ConfigError(f"option {option!r} of a backbone is unknown", remedy=nearest(option, _OPTIONS))
    if "grid" in options:
        if not options["grid"].isdecimal():
            raise ConfigError(f"grid is {options['grid']!r}", remedy="give a whole number")
        options["grid"] = int(options["grid"])
    if "from" in options:
        return partial(_for_maps, name, options.pop("from"), options)
    return partial(_for_pixels, name, options)


def _for_pixels(name: str, options: dict, n_features: int) -> Trunk:
    size = isqrt(n_features // 3)
    if n_features != 3 * size * size:
        what = f"{n_features} features are not the pixels of a square image in three colours"
        raise ConfigError(what, where=place_of(name), remedy="give 3·size·size columns")
    return trunk(name, size=size, **options)


def _for_maps(name: str, begin: str, options: dict, n_features: int) -> Trunk:
    options = {"train": "all", **options}
    if options.get("cut", POOL) != POOL:
        options.setdefault("grid", 1)
    known = backbone(name, cut=options.get("cut", POOL), weights=RANDOM)  # what its maps are, at the size it expects
    _check_begin(known, begin)
    channels, expected, _ = known.shapes[begin]
    side = isqrt(n_features // channels)
    # Networks that pad by the size of the image need one; any that makes maps of this side will do.
    size = known.size * side // expected
    made = None if n_features != channels * side * side else trunk(name, size=size, begin=begin, **options)
    if made is None or made.shape != (channels, side, side):
        what = f"{n_features} features are not square maps of the {channels} channels at from={begin!r}"
        remedy = f"give {channels}·side·side columns, as embed(cut={begin!r}) makes them"
        raise ConfigError(what, where=place_of(name), remedy=remedy)
    return made
