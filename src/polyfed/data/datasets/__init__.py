"""Data sets to begin with, each a function that returns a federation; nothing is downloaded.

>>> load_dataset("synthetic", n_clients=3)
Federation of 3 clients and 900 rows; regression (regression): 300 labels, classification (binary): 600 labels; ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from polyfed.data.datasets.penguins import penguins
from polyfed.data.datasets.phone_health import phone_health
from polyfed.data.datasets.synthetic import synthetic
from polyfed.data.federation import Federation
from polyfed.errors import ConfigError, nearest

__all__ = ["DATASETS", "load_dataset", "penguins", "phone_health", "synthetic"]

DATASETS: Mapping[str, Callable[..., Federation]] = {
    "penguins": penguins,
    "phone_health": phone_health,
    "synthetic": synthetic,
}


def load_dataset(name: str, **options: Any) -> Federation:
    """The data set of this name, with options of its own."""
    if name not in DATASETS:
        raise ConfigError(f"data set {name!r} is not known", remedy=nearest(name, DATASETS))
    known = inspect.signature(DATASETS[name]).parameters
    for option in options:
        if option not in known:
            remedy = nearest(option, known) if known else "leave it out, it has none"
            raise ConfigError(f"data set {name!r} has no option {option!r}", remedy=remedy)
    return DATASETS[name](**options)
