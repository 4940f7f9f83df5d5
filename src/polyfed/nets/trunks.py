"""What turns inputs into features: an MLP for tables, any module by name, or several side by side."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from polyfed.errors import ConfigError, nearest

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:.+")  # polyfed's own have options behind their names
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


class SideBySide(nn.ModuleList):
    """As many networks as asked for on the same inputs, each like the one given but with parameters of its own.

    >>> SideBySide(nn.Linear(3, 2), 4)(torch.zeros(5, 3)).shape
    torch.Size([5, 8])
    """

    def __init__(self, network: nn.Module, n: int) -> None:
        super().__init__(deepcopy(network) for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([network(x) for network in self], -1)


def mlp(n_features: int, hidden: Sequence[int], activation: str) -> nn.Module:
    """Layers of these widths; with none of them the features are the inputs, and a head is a linear model."""
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation {activation!r} is unknown", remedy=nearest(activation, ACTIVATIONS))
    layers: list[nn.Module] = []
    for width, wider in zip([n_features, *hidden], hidden, strict=False):
        layers += [nn.Linear(width, wider), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers)


def trunk_of(named: str, n_features: int) -> nn.Module:
    """The module that `package.module:factory` makes; the factory is called with the number of features."""
    if not isinstance(named, str) or not _FACTORY.fullmatch(named):
        raise ConfigError(f"network {named!r} is no name of a factory", remedy="give 'package.module:factory'")
    place, _, name = named.partition(":")
    try:
        factory = getattr(importlib.import_module(place), name)
    except Exception as error:  # a module may do anything when it is imported
        remedy = "give 'package.module:factory'"
        raise ConfigError(f"network {named!r} cannot be found ({error})", remedy=remedy) from error
    try:
        module = factory(n_features)
    except Exception as error:  # and so may a factory
        what = f"network {named!r} cannot be made: {type(error).__name__}: {error}"
        raise ConfigError(what, remedy="give a factory that takes the number of features") from error
    if not isinstance(module, nn.Module):
        remedy = "return a torch.nn.Module from the factory"
        raise ConfigError(f"network {named!r} made a {type(module).__name__}", remedy=remedy)
    return module


def n_outputs_of(trunk: nn.Module, n_features: int) -> int:
    training = trunk.training
    trunk.eval()
    with torch.no_grad():
        kind = next(trunk.parameters(), torch.zeros((), dtype=torch.float64)).dtype
        made = trunk(torch.zeros(2, n_features, dtype=kind))
    trunk.train(training)
    if made.dim() != 2:
        remedy = "return (rows, features)"
        raise ConfigError(f"the network makes an array of shape {tuple(made.shape)} of two rows", remedy=remedy)
    return made.shape[1]


def started(trunk: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers to start from, drawn by torch's generator as it is now.

    A layer that its factory froze, or marked with `pretrained = True`, keeps what it has, which was learned elsewhere.
    """
    kept = {part for layer in trunk.modules() if getattr(layer, "pretrained", False) for part in layer.modules()}
    for layer in trunk.modules():
        own = list(layer.parameters(recurse=False))
        if hasattr(layer, "reset_parameters") and layer not in kept and (not own or any(p.requires_grad for p in own)):
            layer.reset_parameters()  # pyright: ignore[reportCallIssue]
    return {name: value.detach().clone() for name, value in trunk.state_dict().items()}
