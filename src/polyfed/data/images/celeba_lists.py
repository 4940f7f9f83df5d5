"""The lists of CelebA: official .txt files, where a count and a header may come first, or .csv files with a header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyfed.data.features.matrix import plain
from polyfed.errors import ConfigError, DataError, nearest


@dataclass(frozen=True)
class CelebaList:
    """One list: its file, its columns after the name of the image, and how many lines come before the first row."""

    path: Path
    columns: tuple[str, ...]
    n_before: int

    @property
    def separator(self) -> str:
        return "," if self.path.suffix == ".csv" else r"\s+"

    def read(self, columns: Sequence[str], whole: tuple[int, ...] | None = None) -> Any:
        """A table of these columns and of `line`, by image; if `whole` is given, of these whole numbers only."""
        import pandas as pd

        for name in columns:
            if name not in self.columns:
                raise ConfigError(f"has no column {name!r}", where=self.path.name, remedy=nearest(name, self.columns))
        try:
            frame: Any = pd.read_csv(
                self.path,
                sep=self.separator,
                skiprows=self.n_before,
                header=None,
                names=["image", *self.columns],
                usecols=["image", *columns],
                dtype={"image": str},
            )
        except (ValueError, OSError) as error:
            what = " ".join(str(error).split()).rstrip(".")
            raise DataError(f"cannot be read: {what}", where=str(self.path), remedy="get the file anew") from None
        frame["line"] = range(self.n_before + 1, self.n_before + 1 + len(frame))
        for name in columns:
            values: Any = pd.to_numeric(frame[name], errors="coerce")
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

    def _reject(self, frame: Any, row: int, what: str) -> None:
        line = frame["line"].iloc[row]
        raise DataError(what, where=f"line {line} of {self.path}", remedy="correct it, or get the file anew")


def list_of(folder: Path, name: str, expected: Sequence[str], source: str) -> CelebaList:
    """The list of this name, in either form."""
    path = next((p for suffix in (".txt", ".csv") if (p := folder / f"{name}{suffix}").is_file()), None)
    if path is None:
        what = f"there is no {name}.txt (or .csv)"
        raise DataError(what, where=str(folder), remedy=f"CelebA has {', '.join(expected)}: get it from {source}")
    with path.open(encoding="utf-8", errors="replace") as file:
        first, second = file.readline(), file.readline()
    if path.suffix == ".csv":
        return CelebaList(path, tuple(text.strip() for text in first.split(",")[1:]), 1)
    if first.strip().isdigit():  # the number of rows; names of columns follow, none for the image
        return CelebaList(path, tuple(second.split()), 2)
    return CelebaList(path, ("partition",), 0)  # the one list that has no header
