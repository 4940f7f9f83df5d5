"""Features on disk: files of some images each, found by what the images are, not by what they are called.

    CACHE/features/<what they depend on>/<images in it>.safetensors

A file is written whole or not at all, and holds a digest of its content: one that was damaged counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from polyfed.errors import ConfigError
from polyfed.files import write_whole

FORMAT = "polyfed features 1"
FOLDER_VARIABLE = "POLYFED_CACHE"


def cache_folder(folder: str | Path | None = None) -> Path:
    """The folder that was asked for; else the environment's, else one in the user's home."""
    return Path(folder or os.environ.get(FOLDER_VARIABLE) or Path.home() / ".cache" / "polyfed").expanduser()


class FeatureCache:
    """Features of one kind: `kind` is a digest of all that they depend on, apart from the image."""

    def __init__(self, folder: Path, kind: str, n_features: int) -> None:
        self.folder, self.n_features = folder / "features" / kind, n_features

    def find(self, images: set[str]) -> Iterator[tuple[str, np.ndarray]]:
        for path in sorted(self.folder.glob("*.safetensors")) if images else ():
            try:
                with safe_open(path, framework="numpy") as file:
                    about = file.metadata() or {}
                    names = json.loads(about["images"])
                    if about["format"] != FORMAT or images.isdisjoint(names):
                        continue  # only its head was read
                    features = file.get_tensor("features")
            except (SafetensorError, OSError, KeyError, ValueError):
                continue
            right = features.shape == (len(names), self.n_features) and features.dtype == np.float32
            if right and about["digest"] == _digest(about["images"], features):
                yield from ((name, row) for name, row in zip(names, features, strict=True) if name in images)

    def store(self, images: Sequence[str], features: np.ndarray) -> None:
        features = np.ascontiguousarray(features, dtype=np.float32)
        names = json.dumps(list(images))
        content = save({"features": features}, {"format": FORMAT, "images": names, "digest": _digest(names, features)})
        path = self.folder / f"{hashlib.sha256(names.encode()).hexdigest()[:32]}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        except OSError as error:
            what = f"features cannot be stored in {str(self.folder)!r} ({error.strerror})"
            raise ConfigError(what, remedy=f"name another folder by cache_dir or {FOLDER_VARIABLE}") from error


def _digest(names: str, features: np.ndarray) -> str:
    return hashlib.sha256(names.encode() + features.tobytes()).hexdigest()
