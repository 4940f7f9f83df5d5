"""Images from files (upright, in colour, as squares of one size with values in [0, 1]), and their features under a frozen
backbone: computed once, then read from disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from polyfed.errors import ConfigError, DataError
from polyfed.nets.vision.building import backbone as build
from polyfed.nets.vision.cache import FORMAT, FeatureCache, cache_folder
from polyfed.nets.vision.cutting import POOL, Backbone
from polyfed.nets.vision.images import check_fit, decode, read_bytes

# Images through the network; 32 took more than twice the CPU time for each (EfficientNet-Lite2, MobileNetV2).
_AT_ONCE = 8


def embed(
    paths: Sequence[str | Path],
    backbone: str | Backbone,
    *,
    cut: str = POOL,
    grid: int | None = None,
    size: int | None = None,
    fit: str = "crop",
    weights: str | Path | None = None,
    weights_dir: str | Path | None = None,
    batch: int = 32,
    cache_dir: str | Path | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> np.ndarray:
    """Features of images, (images, features), float32, in the order of the paths.

    Each image goes through the network once: its features are kept in `cache_dir` (else $POLYFED_CACHE, else
    ~/.cache/polyfed) by the image's content, the network, its weights, the cut, the grid and the size. They are stored after
    every `batch` of images, and an interrupted call goes on from there. `progress` is called with the number of images that
    are done, and of all.

    A `Backbone` that was made before brings its own cut, grid and size.
    """
    check_fit(fit)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ConfigError(f"batch is {batch!r}", remedy="give a whole number from 1")
    if isinstance(paths, str | Path):
        raise ConfigError(f"paths is one path, {str(paths)!r}", remedy="give a list of paths")
    if isinstance(backbone, str):
        backbone = build(backbone, cut=cut, grid=grid, size=size, weights=weights, weights_dir=weights_dir)
    elif (cut, grid, size, weights, weights_dir) != (POOL, None, None, None, None):
        remedy = "give cut, grid, size and weights where it is made, or its name here"
        raise ConfigError("the backbone is made already", remedy=remedy)
    net = backbone.eval()
    kind = hashlib.sha256(f"{FORMAT}|{fit}|{net.digest}".encode()).hexdigest()
    cache = FeatureCache(cache_folder(cache_dir), kind[:32], net.n_features)
    images = [_digest(read_bytes(path)) for path in paths]
    rows: dict[str, list[int]] = {}  # one image may be there under several paths
    for row, image in enumerate(images):
        rows.setdefault(image, []).append(row)

    features = np.empty((len(images), net.n_features), dtype=np.float32)

    def put(found: Iterable[tuple[str, np.ndarray]]) -> None:
        for image, values in found:
            features[rows.pop(image, [])] = values  # another file may hold it too
        if progress is not None:
            progress(len(images) - sum(map(len, rows.values())), len(images))

    put(cache.find(set(rows)))
    waiting = list(rows)
    for start in range(0, len(waiting), batch):
        names = waiting[start : start + batch]
        places = [paths[rows[name][0]] for name in names]
        pictures = []
        for path, name in zip(places, names, strict=True):
            content = read_bytes(path)
            if _digest(content) != name:  # its features would be kept under the name of the old image
                raise DataError("the image changed while it was read", where=path, remedy="start again")
            pictures.append(decode(content, path, net.size, fit))
        with torch.inference_mode():
            made = torch.cat([net(few) for few in torch.from_numpy(np.stack(pictures)).split(_AT_ONCE)]).numpy()
        bad = ~np.isfinite(made).all(axis=1)
        if bad.any():
            what, where = f"backbone {net.name!r} made features that are not finite", str(places[int(bad.argmax())])
            raise DataError(what, where=where, remedy="check its weights")
        cache.store(names, made)
        put(zip(names, made, strict=True))
    return features


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
