"""Paths as users give them become numbers, each distinct path one, with a memory of where it was first seen.

>>> numbering = Numbering()
>>> numbering.of_clients({"a": {"sick": (["x.png", "y.png"], [0, 1])}})["a"]["sick"][0].tolist()
[[0.0], [1.0]]
>>> numbering.files(Path("scans")).row_name(1)
"client 'a', task 'sick', row 1"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.images.files import ImageFiles
from polyfed.errors import DataError


class Numbering:
    """Numbers in the order in which paths are first seen."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._place: list[tuple[str, int]] = []

    def of_clients(self, clients: Mapping[str, Any]) -> Any:
        """The same clients with a column of numbers in place of each list of paths."""
        if not isinstance(clients, Mapping):
            return clients  # who reads it will reject it
        return {name: self._of_client(data, f"client {str(name)!r}") for name, data in clients.items()}

    def files(self, folder: Path) -> ImageFiles:
        """All that was numbered."""
        place = self._place
        return ImageFiles(folder, np.array(list(self._number)), lambda i: f"{place[i][0]}, row {place[i][1]}")

    def _of_client(self, data: Any, where: str) -> Any:
        if isinstance(data, Mapping):
            made: dict[int, np.ndarray] = {}  # tasks that are given the same list share its images
            tasks = {}
            for task, pair in data.items():
                if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                    return data
                if id(pair[0]) not in made:
                    made[id(pair[0])] = self._of_paths(pair[0], f"{where}, task {task!r}")
                tasks[task] = (made[id(pair[0])], pair[1])
            return tasks
        if isinstance(data, (tuple, list)) and len(data) == 2:
            return self._of_paths(data[0], where), data[1]
        return data

    def _of_paths(self, paths: Any, where: str) -> np.ndarray:
        if isinstance(paths, (str, os.PathLike)):
            raise DataError(f"{str(paths)!r} is not a list of paths", where=where, remedy="give a list")
        numbers = np.empty((len(paths), 1))
        for row, path in enumerate(paths):
            if not isinstance(path, (str, os.PathLike)) or not str(path):
                raise DataError(f"{path!r} is not a path", where=f"{where}, row {row}", remedy="give the file's name")
            name = os.fspath(path)
            if name not in self._number:
                self._number[name] = len(self._place)
                self._place.append((where, row))
            numbers[row, 0] = self._number[name]
        return numbers
