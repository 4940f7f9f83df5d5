"""What a reader must know beside the numbers: what was done differently, how long it took, on which machine, with what."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from polyfed.paper.blocks import Block
from polyfed.paper.presets import Preset

PACKAGES = ("polyfed", "torch", "numpy", "scipy", "scikit-learn", "torchvision", "Pillow")
PAPERS_BACKBONE = "resnet18"


def differences(original: Preset, chosen: Preset, blocks: Sequence[Block], quick: bool, made_up: bool) -> list[str]:
    """In what this differs from the publication: what the preset says, and what follows from the choices."""
    found = []
    if quick:
        found.append("a quick run: federations, rounds and seeds are smaller than in the publication")
    if made_up:
        found.append("the images are made up (discs and crosses): the numbers say nothing about the data sets")
    rounds, published = (preset.base["run"]["rounds"] for preset in (chosen, original))
    if rounds != published:
        found.append(f"{rounds} rounds instead of {published}")
    if len(chosen.seeds) > 1:
        found.append(f"{len(chosen.seeds)} seeds and their std; the publication has one number for each cell")
    varied = any(variant.backbone for variant in chosen.variants)
    used = {block.config.data.images.backbone for block in blocks if block.config.data.images is not None}
    others = sorted(used - {PAPERS_BACKBONE})
    if others and not varied:
        found.append(f"the backbone is {', '.join(others)} instead of ResNet-18")
    if missing := [method for method in original.methods if method not in chosen.methods]:
        found.append(f"without {', '.join(missing)}")
    return [*found, *chosen.differences]


def machine() -> dict[str, Any]:
    """Its size, not its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):  # not on every system
        memory = None
    return {"cores": cores, "memory_gb": memory}


def versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
