"""Made-up images in the layouts of the data sets: a disc or a cross somewhere on a grey ground.

What is shown is a class, where it is shown is a number to predict, and the two go together as a smile and the corner of
a mouth do: discs are to the right more often.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     made = make_images(folder, 8, layout="table")
...     made.name, made.read_text().splitlines()[:2]
('images.csv', ['path,client,shape,x,y', 'images/0.png,camera 1,disc,17.44,20.77'])
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyfed.data.features.matrix import reject_unless_whole
from polyfed.errors import ConfigError, UsageError, nearest
from polyfed.seeds import Stream

SIZE = 32  # pixels, both ways
SHIFT, SPREAD = 3.0, 6.0  # discs are to the right by SHIFT ± SPREAD, crosses to the left: a correlation of 0.65
N_CAMERAS = 4  # clients of the layout "table"


@dataclass(frozen=True)
class Sketch:
    """What one image shows, and its pixels."""

    is_disc: bool
    x: float
    y: float
    pixels: np.ndarray


def make_images(folder: str | Path, n: int, seed: int = 0, layout: str = "table") -> Path:
    """Write n images into an empty folder, and return what the data set is to be given: the folder, or the table.

    "table" is for `images`, "celeba" for `celeba` (Smiling: a disc; rightmouth_x, rightmouth_y: its place), "dogcat" and
    "dogcat-flat" for `dogcat` (a dog is a disc). Every fifth image is for testing, and in CelebA's
    layout one of five is for validation.
    """
    reject_unless_whole("make_images", 1, n=n)
    reject_unless_whole("make_images", 0, seed=seed)
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is not known", where="make_images", remedy=nearest(layout, LAYOUTS))
    place = Path(folder).expanduser()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise UsageError("is not empty", where=str(place), remedy="give a new folder for the images")
    sketches = [sketch(i, seed) for i in range(n)]
    files, texts = LAYOUTS[layout](sketches)
    for name, one in zip(files, sketches, strict=True):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(png(one.pixels))
    for name, lines in texts.items():
        (place / name).write_text("".join(f"{line}\n" for line in lines))
    return place / "images.csv" if layout == "table" else place


def sketch(number: int, seed: int) -> Sketch:
    """The image of this number; how many others there are does not matter."""
    rng = Stream(seed, "made-up images", round=number).numpy()
    is_disc = bool(rng.random() < 0.5)
    x = SIZE / 2 + (SHIFT if is_disc else -SHIFT) + rng.uniform(-SPREAD, SPREAD)
    y = SIZE / 2 + rng.uniform(-SHIFT - SPREAD, SHIFT + SPREAD)
    radius, ground, ink = rng.uniform(4.0, 6.0), rng.uniform(20, 90), rng.uniform(160, 230)
    down, right = np.mgrid[:SIZE, :SIZE]
    across, along = np.abs(right - x), np.abs(down - y)
    if is_disc:
        drawn = across**2 + along**2 <= radius**2
    else:
        drawn = (np.minimum(across, along) <= 1.5) & (np.maximum(across, along) <= radius)
    grey = np.where(drawn, ink, ground) + rng.normal(0.0, 6.0, (SIZE, SIZE))
    pixels = np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)
    return Sketch(is_disc, round(x, 2), round(y, 2), pixels)


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of (height, width, 3) bytes without an imaging library: eight bits, three colours, no filter.

    >>> file = png(np.zeros((2, 3, 3), dtype=np.uint8))
    >>> file[1:4], int.from_bytes(file[16:20], "big"), int.from_bytes(file[20:24], "big")  # width, height
    (b'PNG', 3, 2)
    """
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # a line begins with the number of its filter, 0
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


Written = tuple[list[str], Mapping[str, list[str]]]  # names of the image files; name → lines of the other files


def _table(sketches: Sequence[Sketch]) -> Written:
    files = [f"images/{i}.png" for i in range(len(sketches))]
    lines = [
        f"{name},camera {1 + i % N_CAMERAS},{'disc' if s.is_disc else 'cross'},{s.x},{s.y}"
        for i, (name, s) in enumerate(zip(files, sketches, strict=True))
    ]
    return files, {"images.csv": ["path,client,shape,x,y", *lines]}


def _celeba(sketches: Sequence[Sketch]) -> Written:
    names = [f"{i + 1:06d}.png" for i in range(len(sketches))]
    count = str(len(names))
    rows = list(zip(names, sketches, strict=True))
    return [f"img_align_celeba/{name}" for name in names], {
        "list_attr_celeba.txt": [count, "Smiling", *(f"{name} {1 if s.is_disc else -1:2d}" for name, s in rows)],
        "list_landmarks_align_celeba.txt": [count, "rightmouth_x rightmouth_y", *(f"{n} {s.x} {s.y}" for n, s in rows)],
        "list_eval_partition.txt": [f"{name} {_part(i)}" for i, name in enumerate(names)],
    }


def _dogcat(sketches: Sequence[Sketch]) -> Written:
    animals = ["dog" if one.is_disc else "cat" for one in sketches]
    return [f"{'test' if _part(i) == 2 else 'train'}/{a}s/{a}.{i}.png" for i, a in enumerate(animals)], {}


def _dogcat_flat(sketches: Sequence[Sketch]) -> Written:
    return [f"train/{'dog' if one.is_disc else 'cat'}.{i}.png" for i, one in enumerate(sketches)], {}


def _part(i: int) -> int:
    """Of five images three are for training (0), one is for validation (1), one for testing (2), as CelebA counts."""
    return max(0, i % 5 - 2)


LAYOUTS = {"table": _table, "celeba": _celeba, "dogcat": _dogcat, "dogcat-flat": _dogcat_flat}
