"""Backbones by name, with their weights: networks up to a cut, images in, one row of features for each out.

>>> net = backbone("torch.nn:Identity", size=8)  # any factory without arguments
>>> net.n_features, net(torch.rand(2, 3, 8, 8)).shape
(3, torch.Size([2, 3]))
"""

from __future__ import annotations

import importlib
from pathlib import Path

import torch
from torch import nn

from polyfed.errors import ConfigError
from polyfed.nets.vision.cutting import POOL, Backbone, place_of
from polyfed.nets.vision.registry import recipe_of
from polyfed.nets.vision.weights import RANDOM, find_weights, load_weights, read_weights

_SMALLEST = 32  # pixels; the last map of a known backbone has one point then
_SIZE_OF_FACTORIES = 224


def backbone(
    name: str,
    *,
    cut: str = POOL,
    grid: int | None = None,
    size: int | None = None,
    weights: str | Path | None = None,
    weights_dir: str | Path | None = None,
) -> Backbone:
    """A backbone by its name in BACKBONES, or of a factory `package.module:factory` without arguments.

    A factory's module takes colours in [0, 1] and gives features or maps; if it is a Sequential, its children are its cuts.
    """
    if ":" in name:
        module = _made_by(name)
        if weights not in (None, RANDOM):
            load_weights(name, module, [module], read_weights(Path(weights)))
        stages = dict(module.named_children()) if isinstance(module, nn.Sequential) else {"layer1": module}
        return Backbone(name, stages, _checked(name, _SIZE_OF_FACTORIES if size is None else size, least=1), cut, grid)
    recipe = recipe_of(name)
    size = _checked(name, recipe.size if size is None else size, least=_SMALLEST)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # weights="random" shall be the same weights every time
        net = recipe.build(size)
    stages = recipe.stages(net)
    if weights != RANDOM:
        load_weights(name, net, stages.values(), find_weights(name, recipe, weights, weights_dir))
    return Backbone(name, stages, size, cut, grid, recipe.normal)


def _made_by(name: str) -> nn.Module:
    place, _, factory = name.partition(":")
    try:
        make = getattr(importlib.import_module(place), factory)
    except (ImportError, AttributeError, ValueError) as error:
        remedy = "give 'package.module:factory'"
        raise ConfigError(f"it cannot be found ({error})", where=place_of(name), remedy=remedy) from error
    try:
        made = make()
    except TypeError as error:
        remedy = "give a factory without arguments"
        raise ConfigError(f"its factory cannot be called ({error})", where=place_of(name), remedy=remedy) from error
    if not isinstance(made, nn.Module):
        what = f"its factory made a {type(made).__name__}"
        raise ConfigError(what, where=place_of(name), remedy="return a torch.nn.Module")
    return made


def _checked(name: str, size: object, *, least: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < least:
        remedy = f"give the side of the images, at least {least} pixels"
        raise ConfigError(f"size is {size!r}", where=place_of(name), remedy=remedy)
    return size
