"""Parts of the API pages that follow the code: every method, every data set, wherever their files are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def _entries(directive: str, things: Iterable[Any]) -> str:
    lines = (f".. {directive}:: {thing.__module__}.{thing.__qualname__}\n" for thing in dict.fromkeys(things))
    return "```{eval-rst}\n" + "\n".join(lines) + "```"


def methods_part() -> str:
    """Gaussian processes first, then networks, then what users would pick instead."""
    from polyfed.methods import METHODS, FedAvg, PFedMul

    gaussian = [made for made in METHODS.values() if issubclass(made, PFedMul)]
    networks = [made for made in METHODS.values() if issubclass(made, FedAvg)]
    others = [made for made in METHODS.values() if made not in gaussian and made not in networks]
    sections = {"Gaussian processes": gaussian, "Networks that are averaged": networks, "All others": others}
    return "\n\n".join(f"## {title}\n\n{_entries('autoclass', made)}" for title, made in sections.items())


def datasets_part() -> str:
    """Every data set that `load_dataset` knows."""
    from polyfed.data import DATASETS

    return _entries("autofunction", DATASETS.values())


PARTS = {"_methods": methods_part, "_datasets": datasets_part}
