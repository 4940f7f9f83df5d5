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

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polyfed.nets.trunks import mlp, n_outputs_of, started, trunk_of

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
