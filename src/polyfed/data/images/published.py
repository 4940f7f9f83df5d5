"""The data sets of images that the paper has: CelebA, and cats and dogs.

CelebA is faces with forty attributes (binary tasks) and ten coordinates of landmarks (regression tasks). Of cats and dogs, the
tasks are which of them an image shows, and a made-up number that goes with it.

Both are few-shot: every client is given a few labels of each task, no image to two tasks or clients.
The images are dealt like cards from a sorted and then shuffled pack: every task has a pack of its own, and client after
client takes its share. So the seed decides, not the order of files on the disk, and the first clients
have the same images whether or not others follow. Test images are the same for all clients, for they all
draw from one distribution; each has a label of every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyfed.data.features.matrix import at, plain, reject_unless_between, reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles, data_folder, images_in
from polyfed.data.tables.columns import as_names
from polyfed.data.task import Task, as_tasks
from polyfed.errors import ConfigError, DataError, nearest
from polyfed.kinds import LabelForm
from polyfed.seeds import Stream

if TYPE_CHECKING:
    import pandas as pd

TESTED_ON = ("test", "validation")
IMAGES = "img_align_celeba"
PARTITION, ATTRIBUTES, LANDMARKS = "list_eval_partition", "list_attr_celeba", "list_landmarks_align_celeba"
CELEBA_FILES = (f"{IMAGES}/000001.jpg ...", *(f"{name}.txt (or .csv)" for name in (ATTRIBUTES, LANDMARKS, PARTITION)))
CELEBA_SOURCE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
ANIMALS = ("cat", "dog")
DOGCAT_TASKS = (Task("animal", "binary", classes=ANIMALS), Task("score", "regression"))
DOGCAT_FILES = ("train/cats/*.jpg", "train/dogs/*.jpg and the same in test/ (or train/cat.0.jpg, train/dog.0.jpg ...)")
DOGCAT_SOURCE = "https://www.kaggle.com/c/dogs-vs-cats"


@dataclass(frozen=True)
class FewShot:
    """How images are dealt out; `where` is what errors call the data set."""

    where: str
    shots: int  # labels of each task that a client is given
    n_clients: int
    n_test: int  # test images, the same for all clients
    seed: int
    balanced: bool  # as many shots of one class of a binary task as of the other, instead of as many as chance gives
    tested_on: str  # "validation": to choose options by, without a look at a test image

    def deal(
        self,
        files: ImageFiles,
        tasks: Sequence[Task],
        labels: Mapping[str, np.ndarray],
        train: np.ndarray,
        test: np.ndarray | None,
        validation: np.ndarray | None = None,
    ) -> ImageFederation:
        """Deal images of the numbers in `train` out to clients, and test all of them on some of those in `test`.

        `labels` has one label of each task for every image. Without a `test` the test images are set aside from `train`
        first. Without a `validation` its images are training images that nobody was dealt.
        """
        shots, n_clients, n_test = self.shots, self.n_clients, self.n_test
        reject_unless_whole(self.where, 1, shots=shots, n_clients=n_clients, n_test=n_test)
        reject_unless_whole(self.where, 0, seed=self.seed)
        with at(self.where):
            if self.tested_on not in TESTED_ON:
                raise ConfigError(f"tested_on is {self.tested_on!r}", remedy=nearest(self.tested_on, TESTED_ON))
            tested = self._tested(train if test is None else test, "test")
            if test is None:
                train = np.setdiff1d(train, tested)
            asked = f"{shots} shots × {n_clients} clients × {len(tasks)} tasks need"
            _reject_scarcity(shots * n_clients * len(tasks), len(train), asked, "training", "shots or n_clients")
            pack = Stream(self.seed, "training images").numpy().permutation(train)
            clients = [{} for _ in range(n_clients)]
            for i, task in enumerate(tasks):
                y = labels[task.name]
                hands = self._hands(pack[i :: len(tasks)], y, task)
                for client, hand in zip(clients, hands, strict=True):
                    client[task.name] = (hand[:, None], y[hand])
            if self.tested_on == "validation":
                dealt = np.concatenate([hand[:, 0] for client in clients for hand, _ in client.values()])
                tested = self._tested(np.setdiff1d(pack if validation is None else validation, dealt), "validation")
        names = [f"client {i + 1:0{len(str(n_clients))}d}" for i in range(n_clients)]
        common = (tested[:, None], {task.name: labels[task.name][tested] for task in tasks})
        dealt_out = dict(zip(names, clients, strict=True))
        return ImageFederation(files, Federation.from_clients(dealt_out, tasks, test=dict.fromkeys(names, common)))

    def _tested(self, there: np.ndarray, part: str) -> np.ndarray:
        _reject_scarcity(self.n_test, len(there), f"n_test={self.n_test} needs", part, "n_test")
        return Stream(self.seed, f"{part} images").numpy().permutation(there)[: self.n_test]

    def _hands(self, own: np.ndarray, labels: np.ndarray, task: Task) -> np.ndarray:
        """The shots of each client; balanced, the larger half of an odd number is of each class in turn."""
        shots, n_clients = self.shots, self.n_clients
        if not self.balanced or task.form is not LabelForm.BINARY:
            return own[: shots * n_clients].reshape(n_clients, shots)
        y = labels[own]
        classes = np.unique(y)
        client, position = np.indices((n_clients, shots))
        of_class = (client + position) % len(classes)
        hands = np.empty((n_clients, shots), dtype=np.int64)
        asked = f"{shots} balanced shots × {n_clients} clients need"
        with at(f"{self.where}, task {task.name!r}"):
            for k, label in enumerate(classes):
                needed, there = int((of_class == k).sum()), own[y == label]
                _reject_scarcity(needed, len(there), asked, f"training (class {label})", "shots or n_clients")
                hands[of_class == k] = there[:needed]
        return hands


def _reject_scarcity(needed: int, there: int, asked: str, kind: str, culprit: str) -> None:
    if needed > there:
        raise ConfigError(f"{asked} {needed} {kind} images, and there are {there}", remedy=f"lower {culprit}")


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
