"""Few-shot federations of images: every client is given a few labels of each task, no image to two tasks or clients.

The images are dealt like cards from a sorted and then shuffled pack: every task has a pack of its own, and client after
client takes its share. So the seed decides, not the order of files on the disk, and the first clients
have the same images whether or not others follow. Test images are the same for all clients, for they all
draw from one distribution; each has a label of every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyfed.data.features.matrix import at, reject_unless_whole
from polyfed.data.federation import Federation
from polyfed.data.images.federation import ImageFederation
from polyfed.data.images.files import ImageFiles
from polyfed.data.task import Task
from polyfed.errors import ConfigError, nearest
from polyfed.kinds import LabelForm
from polyfed.seeds import Stream

TESTED_ON = ("test", "validation")


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
