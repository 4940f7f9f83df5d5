"""A network without a state of its own: trunks and heads are functions of a flat dictionary of parameters.

    trunk.<layer…>          one trunk that all tasks share, or
    trunk.<task>.<layer…>   one for each task, by the position of the task
    head.<task>.weight      a linear head for each task
    …  and the buffers of the trunks (running statistics) under the same names

>>> net = Network({"pulse": 1, "stage": 3}, n_features=4, hidden=(8,))
>>> values = net.initial(seed=0)
>>> [tuple(net(values, torch.zeros(5, 4, dtype=torch.float64), task).shape) for task in net.tasks]
[(5, 1), (5, 3)]
>>> net.owner("head.1.weight"), net.owner("trunk.0.weight")
('stage', None)
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

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


Values = Mapping[str, Tensor]


class Network:
    """Trunks and heads for these tasks (name → number of outputs).

    With parameters that have a leading dimension (`is_mlp` alone), it is as many networks at once, each with rows of its own.
    """

    def __init__(
        self,
        tasks: Mapping[str, int],
        n_features: int,
        *,
        hidden: Sequence[int] = (64,),
        activation: str = "relu",
        separate: bool = False,
        factory: str | None = None,
    ) -> None:
        self.tasks, self.separate = dict(tasks), separate
        self._position = {task: i for i, task in enumerate(self.tasks)}

        def trunk() -> nn.Module:
            made = mlp(n_features, hidden, activation) if factory is None else trunk_of(factory, n_features)
            return made.to(torch.float64)

        self.trunks = {f"trunk.{i}." if separate else "trunk.": trunk() for i in range(len(tasks) if separate else 1)}
        self.width = n_outputs_of(next(iter(self.trunks.values())), n_features)
        self.is_mlp = factory is None
        layers = [layer for made in self.trunks.values() for layer in made.modules()]
        self.has_batch_norm = any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in layers)

    def initial(self, seed: int) -> dict[str, Tensor]:
        """Parameters and buffers to start from; torch's global generator is left as it was."""
        values: dict[str, Tensor] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for prefix, trunk in self.trunks.items():
                values |= {prefix + name: value for name, value in started(trunk).items()}
            for task, n_outputs in self.tasks.items():
                head = nn.Linear(self.width, n_outputs, dtype=torch.float64)
                values |= {f"{self._head(task)}{name}": v.detach().clone() for name, v in head.state_dict().items()}
        return values

    @cached_property
    def buffers(self) -> list[str]:
        """Running statistics, which no optimiser touches."""
        return [prefix + name for prefix, trunk in self.trunks.items() for name, _ in trunk.named_buffers()]

    @cached_property
    def frozen(self) -> list[str]:
        """Parameters that the factory of the trunk does not want to be trained (`requires_grad=False`)."""
        named = [(prefix + n, p) for prefix, trunk in self.trunks.items() for n, p in trunk.named_parameters()]
        return [name for name, parameter in named if not parameter.requires_grad]

    @property
    def heads(self) -> list[str]:
        return [f"{self._head(task)}{name}" for task in self.tasks for name in ("weight", "bias")]

    def last_layers(self, n: int) -> list[str]:
        found = []
        for prefix, trunk in self.trunks.items():
            names = [prefix + name for name, _ in trunk.named_parameters()]
            layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
            found += [name for name in names if n and name.rpartition(".")[0] in layers[-n:]]
        return found

    def owner(self, name: str) -> str | None:
        """The task to which a parameter belongs; None if all of them use it."""
        kind, _, rest = name.partition(".")
        if kind == "trunk" and not self.separate:
            return None
        return list(self.tasks)[int(rest.partition(".")[0])]

    def features(self, values: Values, x: Tensor, task: str, *, train: bool = False) -> Tensor:
        """What the trunk of this task makes of the inputs. In training, running statistics in `values` move on."""
        prefix = f"trunk.{self._position[task]}." if self.separate else "trunk."
        trunk = self.trunks[prefix]
        if self.is_mlp:  # what functional_call does, without its cost, which is that of a small network
            for i, layer in enumerate(trunk.children()):
                own = f"{prefix}{i}."
                linear = isinstance(layer, nn.Linear)
                x = _linear(x, values[f"{own}weight"], values[f"{own}bias"]) if linear else layer(x)
            return x
        mine = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        # A batch of one has no statistics of its own.
        trunk.train(train and not (self.has_batch_norm and len(x) < 2))
        return functional_call(trunk, mine, (x,)) if mine else x

    def __call__(self, values: Values, x: Tensor, task: str, *, train: bool = False) -> Tensor:
        head = self._head(task)
        features = self.features(values, x, task, train=train)
        return _linear(features, values[f"{head}weight"], values[f"{head}bias"])

    def _head(self, task: str) -> str:
        return f"head.{self._position[task]}."


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer; with weights (networks, outputs, inputs), one for each network, at rows of its own."""
    if weight.dim() == 3:
        return torch.baddbmm(bias[:, None], x, weight.mT)
    return nn.functional.linear(x, weight, bias)
