"""Reliability diagrams of methods side by side, and how large their calibration errors would be if nothing were wrong.

python -m bench.reliability RUNS [--seeds 0,1,2] [--out docs/results/calibration.png]

RUNS is a folder of `polyfed reproduce calibration --runs`, in it celeba-50x10. The expected calibration error is never zero on
finitely many images. `ideal` is what it would be on average if each image's label were drawn from the very probability that the
method gives to it: the part of a figure that no method could avoid. Clients share their test images, so a label is drawn
once for all of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.folders.results_file import read_results
from polyfed.metrics import calibration_bins, ece

from .pictures import new_figure
from .tables.picture import COLOURS

METHODS = ["fedavg", "fedper", "scaffold", "pfedme", "fedpac", "pfedgp", "pfedvem", "pfed-st", "pfed-mul", "pfed-hier"]
DRAWS = 200


def of_classes(results: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(clients, images) of the second class's probability, and the labels."""
    (task,) = (name for name, about in results["tasks"].items() if about["classes"])
    rows = [of_client[task] for of_client in results["predictions"].values()]
    return np.array([np.array(r["proba"])[:, 1] for r in rows]), np.array([r["y"] for r in rows]).astype(int)


def ideal_ece(proba: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation of the calibration error where labels follow these probabilities, (clients, images).

    >>> mean, spread = ideal_ece(np.full((3, 400), 0.9))
    >>> bool(0.009 < mean < 0.015)  # of 400 images that are right in nine of ten cases: 0.8 standard errors of 0.015
    True
    """
    rng = np.random.default_rng(seed)
    found = [ece(proba.ravel(), (rng.random(proba.shape[1]) < proba).astype(int).ravel()) for _ in range(DRAWS)]
    return float(np.mean(found)), float(np.std(found))


def picture(shown: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    """Accuracy by confidence, a panel for each method."""
    across = min(5, len(shown))
    down = -(-len(shown) // across)
    figure = new_figure(2.6 * across, 2.8 * down)
    for i, (method, (proba, y)) in enumerate(shown.items()):
        axes, bins = figure.add_subplot(down, across, i + 1), calibration_bins(proba.ravel(), y.ravel())
        filled = bins.count > 0
        axes.plot([0.5, 1], [0.5, 1], ":", color="grey")
        axes.bar(
            ((bins.edges[:-1] + bins.edges[1:]) / 2)[filled], bins.accuracy[filled], 0.06, color=COLOURS[0], alpha=0.5
        )
        axes.plot(bins.confidence[filled], bins.confidence[filled], "_", color=COLOURS[1], ms=9, mew=2)
        axes.set(xlim=(0.46, 1.01), ylim=(0, 1.02), title=f"{method}, ECE {bins.ece:.3f}")
        axes.title.set_fontsize(9)
    return figure


def table(scores: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    lines = ["| method | ECE | ideal |", "|:--|--:|--:|"]
    for method, found in scores.items():
        each, ideal = np.array(found).T
        lines.append(f"| {method} | {each.mean():.3f} | {ideal.mean():.3f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.reliability")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("docs/results/calibration.png"))
    given = parser.parse_args()
    seeds, scores, shown = given.seeds.split(","), {}, {}
    for method in METHODS:
        folders = [given.runs / "celeba-50x10" / f"{method}-{seed}" for seed in seeds]
        read = [of_classes(read_results(folder)) for folder in folders if (folder / "results.json").is_file()]
        if read:
            shown[method] = read[0]
            scores[method] = [(ece(proba.ravel(), y.ravel()), ideal_ece(proba)[0]) for proba, y in read]
    picture(shown).savefig(given.out, dpi=80, metadata={"Software": None})
    sys.stdout.write(table(scores))


if __name__ == "__main__":
    main()
