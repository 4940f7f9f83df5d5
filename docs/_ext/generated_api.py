"""Parts of the API pages that follow the code: every method, every data set, wherever their files are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any


def _public(thing: Any) -> str:
    """Where users import it from: the room that offers it, else its own file."""
    room = sys.modules[".".join(thing.__module__.split(".")[:2])]
    offered = getattr(room, thing.__name__, None) is thing
    return f"{room.__name__ if offered else thing.__module__}.{thing.__qualname__}"


def _entries(directive: str, things: Iterable[Any]) -> str:
    lines = (f".. {directive}:: {_public(thing)}\n" for thing in dict.fromkeys(things))
    return "```{eval-rst}\n" + "\n".join(lines) + "```"


ROOMS = {"gp": "Gaussian processes", "neural": "Networks", "bayesian_heads": "Networks with Bayesian heads"}


def methods_part() -> str:
    """Every method below the title of the room that it lives in; rivals are what users would pick instead."""
    from polyfed.methods import METHODS

    sections: dict[str, list[Any]] = {}
    for made in METHODS.values():
        sections.setdefault(ROOMS.get(made.__module__.split(".")[2], "Rivals"), []).append(made)
    return "\n\n".join(f"## {title}\n\n{_entries('autoclass', made)}" for title, made in sections.items())


def datasets_part() -> str:
    """Every data set that `load_dataset` knows."""
    from polyfed.data import DATASETS

    return _entries("autofunction", DATASETS.values())


PARTS = {"_methods": methods_part, "_datasets": datasets_part}
