"""A binary tree over classes: at each branch some go left and the others right, until every class is alone.

The tree is grown from the top by 2-means of the mean features of the classes, so that classes that look alike part late. The
probability of a class is the product of those of the turns on the way to it.

>>> means = torch.tensor([[0.0], [1.0], [10.0]], dtype=torch.float64)
>>> tree = ClassTree.grow(means, classes=(0, 1, 2))
>>> tree.branches
(Branch(left=(0, 1), right=(2,)), Branch(left=(0,), right=(1,)))
>>> turns = [torch.tensor([[left, 1 - left]], dtype=torch.float64) for left in (0.6, 0.3)]
>>> tree.leaf_probabilities(turns)  # 0.6 · 0.3, 0.6 · 0.7 and 0.4
tensor([[0.1800, 0.4200, 0.4000]], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_STEPS = 100  # of 2-means; a handful of classes needs two or three


@dataclass(frozen=True)
class Branch:
    """The classes on both sides; the smallest of them is on the left."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    def side(self, labels: Tensor) -> Tensor:
        """1 for labels that go left, −1 for those that go right, 0 for those that never come here."""
        goes = [torch.isin(labels, torch.tensor(classes)) for classes in (self.left, self.right)]
        return goes[0].to(torch.float64) - goes[1].to(torch.float64)


@dataclass(frozen=True)
class ClassTree:
    """Classes in increasing order, and the branches from the top down."""

    classes: tuple[int, ...]
    branches: tuple[Branch, ...]

    @classmethod
    def of(cls, z: Tensor, labels: Tensor) -> ClassTree:
        """The tree over the classes that `labels` has, with features z (rows, features)."""
        classes = tuple(int(c) for c in labels.unique())
        means = [z[labels == c].mean(0) for c in classes]
        return cls.grow(torch.stack(means) if means else z[:0], classes)

    @classmethod
    def grow(cls, means: Tensor, classes: Sequence[int]) -> ClassTree:
        """From the mean features of classes in increasing order."""
        return cls(tuple(classes), tuple(_branches(means.detach(), tuple(classes))))

    def leaf_probabilities(self, turns: Sequence[Tensor]) -> Tensor:
        """(rows, classes) from the probabilities of left and right at each branch, (rows, 2), given that one comes there."""
        rows = len(turns[0]) if turns else 1
        leaves = {c: torch.ones(rows, dtype=torch.float64) for c in self.classes}
        for branch, turn in zip(self.branches, turns, strict=True):
            for side, classes in enumerate((branch.left, branch.right)):
                for c in classes:
                    leaves[c] = leaves[c] * turn[:, side]
        return torch.stack(list(leaves.values()), -1) if leaves else torch.zeros(rows, 0, dtype=torch.float64)


def _branches(means: Tensor, classes: tuple[int, ...]) -> Iterator[Branch]:
    if len(classes) < 2:
        return
    left = _two_means(means)
    sides = [tuple(c for c, here in zip(classes, left.tolist(), strict=True) if here is side) for side in (True, False)]
    yield Branch(*sides)
    yield from _branches(means[left], sides[0])
    yield from _branches(means[~left], sides[1])


def _two_means(points: Tensor) -> Tensor:
    """Which points share a cluster with the first; Lloyd's algorithm from the two points that are furthest apart."""
    apart = torch.cdist(points, points)
    i, j = divmod(int(apart.argmax()), len(points))
    centres = points[[i, j]]
    near = torch.zeros(len(points), dtype=torch.bool)
    for _ in range(MOST_STEPS):
        distance = torch.cdist(points, centres)
        now = distance[:, 0] <= distance[:, 1]
        if bool(now.all()):  # all in one place: nothing separates them, so any halves will do
            return torch.arange(len(points)) < (len(points) + 1) // 2
        if bool((now == near).all()):
            break
        near = now
        centres = torch.stack([points[near].mean(0), points[~near].mean(0)])
    return near if bool(near[0]) else ~near
