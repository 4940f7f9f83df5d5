"""Labels that the features never see, so that they cannot be memorised unnoticed.

Learned features have many parameters: they soon tell the labels they were learned from by heart, and a noise or a mixing
weight that is learned from the same labels then believes it. So each client keeps a share of its inputs apart: the gradient
of the features comes from the others, that of all other groups from those held out. And the server compares the two
gradients of the features: as long as what one part asks for also serves the other, it is about the task; when they no
longer agree, what remains to be learned is the labels of one part, and the features stop moving.

Predictions use all labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData
from polyfed.methods.messages import State

HOLDOUT = 1 / 3  # the share, where features are learned
# Chosen, as that share, on validation images of CelebA and Dogcat (50 shots, 10 clients).
MEMORY = 0.7  # of the running mean of the agreement
ENOUGH = 0.1  # an agreement from which on steps are whole
_parts: WeakKeyDictionary[ClientData, tuple[bytes, tuple[ClientData, ClientData]]] = WeakKeyDictionary()


def held_out_inputs(data: ClientData, share: float, rng: np.random.Generator) -> Tensor:
    """Which inputs are held out: the same share of those with labels of the same tasks.

    >>> from polyfed.data import LabelCodec, Task
    >>> seen = {"pulse": (np.arange(3), np.zeros(3)), "sick": (np.arange(3, 9), np.zeros(6))}
    >>> data = ClientData(np.zeros((9, 1)), seen, {name: LabelCodec.learn(Task(name), [0.0, 1.0]) for name in seen})
    >>> kept = held_out_inputs(data, 1 / 3, np.random.default_rng(0))
    >>> int(kept[:3].sum()), int(kept[3:].sum())
    (1, 2)
    """
    pattern = np.zeros(len(data.x), dtype=np.int64)
    for i, (at, _) in enumerate(data.labels.values()):
        pattern[at] |= 1 << i
    order = np.lexsort((rng.random(len(pattern)), pattern))
    place = np.arange(len(order))
    kept = np.zeros(len(order), dtype=bool)
    kept[order] = np.floor((place + 1) * share + 0.5) > np.floor(place * share + 0.5)
    return torch.from_numpy(kept)


def split(data: ClientData, kept: Tensor) -> tuple[ClientData, ClientData]:
    """What the features are learned from, and what is held out; always the same objects, as they do not change."""
    mask = kept.numpy().astype(bool)
    found = _parts.get(data)
    if found is None or found[0] != mask.tobytes():
        found = _parts[data] = (mask.tobytes(), (_some(data, ~mask), _some(data, mask)))
    return found[1]


def _some(data: ClientData, wanted: np.ndarray) -> ClientData:
    place = np.cumsum(wanted) - 1
    seen = {task: (place[at[wanted[at]]], y[wanted[at]]) for task, (at, y) in data.labels.items() if wanted[at].any()}
    weights = {task: weight[wanted[data.labels[task][0]]] for task, weight in data.weights.items() if task in seen}
    return replace(data, x=data.x[wanted], labels=seen, weights=weights)


def agreement(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """The cosine of the angle between two gradients of the same parameters; zero if one of them is zero.

    >>> g = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor(1.0)}
    >>> agreement(g, {"a": torch.tensor([2.0, 0.0]), "b": torch.tensor(-2.0)}).item()
    0.0
    """
    product = _inner(one, other)
    sizes = (_inner(one, one) * _inner(other, other)).sqrt()
    return torch.where(sizes > 0, product / sizes.clamp_min(torch.finfo(torch.float64).tiny), torch.zeros_like(sizes))


def judged_together(features: Mapping[str, Tensor]) -> dict[str, State]:
    """The parameters whose agreement is one: all that makes features for kernels, and the mean's slopes and its bias apart.

    In one sum the largest gradient would speak for all. That is the bias, a number for each output, which is soon where
    it belongs; from then on its gradients are chance, and would stop what has yet to be learned.

    >>> g = torch.ones(1)
    >>> {label: list(of) for label, of in judged_together({"features.0.weight": g, "features.mean_bias": g}).items()}
    {'features': ['features.0.weight'], 'features.mean_bias': ['features.mean_bias']}
    """
    together: dict[str, State] = {}
    for name, value in features.items():
        together.setdefault(name if name in ("features.mean", "features.mean_bias") else "features", {})[name] = value
    return together


def _inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    return sum(((one[n].double() * other[n].double()).sum() for n in one), torch.zeros((), dtype=torch.float64))
