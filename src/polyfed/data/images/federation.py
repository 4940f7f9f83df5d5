"""Clients with images: whose they are and what they show. They are opened when somebody says how to see them.

>>> shots = {"ward 1": {"tumour": (["a.png", "b.png"], ["no", "yes"]), "age": (["c.png"], [61.0])}}
>>> fed = ImageFederation.from_clients(shots, {"tumour": "binary", "age": "regression"}, folder="scans")
>>> fed
ImageFederation of 1 client and 3 images; tumour (binary): 2 labels, age (regression): 1 label
>>> fed.of("ward 1", "age")[0][0].name
'c.png'
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from polyfed.data.features.matrix import to_numpy
from polyfed.data.features.raw import RawFeatures, read_features, stack_features
from polyfed.data.federation import Federation
from polyfed.data.images.files import ImageFiles, Numbering
from polyfed.data.raw import RawClient
from polyfed.data.splits import DEFAULT_SPLIT, Split
from polyfed.data.tables.columns import written_columns
from polyfed.data.tables.derived import Comparison
from polyfed.data.tables.files import Table, load_table
from polyfed.data.tables.reading import TableReader
from polyfed.data.task import Task, as_tasks
from polyfed.errors import ConfigError, DataError, UnknownNameError, UsageError, nearest

CORRUPTIONS = ("masked", "blurred")  # how `embed` may be asked to spoil images; what is done to pixels is its affair


class Embed(Protocol):
    """Paths of n images → n rows of numbers. Tests of corrupted images call it with corruption="masked" as well."""

    def __call__(self, paths: list[Path], /) -> ArrayLike: ...


@dataclass(frozen=True, eq=False, repr=False)
class ImageFederation:
    """Made by `from_clients`, or by a data set such as `celeba`; `with_features` turns it into a `Federation`."""

    files: ImageFiles  # all images, by number
    numbered: Federation  # the clients and their labels; the one feature of a row is the number of its image
    corruption: str | None = None  # how test images are corrupted before they are seen; None shows them as they are

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, object],
        tasks: object,
        *,
        folder: str | Path = ".",
        test: Mapping[str, object] | None = None,
        scaling: str = "federated",
        split: Split = DEFAULT_SPLIT,
    ) -> ImageFederation:
        """From {name: {task: (paths, labels)}} or, where tasks share their images, {name: (paths, {task: labels})}.

        Relative paths begin at `folder`. A client in `test` (of the same form) brings test images of its own.
        """
        numbering = Numbering()
        known, tested = numbering.of_clients(clients), numbering.of_clients(test or {})
        numbered = Federation.from_clients(known, as_tasks(tasks), test=tested, scaling=scaling, split=split)
        return cls(numbering.files(Path(folder).expanduser()), numbered)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.numbered.tasks

    @property
    def names(self) -> tuple[str, ...]:
        return self.numbered.names

    def __len__(self) -> int:
        return len(self.numbered)

    def __repr__(self) -> str:
        members = self.numbered.raw.values()
        labels = []
        for task in self.tasks:
            found = [raw.labels[task.name].at < raw.n_own for raw in members if task.name in raw.labels]
            n = int(np.concatenate(found).sum())
            labels.append(f"{task.name} ({task.kind}): {n} label{'s' if n > 1 else ''}")
        n_images = self._n_distinct([numbers(raw)[: raw.n_own] for raw in members])
        n_test = self._n_distinct([numbers(raw)[raw.n_own :] for raw in members])
        tested = f", {n_test} {self.corruption or 'further'} images for testing" if n_test else ""
        clients = f"{len(self)} client{'s' if len(self) > 1 else ''}"
        return f"ImageFederation of {clients} and {n_images} images; {', '.join(labels)}{tested}"

    def _n_distinct(self, parts: list[np.ndarray]) -> int:
        return len(self.files.distinct(np.concatenate(parts))[0])

    def of(self, client: str, task: str, *, test: bool = False) -> tuple[list[Path], np.ndarray]:
        """The images of one client that have a label of one task, and these labels; or those of its test rows."""
        if client not in self.numbered.raw:
            raise UnknownNameError(f"client {client!r} is unknown", remedy=nearest(client, self.names[:20]))
        if task not in [t.name for t in self.tasks]:
            raise UnknownNameError(f"task {task!r} is unknown", remedy=nearest(task, [t.name for t in self.tasks]))
        raw = self.numbered.raw[client]
        if task not in raw.labels:
            return [], np.empty(0)
        labels = raw.labels[task]
        kept = (labels.at >= raw.n_own) == test
        values = labels.values[kept]
        if labels.vocabulary is not None:
            values = np.array(labels.vocabulary)[values]
        return self.files.paths(numbers(raw)[labels.at[kept]]), values

    def test_images(self, client: str) -> list[Path]:
        """The images of the test rows of one client, in their order."""
        raw = self.numbered.raw[client]
        return self.files.paths(numbers(raw)[raw.n_own :])

    def corrupted(self, kind: str) -> ImageFederation:
        """The same federation with test images that are corrupted; training images, hence units and models, stay."""
        if kind not in CORRUPTIONS:
            raise ConfigError(f"corruption {kind!r} is not known", remedy=nearest(kind, CORRUPTIONS))
        if not any(raw.n_test for raw in self.numbered.raw.values()):
            what = "no client has test images of its own, so none can be corrupted"
            raise UsageError(what, remedy="say which rows are for testing, for example with test=...")
        return replace(self, corruption=kind)

    def with_features(self, embed: Embed) -> Federation:
        """The federation of what `embed` makes of the images; it sees each distinct image once.

        As in any federation, features and regression targets are standardised in `prepare`, by training rows alone.
        """
        shown: list[np.ndarray] = []  # as they are
        corrupted: list[np.ndarray] = []
        for raw in self.numbered.raw.values():
            n_shown = raw.n_own if self.corruption else len(raw)
            shown.append(numbers(raw)[:n_shown])
            corrupted.append(numbers(raw)[n_shown:])
        wanted, row_shown = self.files.distinct(np.concatenate(shown))
        wanted_corrupted, row_corrupted = self.files.distinct(np.concatenate(corrupted))
        self.files.reject_absent(np.union1d(wanted, wanted_corrupted))  # before the first of many images is opened
        features = self._see(embed, wanted, None)
        if self.corruption:
            row_corrupted += len(features)
            of_corrupted = self._see(embed, wanted_corrupted, self.corruption)
            features = stack_features([features, of_corrupted], where=f"features of {self.corruption} images")
        raw_clients = {}
        for (name, raw), a, b in zip(self.numbered.raw.items(), shown, corrupted, strict=True):
            rows = np.concatenate([row_shown[a], row_corrupted[b]])
            raw_clients[name] = RawClient(features.take(rows), raw.labels, raw.n_test)
        return replace(self.numbered, raw=raw_clients)

    def _see(self, embed: Embed, wanted: np.ndarray, corruption: str | None) -> RawFeatures:
        paths = self.files.paths(wanted)
        given = {} if corruption is None else {"corruption": corruption}
        _reject_unless_it_takes(embed, paths, given)
        found = to_numpy(embed(paths, **given))
        if found.ndim != 2 or len(found) != len(paths) or found.dtype.kind not in "biuf":
            what = f"gave {found.dtype} of shape {found.shape} for {len(paths)} images"
            remedy = "let it return a row of numbers for each path, flat if they are pixels"
            raise DataError(what, where="embed", remedy=remedy)
        bad = ~np.isfinite(found).all(axis=1)
        if bad.any():
            what = f"a feature of {paths[int(bad.argmax())].as_posix()} is not finite"
            raise DataError(what, where="embed", remedy="look at this image and at the function")
        return read_features(found, where="embed")


def numbers(raw: RawClient) -> np.ndarray:
    """The number of the image of each row."""
    return raw.features.numbers[:, 0].astype(np.int64)


def _reject_unless_it_takes(embed: Embed, paths: list[Path], given: Mapping[str, str]) -> None:
    if not callable(embed):
        raise ConfigError(f"embed={embed!r} is not a function", remedy="give one from paths to rows of numbers")
    try:
        inspect.signature(embed).bind(paths, **given)
    except ValueError:  # some functions of compiled modules have none
        return
    except TypeError as error:
        asked = "".join(f", {key}={value!r}" for key, value in given.items())
        what = f"cannot be called as embed(paths{asked}): {error}"
        raise ConfigError(what, where="embed", remedy="let it take these arguments") from None


def own_images(
    table: str | Path | None = None,
    tasks: object = None,
    path: str = "path",
    client: str = "client",
    test: str | None = None,
    derive: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
) -> ImageFederation:
    """Your own: a table with a column of paths, one of clients, and one for each task.

    Paths are relative to the table, or to `folder`. Tasks are given as in {"sick": "binary"}. `test` is a comparison
    that holds for test images, such as "part == 'test'"; without one, the split of the federation chooses test rows.
    """
    if table is None:
        what = "there is no table of images"
        raise ConfigError(what, where="data set 'images'", remedy="give table=..., a CSV or Parquet file")
    made = as_tasks(tasks or ())
    read = load_table(Path(table).expanduser(), written=written_columns(made, client))
    names = read.column(path).to_numpy(dtype=object)
    for row, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            what = f"{name!r} in column {path!r} is not a path"
            raise DataError(what, where=read.row_name(row), remedy="give the file's name, or drop the row")
    # Whose row it is and what its labels are is read as in any table, in which the one feature is the image's number.
    numbered = Table(read.frame.assign(**{path: np.arange(len(names))}), read.where, read.row_name, read.typed)
    raw = TableReader(made, features=[path], derive=derive).clients(numbered, client=client)
    if test is not None:
        is_test = Comparison.parse("test", test).of(read).fillna(False).to_numpy(dtype=bool)
        raw = {name: _with_own_test(name, one, is_test) for name, one in raw.items()}
    begin = Path(read.where).parent if folder is None else Path(folder).expanduser()
    files = ImageFiles(begin, names.astype(str), read.row_name)
    return ImageFederation(files, Federation(made, dict(sorted(raw.items())), "federated", DEFAULT_SPLIT))


def _with_own_test(name: str, raw: RawClient, is_test: np.ndarray) -> RawClient:
    own = is_test[raw.features.numbers[:, 0].astype(np.int64)]
    if not own.any():
        return raw
    if own.all():
        what = "has test images but no others"
        raise DataError(what, where=f"client {name!r}", remedy="leave it out, or let it train on some")
    return raw.take(np.flatnonzero(~own)).with_test(raw.take(np.flatnonzero(own)), where=f"client {name!r}")
