"""CelebA: faces with forty attributes (binary tasks) and ten coordinates of landmarks (regression tasks)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.images.celeba_lists import CelebaList, list_of
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles, data_folder
from polyfed.data.images.protocol import few_shot
from polyfed.data.tables.columns import as_names
from polyfed.data.task import Task, as_tasks
from polyfed.errors import DataError

IMAGES = "img_align_celeba"
PARTITION, ATTRIBUTES, LANDMARKS = "list_eval_partition", "list_attr_celeba", "list_landmarks_align_celeba"
EXPECTED = (f"{IMAGES}/000001.jpg ...", *(f"{name}.txt (or .csv)" for name in (ATTRIBUTES, LANDMARKS, PARTITION)))
SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


def celeba(
    folder: str | Path | None = None,
    binary: str | Sequence[str] = ("Smiling",),
    regression: str | Sequence[str] = ("rightmouth_x",),
    shots: int = 50,
    n_clients: int = 10,
    n_test: int = 200,
    seed: int = 0,
    balanced: bool = False,
    tested_on: str = "test",
) -> ImageFederation:
    """Faces: attributes such as Smiling (binary), coordinates such as rightmouth_x (regression).

    `folder` is in the official layout. Clients train on images of the official training part and are tested on `n_test`
    images of the official test part, or of the validation part if `tested_on="validation"`. The paper has
    (shots, n_clients) = (50, 10), (20, 15) and (10, 20).
    """
    place = data_folder(folder, "celeba", EXPECTED, SOURCE)
    attributes, landmarks = as_names(binary) or [], as_names(regression) or []
    tasks = as_tasks(
        [*(Task(name, "binary", classes=(False, True)) for name in attributes), *((n, "regression") for n in landmarks)]
    )
    partition = list_of(place, PARTITION, EXPECTED, SOURCE)
    parts = partition.read(["partition"], whole=(0, 1, 2)).sort_index()
    labels: dict[str, np.ndarray] = {}
    if attributes:
        found = list_of(place, ATTRIBUTES, EXPECTED, SOURCE)
        frame = _rows_of(parts.index, found, attributes, whole=(-1, 0, 1))
        labels |= {name: frame[name].to_numpy() > 0 for name in attributes}  # −1 and 1; some copies have 0 and 1
    if landmarks:
        frame = _rows_of(parts.index, list_of(place, LANDMARKS, EXPECTED, SOURCE), landmarks)
        labels |= {name: frame[name].to_numpy(dtype=np.float64) for name in landmarks}
    lines, part = parts["line"].to_numpy(), parts["partition"].to_numpy()
    files = ImageFiles(
        _image_folder(place),
        np.asarray(parts.index),
        lambda i: f"line {lines[i]} of {partition.path.name}",
    )
    return few_shot(
        files,
        tasks,
        labels,
        np.flatnonzero(part == 0),
        np.flatnonzero(part == 2),
        shots=shots,
        n_clients=n_clients,
        n_test=n_test,
        seed=seed,
        balanced=balanced,
        tested_on=tested_on,
        validation=np.flatnonzero(part == 1),
        where="celeba",
    )


def _rows_of(images: Any, found: CelebaList, columns: Sequence[str], whole: tuple[int, ...] | None = None) -> Any:
    """The rows of these images in another list, which must have them all."""
    frame = found.read(columns, whole=whole)
    absent = images[~images.isin(frame.index)]
    if len(absent):
        what = f"has no row of image {absent[0]} ({len(absent)} such images)"
        raise DataError(what, where=str(found.path), remedy=f"complete it, or drop them from {PARTITION}")
    return frame.loc[images]


def _image_folder(folder: Path) -> Path:
    """Some archives have the folder of images inside a folder of the same name."""
    outer = folder / IMAGES
    if not outer.is_dir():
        raise DataError(f"there is no folder {IMAGES}", where=str(folder), remedy=f"get it from {SOURCE}")
    return outer / IMAGES if (outer / IMAGES).is_dir() else outer
