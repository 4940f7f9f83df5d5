"""Several networks on the same inputs, their features side by side."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn


class SideBySide(nn.ModuleList):
    """As many networks as asked for, each like the one given but with parameters of its own.

    >>> SideBySide(nn.Linear(3, 2), 4)(torch.zeros(5, 3)).shape
    torch.Size([5, 8])
    """

    def __init__(self, network: nn.Module, n: int) -> None:
        super().__init__(deepcopy(network) for _ in range(n))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([network(x) for network in self], -1)
