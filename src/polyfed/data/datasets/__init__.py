"""Data sets to begin with, each a function that returns a federation; nothing is downloaded.

Data sets of images return files and labels; `load_dataset` wants a function `embed` that makes numbers of them.

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
from polyfed.data.images import ImageFederation, celeba, dogcat, own_images
from polyfed.errors import ConfigError, nearest

__all__ = ["DATASETS", "IMAGE_DATASETS", "load_dataset", "load_images", "penguins", "phone_health", "synthetic"]

DATASETS: Mapping[str, Callable[..., Federation]] = {
    "penguins": penguins,
    "phone_health": phone_health,
    "synthetic": synthetic,
}

IMAGE_DATASETS: Mapping[str, Callable[..., ImageFederation]] = {
    "celeba": celeba,
    "dogcat": dogcat,
    "images": own_images,
}


def load_dataset(name: str, **options: Any) -> Federation:
    """The data set of this name, with options of its own; one of images needs `embed` among them."""
    if name in IMAGE_DATASETS:
        if (embed := options.pop("embed", None)) is None:
            what = f"data set {name!r} is of images, and nothing says how to turn them into numbers"
            raise ConfigError(what, remedy="give embed=..., a function from paths to rows of numbers")
        return load_images(name, **options).with_features(embed)
    return _made(DATASETS, name, options)


def load_images(name: str, **options: Any) -> ImageFederation:
    """The data set of images of this name, with options of its own; no image is opened yet."""
    return _made(IMAGE_DATASETS, name, options)


def _made(datasets: Mapping[str, Callable[..., Any]], name: str, options: Mapping[str, Any]) -> Any:
    if name not in datasets:
        raise ConfigError(f"data set {name!r} is not known", remedy=nearest(name, datasets))
    known = inspect.signature(datasets[name]).parameters
    for option in options:
        if option not in known:
            remedy = nearest(option, known) if known else "leave it out, it has none"
            raise ConfigError(f"data set {name!r} has no option {option!r}", remedy=remedy)
    return datasets[name](**options)
