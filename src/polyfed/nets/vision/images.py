"""Images from files: upright, in colour, as squares of one size with values in [0, 1]."""

from __future__ import annotations

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.errors import ConfigError, DataError, MissingExtraError, nearest

FITS = ("crop", "stretch")


def read_images(paths: Sequence[str | Path], size: int, *, fit: str = "crop") -> np.ndarray:
    """(images, 3, size, size), float32. `fit="crop"` keeps the central square, "stretch" all of the image."""
    check_fit(fit)
    return np.stack([decode(read_bytes(path), path, size, fit) for path in paths])


def read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"the image cannot be read ({reason})", where=str(path), remedy="correct the path") from error


def decode(content: bytes, path: str | Path, size: int, fit: str) -> np.ndarray:
    """(3, size, size) from the bytes of a file; the path is for the error."""
    Image, ImageOps = _pillow("PIL.Image"), _pillow("PIL.ImageOps")
    try:
        with Image.open(io.BytesIO(content)) as opened:
            upright = ImageOps.exif_transpose(opened)  # cameras store how they were held
            if upright.mode.startswith("I;16") or upright.mode == "I":
                # Pillow would cut 16 bits off at 255 instead of scaling them.
                upright = Image.fromarray((np.asarray(upright, dtype=np.float64) / 257).clip(0, 255).astype(np.uint8))
            picture = upright.convert("RGB")
    except Exception as error:  # broken files end in errors of many kinds, by the format
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, _pillow("PIL").UnidentifiedImageError):  # its text has an address in memory
            reason = "its content is of no format that is known"
        remedy = "replace the file or leave it out"
        raise DataError(f"the image cannot be decoded ({reason})", where=str(path), remedy=remedy) from error
    side = min(picture.size)
    left, top = ((length - side) / 2 for length in picture.size)
    box = (left, top, left + side, top + side) if fit == "crop" else None
    small = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(small, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)


def check_fit(fit: str) -> None:
    if fit not in FITS:
        raise ConfigError(f"fit {fit!r} is unknown", remedy=nearest(fit, FITS))


def _pillow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError("Pillow is not installed", remedy="pip install 'polyfed[vision]'") from None
