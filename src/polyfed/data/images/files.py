"""A list of image files, each with a number and with the place where it was listed.

>>> files = ImageFiles(Path("faces"), np.array(["a.png", "b.png"]), lambda number: f"line {number + 2} of faces.csv")
>>> files.paths([1])[0].name
'b.png'
>>> files.reject_absent([0, 1])
Traceback (most recent call last):
polyfed.errors.DataError: line 2 of faces.csv: there is no file faces/a.png (2 such files); put it there or drop the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png")  # of files that are found in a folder; those that a table lists may have any


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Files by number.

    Attributes:
        folder: where relative names begin.
        names: of the files, as text; two numbers may have the same.
        row_name: what errors call the row that lists the image of a number.
    """

    folder: Path
    names: np.ndarray
    row_name: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.names)

    def paths(self, numbers: Any) -> list[Path]:
        """The paths of these images."""
        return [self.folder / name for name in self.names[np.asarray(numbers, dtype=np.int64)].tolist()]

    def distinct(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One number for each file among these, sorted by name; and for every number which of them is its file."""
        numbers = np.unique(numbers)
        _, first, place = np.unique(self.names[numbers], return_index=True, return_inverse=True)
        of_number = np.zeros(len(self), dtype=np.int64)
        of_number[numbers] = place.reshape(-1)
        return numbers[first], of_number

    def reject_absent(self, numbers: Any) -> None:
        """An error about the first of these images that is no file; nothing is opened."""
        numbers = np.asarray(numbers, dtype=np.int64)
        absent = [i for i, path in enumerate(self.paths(numbers)) if not path.is_file()]
        if absent:
            first = int(numbers[absent[0]])
            more = f" ({len(absent)} such files)" if len(absent) > 1 else ""
            raise DataError(
                f"there is no file {(self.folder / str(self.names[first])).as_posix()}{more}",
                where=self.row_name(first),
                remedy="put it there or drop the row",
            )


def images_in(folder: Path, pattern: str = "*") -> list[str]:
    """The names of image files in a folder, sorted: the order on the disk is nobody's choice."""
    return sorted(path.name for path in folder.glob(pattern) if path.suffix.lower() in SUFFIXES and path.is_file())


def data_folder(folder: Any, name: str, expected: Sequence[str], source: str) -> Path:
    """The folder of a data set, or an error that says which files belong there and where they come from."""
    remedy = f"give folder=... with {', '.join(expected)} in it, from {source}"
    if folder is None:
        raise DataError("there is no folder of images", where=f"data set {name!r}", remedy=remedy)
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}", where=f"data set {name!r}", remedy=remedy)
    return path
