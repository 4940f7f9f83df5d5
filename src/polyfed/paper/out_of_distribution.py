"""Scores of uncertainty on test images and on the same images corrupted: does a higher score mean a corrupted one?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyfed.data.images import CORRUPTIONS
from polyfed.experiments.config import DataConfig
from polyfed.experiments.images import image_federation
from polyfed.metrics import auroc, fpr95

POINTS = 40  # of the quadrature over the latent function


def ood_measures(data: DataConfig, folder: Path) -> Iterator[tuple[str, str, str, float]]:
    """Task, "<corruption>, <score>", metric, and the mean over the clients, of the run in a folder."""
    from polyfed.engine import load

    run = load(folder)
    seed, names = run.settings.seed, run.members.names
    clean = {client: run.client(client).predictor(run.prepared.clients[client].test.x) for client in names}
    for corruption in CORRUPTIONS:
        prepared = image_federation(data, corruption).prepare(seed)
        found: dict[tuple[str, str, str], list[float]] = {}
        for client in names:
            corrupted = run.client(client).predictor(prepared.clients[client].test.x)
            for task in corrupted:
                if not hasattr(corrupted[task], "proba"):
                    continue
                before, after = uncertainties(clean[client][task]), uncertainties(corrupted[task])
                for score in before.keys() & after.keys():
                    case = f"{corruption}, {score}"
                    found.setdefault((task, case, "auroc"), []).append(auroc(before[score], after[score]))
                    found.setdefault((task, case, "fpr95"), []).append(fpr95(before[score], after[score]))
        for key in sorted(found):
            yield (*key, float(np.mean(found[key])))


def uncertainties(prediction: Any) -> dict[str, np.ndarray]:
    """Score → its value for each row. Methods without a posterior have no variance, hence no mutual information."""
    proba = prediction.class_proba
    scores = {"entropy": _entropy(proba)}
    std = np.asarray(prediction.latent_std)
    if std.ndim == 1 and np.isfinite(std).all() and (std > 0).any():
        scores["variance"] = std**2
        scores["mutual information"] = mutual_information(prediction.latent_mean, std)
    return scores


def mutual_information(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Of a label and its latent function: the entropy of the average probability less the average entropy, in nats.

    >>> mutual_information(np.array([0.0, 0.0]), np.array([0.0, 3.0])).round(3).tolist()
    [0.0, 0.333]
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(POINTS)
    p = 1 / (1 + np.exp(-(mean[:, None] + std[:, None] * nodes)))
    weights = weights / weights.sum()
    both = np.stack([1 - p, p], axis=-1)
    gained = _entropy(np.einsum("nqk,q->nk", both, weights)) - _entropy(both) @ weights
    return np.maximum(gained, 0.0)


def _entropy(proba: np.ndarray) -> np.ndarray:
    return -(proba * np.log(np.maximum(proba, 1e-300))).sum(axis=-1)
