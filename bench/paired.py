"""Whether two methods of Table 1 differ by more than the images that they were tested on: log losses, and image by image.

python -m bench.paired RUNS [--seeds 0,1,2] [--ours pfed-hier]

RUNS is a folder of `polyfed reproduce table1 --runs`. Clients share their test images: an image counts once, as wrong where
most clients have it wrong, and with the mean of their losses. Accuracies are compared by a sign test of the images that one
method alone has wrong (McNemar's; Dietterich 1998, doi:10.1162/089976698300017197), log losses by the mean of
their differences with its standard error. A loss is split into that of images a method has right and that of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from polyfed.folders.results_file import read_results

from .reliability import of_classes

CELLS = [f"{data}-{cell}" for data in ("celeba", "dogcat") for cell in ("10x20", "20x15", "50x10")]
SMALLEST = np.finfo(float).tiny


@dataclass(frozen=True)
class Scores:
    """Of one method in one cell, by seed and image: whether most clients are wrong, and the mean of their log losses."""

    wrong: np.ndarray
    loss: np.ndarray

    @classmethod
    def of(cls, proba: np.ndarray, y: np.ndarray) -> Scores:
        """Of one seed, from (clients, images) of the second class's probability and the labels.

        >>> Scores.of(np.array([[0.9, 0.4], [0.6, 0.7]]), np.array([[1, 0], [1, 0]])).wrong.tolist()
        [[False, False]]
        """
        given = np.where(y == 1, proba, 1.0 - proba)
        loss = -np.log(np.maximum(given, SMALLEST))
        return cls(((given < 0.5).mean(0) > 0.5)[None], loss.mean(0)[None])

    def and_(self, other: Scores) -> Scores:
        return Scores(np.concatenate([self.wrong, other.wrong]), np.concatenate([self.loss, other.loss]))


def read(runs: Path, cell: str, method: str, seeds: list[str]) -> Scores | None:
    """None where a seed is missing: means over other seeds would not compare."""
    scores: Scores | None = None
    for seed in seeds:
        folder = runs / cell / f"{method}-{seed}"
        if not (folder / "results.json").is_file():
            return None
        of_seed = Scores.of(*of_classes(read_results(folder)))
        scores = of_seed if scores is None else scores.and_(of_seed)
    return scores


def methods_in(runs: Path) -> list[str]:
    return sorted({folder.name.rpartition("-")[0] for cell in CELLS for folder in runs.glob(f"{cell}/*-*")})


def losses(found: Mapping[str, Mapping[str, Scores]]) -> Iterator[str]:
    """Log loss of every method and cell: mean ± standard deviation over the seeds, (rank)."""
    cells = list(found)
    yield "| method | " + " | ".join(cells) + " |"
    yield "|:--" + "|--:" * len(cells) + "|"
    for method in dict.fromkeys(name for of_cell in found.values() for name in of_cell):
        row = []
        for of_cell in found.values():
            if method not in of_cell:
                row.append("–")
                continue
            means = {name: scores.loss.mean() for name, scores in of_cell.items()}
            rank = 1 + sum(mean < means[method] for mean in means.values())
            row.append(f"{means[method]:.3f} ± {of_cell[method].loss.mean(1).std(ddof=1):.3f} ({rank})")
        yield f"| {method} | " + " | ".join(row) + " |"


def pairs(found: Mapping[str, Mapping[str, Scores]], ours: str) -> Iterator[str]:
    """Ours beside each other method, image by image."""
    yield "| cell | method | wrong | it alone | ours alone | p | loss of right, of wrong | difference, ours − its |"
    yield "|:--|:--|--:|--:|--:|--:|--:|--:|"
    for cell, of_cell in found.items():
        for method, its in of_cell.items():
            mine = of_cell.get(ours)
            right, wrong = (its.loss * where for where in (~its.wrong, its.wrong))
            begin = f"| {cell} | {method} | {its.wrong.sum()} | "
            split = f" | {right.mean():.4f}, {wrong.mean():.4f} | "
            if mine is None or method == ours:
                yield begin + " | | " + split + " |"
                continue
            alone, mine_alone = int((its.wrong & ~mine.wrong).sum()), int((mine.wrong & ~its.wrong).sum())
            p = binomtest(alone, alone + mine_alone).pvalue if alone + mine_alone else 1.0
            difference = (mine.loss - its.loss).ravel()
            error = difference.std(ddof=1) / np.sqrt(difference.size)
            yield begin + f"{alone} | {mine_alone} | {p:.2g}" + split + f"{difference.mean():+.4f} ± {error:.4f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.paired")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--ours", default="pfed-hier")
    given = parser.parse_args()
    seeds, names = given.seeds.split(","), methods_in(given.runs)
    found = {}
    for cell in CELLS:
        of_cell = {name: read(given.runs, cell, name, seeds) for name in names}
        found[cell] = {name: scores for name, scores in of_cell.items() if scores is not None}
    lines = [*losses(found), "", *pairs(found, given.ours)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
