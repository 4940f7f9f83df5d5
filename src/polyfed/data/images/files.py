"""A list of image files, each with a number and with the place where it was listed.

>>> files = ImageFiles(Path("faces"), np.array(["a.png", "b.png"]), lambda number: f"line {number + 2} of faces.csv")
>>> files.paths([1])[0].name
'b.png'
>>> files.reject_absent([0, 1])
Traceback (most recent call last):
polyfed.errors.DataError: line 2 of faces.csv: there is no file faces/a.png (2 such files); put it there or drop the row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyfed.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png")  # of files that are found in a folder; those that a table lists may have any


@dataclass(frozen=True, eq=False)
class ImageFiles:
    folder: Path  # where relative names begin
    names: np.ndarray  # of the files, as text; two numbers may have the same
    row_name: Callable[[int], str]  # what errors call the row that lists the image of a number

    def __len__(self) -> int:
        return len(self.names)

    def paths(self, numbers: ArrayLike) -> list[Path]:
        return [self.folder / name for name in self.names[np.asarray(numbers, dtype=np.int64)].tolist()]

    def distinct(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One number for each file among these, sorted by name; and for every number which of them is its file."""
        numbers = np.unique(numbers)
        _, first, place = np.unique(self.names[numbers], return_index=True, return_inverse=True)
        of_number = np.zeros(len(self), dtype=np.int64)
        of_number[numbers] = place.reshape(-1)
        return numbers[first], of_number

    def reject_absent(self, numbers: ArrayLike) -> None:
        """An error about the first of these images that is no file; nothing is opened."""
        numbers = np.asarray(numbers, dtype=np.int64)
        absent = [i for i, path in enumerate(self.paths(numbers)) if not path.is_file()]
        if absent:
            first = int(numbers[absent[0]])
            more = f" ({len(absent)} such files)" if len(absent) > 1 else ""
            what = f"there is no file {(self.folder / str(self.names[first])).as_posix()}{more}"
            raise DataError(what, where=self.row_name(first), remedy="put it there or drop the row")


class Numbering:
    """Numbers of paths as users give them, in the order in which they are first seen, and where that was.

    >>> numbering = Numbering()
    >>> numbering.of_clients({"a": {"sick": (["x.png", "y.png"], [0, 1])}})["a"]["sick"][0].tolist()
    [[0.0], [1.0]]
    >>> numbering.files(Path("scans")).row_name(1)
    "client 'a', task 'sick', row 1"
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str, int]] = {}  # path → its number, and where it was seen first

    def of_clients(self, clients: Mapping[str, object]) -> Mapping[str, object]:
        """The same clients with a column of numbers in place of each list of paths."""
        if not isinstance(clients, Mapping):
            return clients  # who reads it will reject it
        return {name: self._of_client(data, f"client {str(name)!r}") for name, data in clients.items()}

    def files(self, folder: Path) -> ImageFiles:
        seen = list(self._seen.values())
        return ImageFiles(folder, np.array(list(self._seen)), lambda i: f"{seen[i][1]}, row {seen[i][2]}")

    def _of_client(self, data: object, where: str) -> object:
        pairs = data if isinstance(data, Mapping) else {None: data}
        made: dict[int, np.ndarray] = {}  # tasks that are given the same list share its images
        numbered = {}
        for task, pair in pairs.items():
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                return data  # who reads it will reject it
            if id(pair[0]) not in made:
                made[id(pair[0])] = self._of_paths(pair[0], where if task is None else f"{where}, task {task!r}")
            numbered[task] = (made[id(pair[0])], pair[1])
        return numbered if isinstance(data, Mapping) else numbered[None]

    def _of_paths(self, paths: Any, where: str) -> np.ndarray:
        if isinstance(paths, (str, os.PathLike)):
            raise DataError(f"{str(paths)!r} is not a list of paths", where=where, remedy="give a list")
        numbers = np.empty((len(paths), 1))
        for row, path in enumerate(paths):
            if not isinstance(path, (str, os.PathLike)) or not str(path):
                raise DataError(f"{path!r} is not a path", where=f"{where}, row {row}", remedy="give the file's name")
            numbers[row, 0], *_ = self._seen.setdefault(os.fspath(path), (len(self._seen), where, row))
        return numbers


def images_in(folder: Path, pattern: str = "*") -> list[str]:
    """The names of image files in a folder, sorted: the order on the disk is nobody's choice."""
    return sorted(path.name for path in folder.glob(pattern) if path.suffix.lower() in SUFFIXES and path.is_file())


def data_folder(folder: str | Path | None, name: str, expected: Sequence[str], source: str) -> Path:
    """The folder of a data set, or an error that says which files belong there and where they come from."""
    remedy = f"give folder=... with {', '.join(expected)} in it, from {source}"
    if folder is None or not (path := Path(folder).expanduser()).is_dir():
        what = "there is no folder " + ("of images" if folder is None else repr(str(folder)))
        raise DataError(what, where=f"data set {name!r}", remedy=remedy)
    return path
