"""Cats and dogs: which of them an image shows, and a made-up number that goes with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyfed.data.features.matrix import reject_unless_between, reject_unless_whole
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles, data_folder, images_in
from polyfed.data.images.protocol import FewShot
from polyfed.data.task import Task
from polyfed.errors import DataError
from polyfed.seeds import Stream

ANIMALS = ("cat", "dog")
DOGCAT_TASKS = (Task("animal", "binary", classes=ANIMALS), Task("score", "regression"))
DOGCAT_FILES = ("train/cats/*.jpg", "train/dogs/*.jpg and the same in test/ (or train/cat.0.jpg, train/dog.0.jpg ...)")
DOGCAT_SOURCE = "https://www.kaggle.com/c/dogs-vs-cats"


def dogcat(
    folder: str | Path | None = None,
    shots: int = 50,
    n_clients: int = 10,
    n_test: int = 200,
    seed: int = 0,
    noise: float = 0.5,
    balanced: bool = False,
    tested_on: str = "test",
) -> ImageFederation:
    """Cats and dogs: animal (binary) and score (regression), which is 1 for a dog, −1 for a cat, plus noise.

    `folder` has train/ and test/ with folders cats and dogs, or with files cat.0.jpg and dog.0.jpg; without labelled test
    images, some are set aside from train/. `noise` is the standard deviation; the paper calls 0.5 a variance, but only
    as a standard deviation can it give the paper's errors. `tested_on="validation"` tests on training images that nobody has.
    """
    place = data_folder(folder, "dogcat", DOGCAT_FILES, DOGCAT_SOURCE)
    reject_unless_whole("dogcat", 0, seed=seed)
    reject_unless_between("dogcat", 0.0, np.inf, noise=noise)
    train, test = _labelled(place, "train"), _labelled(place, "test")
    for animal in ANIMALS:
        if animal not in train.values():
            what = f"there is no {animal} in train"
            raise DataError(what, where=str(place), remedy=f"put {', '.join(DOGCAT_FILES)} there, from {DOGCAT_SOURCE}")
    found = train | test
    names = np.array(list(found))
    is_dog = np.array([animal == "dog" for animal in found.values()])
    score = np.where(is_dog, 1.0, -1.0) + noise * Stream(seed, "dogcat noise").numpy().standard_normal(len(names))
    files = ImageFiles(place, names, lambda i: f"image {names[i]}")
    labels = {"animal": np.array(ANIMALS)[is_dog.astype(int)], "score": score}
    of_test = np.arange(len(train), len(found)) if test else None
    dealing = FewShot("dogcat", shots, n_clients, n_test, seed, balanced, tested_on)
    return dealing.deal(files, DOGCAT_TASKS, labels, np.arange(len(train)), of_test)


def _labelled(folder: Path, part: str) -> dict[str, str]:
    """Image → animal, sorted; images that do not say what they show are left out."""
    found = {}
    for animal in ANIMALS:
        inner = f"{part}/{animal}s"
        if (folder / inner).is_dir():
            found |= {f"{inner}/{name}": animal for name in images_in(folder / inner)}
        else:
            found |= {f"{part}/{name}": animal for name in images_in(folder / part, f"{animal}.*")}
    return found
