"""What is measured of a finished run, from its folder: numbers by task and metric, some by round or by case."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from polyfed.data.images import CORRUPTIONS
from polyfed.experiments.building import image_federation
from polyfed.experiments.comparing import Cell, personal_scores, scores
from polyfed.folders.results_file import read_results
from polyfed.metrics import auroc, brier, ece, fpr95, nll
from polyfed.paper.presets import Block
from polyfed.predictions import BinaryPrediction, MulticlassPrediction
from polyfed.report.folders import rows_of

STANDARDISED = ("celeba",)  # data sets whose regression target is published in units of its standard deviation
POINTS = 40  # of the quadrature over the latent function
BAND = 1.96  # standard deviations on each side of a 95 % band, as results.json has it


class Measure(NamedTuple):
    """One number of one run."""

    task: str
    metric: str
    value: float
    case: str = ""
    round: int | None = None


def prediction(block: Block, cell: Cell) -> list[Measure]:
    """The squared error of regression and the accuracy of classification, mean over the clients."""
    units = {}  # task → the standard deviation of its training labels, where errors are published in its units
    if block.data in STANDARDISED:
        codecs = block.federation.prepare(block.seed).spec.codecs
        units = {task: float(codec.scale) for task, codec in codecs.items() if codec.task.kind == "regression"}
    return [
        Measure(task, metric, value / units.get(task, 1.0) ** 2 if metric == "mse" else value)
        for task, found in scores(cell.folder).items()
        for metric, value in found.items()
        if metric in ("mse", "accuracy")
    ]


def convergence(block: Block, cell: Cell) -> list[Measure]:
    """The accuracy after each round."""
    table = personal_scores(cell.folder)
    means = table.loc[table["metric"] == "accuracy"].groupby(["task", "round"], sort=True)["value"].mean()
    return [Measure(task, "accuracy", float(value), round=int(round)) for (task, round), value in means.items()]


def calibration(block: Block, cell: Cell) -> list[Measure]:
    """How far confidence and accuracy are apart, over the test rows of all clients together."""
    results, found = read_results(cell.folder), []
    for task, described in (results.get("tasks") or {}).items():
        rows = rows_of(results.get("predictions") or {}, task, ("y", "proba"))
        if described["classes"] and len(rows):
            y, proba = rows.values["y"].astype(int), rows.values["proba"]
            log_density = np.log(np.maximum(proba[np.arange(len(y)), y], 1e-300))
            found += [
                Measure(task, "ece", ece(proba, y)),
                Measure(task, "brier", brier(proba, y)),
                Measure(task, "nll", nll(log_density)),
            ]
    return found


def latents(block: Block, cell: Cell) -> list[Measure]:
    """How near the posterior is to the true latent functions, how sure it is, and how often its band holds them."""
    by_metric: dict[tuple[str, str], list[float]] = {}
    for of_client in (read_results(cell.folder).get("latents") or {}).values():
        for task, latent in of_client.items():
            mean, lower, upper, truth = (np.array(latent[key]) for key in ("mean", "lower", "upper", "truth"))
            values = {
                "latent_mse": np.mean((mean - truth) ** 2),
                "latent_variance": np.mean(((upper - lower) / (2 * BAND)) ** 2),
                "latent_coverage": np.mean((lower < truth) & (truth < upper)),
            }
            for metric, value in values.items():
                by_metric.setdefault((task, metric), []).append(float(value))
    return [Measure(task, metric, float(np.mean(values))) for (task, metric), values in by_metric.items()]


def ood(block: Block, cell: Cell) -> list[Measure]:
    """Whether scores of uncertainty tell corrupted test images from those that are not, the mean over the clients."""
    from polyfed.engine import load

    run = load(cell.folder)
    seed, names, made = run.settings.seed, run.members.names, []
    clean = {client: run.client(client).predictor(run.prepared.clients[client].test.x) for client in names}
    for corruption in CORRUPTIONS:
        prepared = image_federation(block.config.data, corruption).prepare(seed)
        found: dict[tuple[str, str, str], list[float]] = {}
        for client in names:
            corrupted = run.client(client).predictor(prepared.clients[client].test.x)
            for task in (task for task in corrupted if hasattr(corrupted[task], "proba")):
                before, after = uncertainties(clean[client][task]), uncertainties(corrupted[task])
                for score in before.keys() & after.keys():
                    for metric in (auroc, fpr95):
                        key = task, f"{corruption}, {score}", metric.__name__
                        found.setdefault(key, []).append(metric(before[score], after[score]))
        made += [Measure(task, m, float(np.mean(found[task, case, m])), case) for task, case, m in sorted(found)]
    return made


MEASURES: dict[str, Callable[[Block, Cell], list[Measure]]] = {
    "prediction": prediction,
    "convergence": convergence,
    "calibration": calibration,
    "latents": latents,
    "ood": ood,
}


def uncertainties(prediction: BinaryPrediction | MulticlassPrediction) -> dict[str, np.ndarray]:
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
