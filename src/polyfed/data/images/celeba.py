"""CelebA: faces with forty attributes (binary tasks) and ten coordinates of landmarks (regression tasks)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.features.matrix import plain
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles, data_folder
from polyfed.data.images.protocol import FewShot
from polyfed.data.tables.columns import as_names
from polyfed.data.task import Task, as_tasks
from polyfed.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    import pandas as pd

IMAGES = "img_align_celeba"
PARTITION, ATTRIBUTES, LANDMARKS = "list_eval_partition", "list_attr_celeba", "list_landmarks_align_celeba"
CELEBA_FILES = (f"{IMAGES}/000001.jpg ...", *(f"{name}.txt (or .csv)" for name in (ATTRIBUTES, LANDMARKS, PARTITION)))
CELEBA_SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"


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
    place = data_folder(folder, "celeba", CELEBA_FILES, CELEBA_SOURCE)
    attributes, landmarks = as_names(binary) or [], as_names(regression) or []
    tasks = as_tasks(
        [*(Task(name, "binary", classes=(False, True)) for name in attributes), *((n, "regression") for n in landmarks)]
    )
    partition = _list_of(place, PARTITION)
    parts = partition.read(["partition"], whole=(0, 1, 2)).sort_index()
    labels: dict[str, np.ndarray] = {}
    if attributes:
        frame = _rows_of(parts.index, _list_of(place, ATTRIBUTES), attributes, whole=(-1, 0, 1))
        labels |= {name: frame[name].to_numpy() > 0 for name in attributes}  # −1 and 1; some copies have 0 and 1
    if landmarks:
        frame = _rows_of(parts.index, _list_of(place, LANDMARKS), landmarks)
        labels |= {name: frame[name].to_numpy(dtype=np.float64) for name in landmarks}
    lines, part = parts["line"].to_numpy(), parts["partition"].to_numpy()
    if not (inner := place / IMAGES).is_dir():
        raise DataError(f"there is no folder {IMAGES}", where=str(place), remedy=f"get it from {CELEBA_SOURCE}")
    if (inner / IMAGES).is_dir():  # some archives have the folder inside a folder of the same name
        inner = inner / IMAGES
    files = ImageFiles(inner, np.asarray(parts.index), lambda i: f"line {lines[i]} of {partition.path.name}")
    train, validation, test = (np.flatnonzero(part == number) for number in (0, 1, 2))
    dealing = FewShot("celeba", shots, n_clients, n_test, seed, balanced, tested_on)
    return dealing.deal(files, tasks, labels, train, test, validation)


def _rows_of(
    images: pd.Index, found: CelebaList, columns: Sequence[str], whole: tuple[int, ...] | None = None
) -> pd.DataFrame:
    """The rows of these images in another list, which must have them all."""
    frame = found.read(columns, whole=whole)
    absent = images[~images.isin(frame.index)]
    if len(absent):
        what = f"has no row of image {absent[0]} ({len(absent)} such images)"
        raise DataError(what, where=str(found.path), remedy=f"complete it, or drop them from {PARTITION}")
    return frame.loc[images]


@dataclass(frozen=True)
class CelebaList:
    """One list: an official .txt file, where a count and a header may come first, or a .csv file with a header."""

    path: Path
    columns: tuple[str, ...]  # after the name of the image
    n_before: int  # lines before the first row

    def read(self, columns: Sequence[str], whole: tuple[int, ...] | None = None) -> pd.DataFrame:
        """A table of these columns and of `line`, by image; if `whole` is given, of these whole numbers only."""
        import pandas as pd

        for name in columns:
            if name not in self.columns:
                raise ConfigError(f"has no column {name!r}", where=self.path.name, remedy=nearest(name, self.columns))
        separator = "," if self.path.suffix == ".csv" else r"\s+"
        read = partial(pd.read_csv, sep=separator, skiprows=self.n_before, header=None, dtype={"image": str})
        try:
            frame = read(self.path, names=["image", *self.columns], usecols=["image", *columns])
        except (ValueError, OSError) as error:
            what = " ".join(str(error).split()).rstrip(".")
            raise DataError(f"cannot be read: {what}", where=str(self.path), remedy="get the file anew") from None
        frame["line"] = range(self.n_before + 1, self.n_before + 1 + len(frame))
        for name in columns:
            values: pd.Series = pd.to_numeric(frame[name], errors="coerce")  # pyright: ignore[reportAssignmentType]
            bad = values.isna() if whole is None else ~values.isin(whole)
            if bad.any():
                row = int(bad.to_numpy().argmax())
                self._reject(frame, row, f"{name} {plain(frame[name].iloc[row])!r} is no value")
            frame[name] = values
        duplicated = frame["image"].duplicated().to_numpy()
        if duplicated.any():
            row = int(duplicated.argmax())
            self._reject(frame, row, f"image {frame['image'].iloc[row]} is listed twice")
        return frame.set_index("image")

    def _reject(self, frame: pd.DataFrame, row: int, what: str) -> None:
        line = frame["line"].iloc[row]
        raise DataError(what, where=f"line {line} of {self.path}", remedy="correct it, or get the file anew")


def _list_of(folder: Path, name: str) -> CelebaList:
    path = next((p for suffix in (".txt", ".csv") if (p := folder / f"{name}{suffix}").is_file()), None)
    if path is None:
        what = f"there is no {name}.txt (or .csv)"
        remedy = f"CelebA has {', '.join(CELEBA_FILES)}: get it from {CELEBA_SOURCE}"
        raise DataError(what, where=str(folder), remedy=remedy)
    with path.open(encoding="utf-8", errors="replace") as file:
        first, second = file.readline(), file.readline()
    if path.suffix == ".csv":
        return CelebaList(path, tuple(text.strip() for text in first.split(",")[1:]), 1)
    if first.strip().isdigit():  # the number of rows; names of columns follow, none for the image
        return CelebaList(path, tuple(second.split()), 2)
    return CelebaList(path, ("partition",), 0)  # the one list that has no header
