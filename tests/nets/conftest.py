"""A tiny backbone that anyone could have written, and tiny images."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn


def halves() -> nn.Sequential:
    """Two stages: the means of 2×2 blocks, then a convolution with a batch norm."""
    torch.manual_seed(3)
    second = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(nn.AvgPool2d(2), second)


class Counted(nn.Module):
    """The mean of each colour; counts the images that it sees."""

    seen = 0

    def forward(self, images):
        Counted.seen += len(images)
        return images.mean((2, 3))


@pytest.fixture
def tiny(monkeypatch):
    """The module `tiny`, in which factories are found by name."""
    module = ModuleType("tiny")
    module.halves, module.Counted = halves, Counted
    module.number = lambda: 7
    module.scalars = lambda: nn.Flatten(0)
    module.grey = lambda: nn.Conv2d(1, 2, 3)
    module.greedy = lambda width: nn.Identity()
    monkeypatch.setitem(sys.modules, "tiny", module)
    with torch.random.fork_rng(devices=[]):
        yield module


@pytest.fixture
def pictures(tmp_path):
    """Makes images of one colour each: red 0, 10, 20, …; green 51; blue 255."""
    Image = pytest.importorskip("PIL.Image", reason="images are read by Pillow (the extra vision)")
    folder = tmp_path / "pictures"
    folder.mkdir()

    def make(n, shape=(12, 20)):
        paths = []
        for i in range(n):
            pixels = np.zeros((*shape, 3), dtype=np.uint8)
            pixels[...] = (10 * i, 51, 255)
            paths.append(folder / f"{i}.png")
            Image.fromarray(pixels).save(paths[-1])
        return paths

    return make


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("POLYFED_CACHE", str(tmp_path / "default cache"))
