"""Data sets of images as ordinary federations: a frozen network sees each image once, and its features are kept on disk.

[data]
dataset = "celeba"
options = { folder = "celeba", shots = 20 }
images = { backbone = "resnet18", weights_dir = "weights" }
"""

from __future__ import annotations

import hashlib
import importlib
import io
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data import Federation
from polyfed.data.datasets import load_images
from polyfed.data.images import CORRUPTIONS, ImageFederation
from polyfed.errors import ConfigError, MissingExtraError
from polyfed.experiments.config import DataConfig, ImagesConfig
from polyfed.files import write_whole

# Who wants to know how many images the network has seen, and of how many: features may take long, and are computed where
# nobody asks for a progress bar.
watching: ContextVar[Callable[[int, int], object] | None] = ContextVar("watching", default=None)

MASK = 0.95  # side of the black square in the middle, as a share of the shorter side: nine tenths of the area, as published
BLUR = 1 / 16  # standard deviation of the blur, as a share of it


def image_federation(data: DataConfig, corruption: str | None = None) -> Federation:
    """The federation of the features; with a corruption, the test images are corrupted before they are seen."""
    made = images_of(data)
    if corruption is not None:
        made = made.corrupted(corruption)
    return made.with_features(embedder(data.images or ImagesConfig()))


def images_of(data: DataConfig) -> ImageFederation:
    """The files and labels; nothing is opened yet."""
    return load_images(data.dataset or "", **data.options)


def embedder(images: ImagesConfig) -> Callable[..., np.ndarray]:
    """Paths → features, as `ImageFederation.with_features` wants it."""
    vision = vision_room()
    options = images.model_dump(exclude={"backbone", "cache"}, exclude_none=True)

    def embed(paths: Sequence[Path], corruption: str | None = None) -> np.ndarray:
        cache = vision.cache.cache_folder(images.cache)
        if corruption is not None:
            paths = [corrupted(path, corruption, cache / "corrupted") for path in paths]
        return vision.embed(paths, images.backbone, cache_dir=cache, progress=watching.get(), **options)

    return embed


def vision_room() -> Any:
    """The module, or an error that says what to install."""
    try:
        importlib.import_module("polyfed.nets.vision.cache")
        importlib.import_module("PIL")
        return importlib.import_module("polyfed.nets.vision")
    except ImportError as error:
        if isinstance(error, MissingExtraError):
            raise
        name = "Pillow" if error.name == "PIL" else error.name
        remedy = "pip install 'polyfed[vision]'"
        raise MissingExtraError(f"images need {name}, which is not installed", remedy=remedy) from None


def corrupted(path: Path, corruption: str, folder: Path) -> Path:
    """A copy of the image that is masked or blurred, made once; the same image is always corrupted in the same way."""
    if corruption not in CORRUPTIONS:
        raise ConfigError(f"corruption {corruption!r} is not known", remedy=f"known are {', '.join(CORRUPTIONS)}")
    content = path.read_bytes()
    out = folder / corruption / f"{hashlib.sha256(content).hexdigest()}.png"
    if not out.is_file():
        Image, ImageFilter = map(importlib.import_module, ("PIL.Image", "PIL.ImageFilter"))
        with Image.open(io.BytesIO(content)) as opened:
            made = opened.convert("RGB")
        if corruption == "masked":
            side = round(MASK * min(made.size))
            left, top = ((length - side) // 2 for length in made.size)
            made.paste((0, 0, 0), (left, top, left + side, top + side))
        else:
            made = made.filter(ImageFilter.GaussianBlur(BLUR * min(made.size)))
        written = io.BytesIO()
        made.save(written, "PNG")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, written.getvalue())
    return out
