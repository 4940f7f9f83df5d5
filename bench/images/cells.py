"""One cell: a method on a federation of images, its scores on validation images, its messages and its time.

Features of images are computed once (`$POLYFED_CACHE`), cells that were measured are read back from a file.
"""

from __future__ import annotations

import json
import os
import resource
import time
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import polyfed as pf
from polyfed.data.datasets import load_images
from polyfed.experiments.building import embedder
from polyfed.experiments.config import ImagesConfig
from polyfed.methods import Method, method
from polyfed.methods.gp.pfed_hier import PFedHier
from polyfed.methods.gp.separate import SeparateTasks

SIZES = {"10x20": (10, 20, 18), "20x15": (20, 15, 12), "50x10": (50, 10, 8)}  # shots, clients, clients in a round
SEEN = {"celeba": {"cut": "layer2", "grid": 8, "size": 160}, "dogcat": {}}  # as in the preset `images`
N_TEST = 500


class TasksApart(SeparateTasks):
    """pfed-hier for each task by itself."""

    name = "pfed-hier, tasks apart"
    single = PFedHier(n_components=256)  # as the rows beside it


@dataclass(frozen=True)
class Cell:
    """`targets` are a binary and a regression task of CelebA; those of the benchmark, if there are none."""

    data: str
    size: str
    seed: int
    method: str
    rounds: int
    options: dict[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def made(self) -> Method:
        return TasksApart() if self.method == TasksApart.name else method(self.method, **self.options)


@lru_cache(maxsize=2)  # each has some hundred megabytes
def federation(data: str, size: str, seed: int, targets: tuple[str, ...], folder: str) -> pf.Federation:
    """Tested on validation images."""
    shots, n_clients, _ = SIZES[size]
    options: dict[str, Any] = dict(zip(("binary", "regression"), targets, strict=False))
    images = load_images(
        data,
        folder=Path(folder) / data,
        shots=shots,
        n_clients=n_clients,
        n_test=N_TEST,
        seed=seed,
        tested_on="validation",
        **options,
    )
    return images.with_features(embedder(ImagesConfig(backbone="efficientnet-lite2", **SEEN[data])))


def measured(cell: Cell, folder: str) -> dict[str, float]:
    """Its scores: of the regression in standard deviations of the training labels, mean over the clients."""
    torch.set_num_threads(1)
    study = federation(cell.data, cell.size, cell.seed, cell.targets, folder)
    began = time.process_time()
    run = pf.simulate(
        cell.made(),
        study,
        rounds=cell.rounds,
        seed=cell.seed,
        sample=SIZES[cell.size][2],
        evaluate_every=cell.rounds,
    )
    seconds = time.process_time() - began
    found: dict[str, float] = {}
    kinds = {task.name: task.kind for task in study.tasks}
    for (task, metric), value in run.averages("all").loc["mean"].items():
        if kinds[task] == "binary" and metric in ("accuracy", "nll", "ece"):
            found[metric] = float(value)
        if kinds[task] == "regression" and metric == "mse":
            found[metric] = float(value) / run.prepared.spec.codecs[task].scale ** 2
    up, down = (run.rounds[name] / run.rounds["sampled"] for name in ("bytes_up", "bytes_down"))
    return found | {
        "seconds": seconds,
        "up": float(np.median(up)),
        "down": float(np.median(down)),
        "up_most": float(up.max()),
        "down_most": float(down.max()),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def known(path: Path) -> dict[str, dict[str, float]]:
    """Cells that were measured before."""
    if not path.is_file():
        return {}
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return {line["cell"]: line["scores"] for line in lines}


def keep(path: Path, key: str, scores: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"cell": key, "scores": scores}) + os.linesep)
