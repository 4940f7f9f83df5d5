"""Few-shot federations of images: every client is given a few labels of each task, no image to two tasks or clients.

The images are dealt like cards from a sorted and then shuffled pack: every task has a pack of its own, and client after
client takes its share. So the seed decides, not the order of files on the disk, and the first clients
have the same images whether or not others follow. Test images are the same for all clients, for they all
draw from one distribution; each has a label of every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polyfed.data.datasets.options import reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles
from polyfed.data.task import Task
from polyfed.errors import ConfigError, nearest
from polyfed.kinds import LabelForm
from polyfed.seeds import Stream

PARTS = ("test", "validation")


def few_shot(
    files: ImageFiles,
    tasks: Sequence[Task],
    labels: Mapping[str, np.ndarray],
    train: np.ndarray,
    test: np.ndarray | None,
    *,
    shots: int,
    n_clients: int,
    n_test: int,
    seed: int,
    balanced: bool = False,
    where: str,
    tested_on: str = "test",
    validation: np.ndarray | None = None,
) -> ImageFederation:
    """Deal images of the numbers in `train` out to clients, and test all of them on `n_test` of those in `test`.

    `labels` has one label of each task for every image. Without a `test` the test images are set aside from `train`
    first. `tested_on="validation"` takes those in `validation` instead, or training images that nobody was dealt: to choose
    options by, without a look at a test image. `balanced` gives a client as many shots of one class of a binary task as of
    the other, instead of as many as chance does.
    """
    reject_unless_whole(where, 1, shots=shots, n_clients=n_clients, n_test=n_test)
    reject_unless_whole(where, 0, seed=seed)
    if tested_on not in PARTS:
        raise ConfigError(f"tested_on is {tested_on!r}", where=where, remedy=nearest(tested_on, PARTS))
    _reject_scarcity(n_test, len(train if test is None else test), f"n_test={n_test} needs", "test", "n_test", where)
    tested = Stream(seed, "test images").numpy().permutation(train if test is None else test)[:n_test]
    if test is None:
        train = np.setdiff1d(train, tested)
    asked = f"{shots} shots × {n_clients} clients × {len(tasks)} tasks need"
    _reject_scarcity(shots * n_clients * len(tasks), len(train), asked, "training", "shots or n_clients", where)

    pack = Stream(seed, "training images").numpy().permutation(train)
    clients = [{} for _ in range(n_clients)]
    for i, task in enumerate(tasks):
        own, y = pack[i :: len(tasks)], labels[task.name]
        if balanced and task.form is LabelForm.BINARY:
            hands = _balanced_hands(own, y[own], shots, n_clients, f"{where}, task {task.name!r}")
        else:
            hands = own[: shots * n_clients].reshape(n_clients, shots)
        for client, hand in zip(clients, hands, strict=True):
            client[task.name] = (hand[:, None], y[hand])
    if tested_on == "validation":
        dealt = np.concatenate([hand[:, 0] for client in clients for hand, _ in client.values()])
        left = np.setdiff1d(pack if validation is None else validation, dealt)
        _reject_scarcity(n_test, len(left), f"n_test={n_test} needs", "validation", "n_test", where)
        tested = Stream(seed, "validation images").numpy().permutation(left)[:n_test]
    names = [f"client {i + 1:0{len(str(n_clients))}d}" for i in range(n_clients)]
    common = (tested[:, None], {task.name: labels[task.name][tested] for task in tasks})
    numbered = Federation.from_clients(dict(zip(names, clients, strict=True)), tasks, test=dict.fromkeys(names, common))
    return ImageFederation(files, numbered)


def _balanced_hands(own: np.ndarray, y: np.ndarray, shots: int, n_clients: int, where: str) -> np.ndarray:
    """The shots of each client, half of each class; with an odd number the larger half is of each class in turn."""
    classes = np.unique(y)
    client, position = np.indices((n_clients, shots))
    of_class = (client + position) % len(classes)
    hands = np.empty((n_clients, shots), dtype=np.int64)
    for k, label in enumerate(classes):
        needed, there = int((of_class == k).sum()), own[y == label]
        asked = f"{shots} balanced shots × {n_clients} clients need"
        _reject_scarcity(needed, len(there), asked, f"training (class {label})", "shots or n_clients", where)
        hands[of_class == k] = there[:needed]
    return hands


def _reject_scarcity(needed: int, there: int, asked: str, kind: str, culprit: str, where: str) -> None:
    if needed > there:
        raise ConfigError(
            f"{asked} {needed} {kind} images, and there are {there}", where=where, remedy=f"lower {culprit}"
        )
