"""What leaves a client, measured: how many names, and how well a row can be read from moments and from a first update.

    python -m bench.leaks          prints the table of docs/security.md

The client has 1, 2, 9 or 10 rows of a wide table. Moments: one row is their mean; of two, mean plus or minus std are the two
values of each column. Updates of a linear model: the change of the weights over the change of the bias is the row itself, or
for several rows a mean of them, weighted by their residuals (up to a factor that everybody knows). Evidence of pfed-hier: Λ of
one row is an outer product of its features, and those of a plane are the row and a constant, so that the first eigenvector is
the row; of several rows it is a mixture. An error is that of the row
that is matched best, the median of 20 clients, with columns in units of their std: 0 if the row is read, 1 if nothing is
known of it but the average row.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import torch

from polyfed.data import DEPLOYED, OPEN, ClientData, FederationSpec, LabelCodec, Limits, Task, describe
from polyfed.data.raw import read_client
from polyfed.data.schema.coding import shared_part
from polyfed.data.splits import Division
from polyfed.gp import Evidence
from polyfed.gp.whitened import features_of_rows
from polyfed.methods import ClientUpdate, Method, PFedHier, method
from polyfed.methods.gp.states import Served
from polyfed.seeds import Stream

N_COLUMNS = 20
SEEDS = 20
TASK = Task("pulse")
LINEAR = {  # method → options, and the names of weights and bias in its update
    "fedavg": ({"hidden": (), "local_epochs": 1, "batch_size": 1000}, "head.0.weight", "head.0.bias"),
    "pfed-mul": ({"mean": "linear"}, "features.mean", "features.mean_bias"),
}


def names_told(levels: list[str], limits: Limits) -> int:
    """How many of these texts a client with this column names in round 0."""
    summary = _summary(pd.DataFrame({"name": levels}), limits)
    return len(set(summary.categories.get("name", ())) & set(levels))


def from_moments(n: int, limits: Limits, seed: int = 0) -> float | None:
    """The relative error of a client's first row, read from what it tells in round 0; None if there is nothing to read."""
    x = np.random.default_rng(seed).normal(0, 1, (n, N_COLUMNS))
    reported = _summary(pd.DataFrame(x), limits).moments
    if reported is None or not reported.count.any():
        return None
    # With one row the std is 0. Of two, the true value is one of both, column by column.
    guesses = np.stack([reported.mean - reported.std, reported.mean + reported.std])
    best = np.take_along_axis(guesses, np.abs(guesses - x[0]).argmin(0)[None], 0)[0]
    return float(np.linalg.norm(best - x[0]) / np.linalg.norm(x[0]))


def from_update(name: str, n: int, limits: Limits, seed: int = 0) -> float | None:
    """The relative error of the row that a first update of a linear model is nearest to; None if no update is sent."""
    options, weights, bias = LINEAR[name]
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1, (n, N_COLUMNS)), rng.normal(0, 1, n)
    update = _first_update(method(name, **options), x, y, limits)
    if update is None:
        return None
    ratio = update.arrays[weights].numpy().reshape(-1) / update.arrays[bias].numpy().item()
    cosines = (x @ ratio) / np.linalg.norm(x, axis=1) / np.linalg.norm(ratio)
    best = x[np.abs(cosines).argmax()]
    return float(np.linalg.norm(ratio * (ratio @ best) / (ratio @ ratio) - best) / np.linalg.norm(best))


def from_evidence(n: int, limits: Limits, seed: int = 0) -> float | None:
    """The relative error of the row that is nearest to the first eigenvector of a first evidence; None if none is sent."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1, (n, N_COLUMNS)), rng.normal(0, 1, n)
    made = method("pfed-hier")
    update = _first_update(made, x, y, limits)
    if update is None:
        return None
    evidence = Evidence(update.arrays["evidence/triangle"], update.arrays["evidence/shift"])
    plane = evidence.precision[: N_COLUMNS + 1, : N_COLUMNS + 1].numpy()  # of the first shared function
    row = np.linalg.eigh(plane)[1][:, -1]
    found = row[:-1] / row[-1] * N_COLUMNS**0.5  # the constant among the features is √D
    return float(min(np.linalg.norm(x - found, axis=1) / np.linalg.norm(x, axis=1)))


def evidence_rank(n: int, seed: int = 0) -> int:
    """The rank of a first evidence: how many rows a client has, for everybody to see."""
    rng = np.random.default_rng(seed)
    update = _first_update(method("pfed-hier"), rng.normal(0, 1, (n, N_COLUMNS)), rng.normal(0, 1, n), OPEN)
    assert update is not None
    evidence = Evidence(update.arrays["evidence/triangle"], update.arrays["evidence/shift"])
    return int(np.linalg.matrix_rank(evidence.precision.numpy(), tol=1e-9, hermitian=True))


def membership(n: int, limits: Limits, seed: int = 0) -> float | None:
    """How often a server is right about whether a row that it has in hand is among a client's n rows; half of 40 are.

    The features of its rows span the evidence of a client, so a row is one of them if its features lie in that span.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1, (n, N_COLUMNS)), rng.normal(0, 1, n)
    made = PFedHier()
    update = _first_update(made, x, y, limits)
    if update is None:
        return None
    data = ClientData(x, {}, {TASK.name: LabelCodec(TASK, None, 0.0, 1.0)})
    server = made.init(FederationSpec((TASK,), N_COLUMNS, ("a",), data.codecs), Stream(0, "start"))
    served = Served.from_arrays(server)
    prior = made.model(data).prior.with_values(served.values)
    n_shared = made._n_shared(made.model(data))
    asked = np.concatenate([x[np.arange(20) % n], rng.normal(0, 1, (20, N_COLUMNS))])
    weights = prior.W[:1].expand(len(asked), -1)
    features = features_of_rows(prior, n_shared, served.points, torch.from_numpy(asked), weights).detach().numpy()
    evidence = Evidence(update.arrays["evidence/triangle"], update.arrays["evidence/shift"])
    values, vectors = np.linalg.eigh(evidence.precision.numpy())
    inside = vectors[:, values > 1e-9]
    outside = features - features @ inside @ inside.T
    left = np.linalg.norm(outside, axis=1) / np.linalg.norm(features, axis=1)
    return float(np.mean((left < 0.01) == (np.arange(len(asked)) < 20)))


def _first_update(made: Method, x: np.ndarray, y: np.ndarray, limits: Limits) -> ClientUpdate | None:
    """What a client with these rows sends first; None if it is silent."""
    codecs = {TASK.name: LabelCodec(TASK, None, 0.0, 1.0)}
    spec = FederationSpec((TASK,), N_COLUMNS, ("a",), codecs)
    data = shared_part(ClientData(x, {TASK.name: (np.arange(len(x)), y)}, codecs), (), limits)
    if not data.n_labels:
        return None
    start = Stream(0, "start")
    message = made.broadcast(made.init(spec, start), "a")
    return made.local(made.start(data, start), message, data, Stream(0, "local", 1, "a"))[1]


def _summary(X: pd.DataFrame, limits: Limits):
    raw = read_client("a", (X.rename(columns=str), {TASK.name: np.arange(len(X), dtype=float)}), [TASK])
    nobody = np.array([], dtype=np.int64)
    return describe([TASK], raw, Division(np.arange(len(X)), nobody, nobody), limits=limits)


def table() -> list[list[str]]:
    """One line for each attack, with the limits of one process and of a node."""

    def shown(attack, *given: object) -> str:
        errors = [attack(*given, seed) for seed in range(SEEDS)]
        if None in errors:
            return "nothing is sent"
        middle = np.median(errors)
        return "0" if middle == 0 else f"{middle:.0e}" if middle < 1e-3 else f"{middle:.2f}"

    surgeons = [f"Dr {i}" for i in range(20) for _ in range(8)] + [f"Dr {i}" for i in range(20, 60) for _ in range(2)]
    patients = [f"Patient {i}" for i in range(4000)]
    limits = (OPEN, DEPLOYED)
    lines = [
        ["names of 4,000 patients in a column", *(str(names_told(patients, each)) for each in limits)],
        ["names of 60 surgeons, 40 of them with 2 rows", *(str(names_told(surgeons, each)) for each in limits)],
    ]
    for n in (1, 2, 9, 10):
        rows = "1 row" if n == 1 else f"{n} rows"
        lines.append([f"a row from the moments of {rows}", *(shown(from_moments, n, each) for each in limits)])
        for name in LINEAR:
            reported = f"a row from {name}'s first update of {rows}"
            lines.append([reported, *(shown(from_update, name, n, each) for each in limits)])
        lines.append(
            [f"a row from pfed-hier's first evidence of {rows}", *(shown(from_evidence, n, each) for each in limits)]
        )
    for n in (10, 100, 200):
        reported = f"right about whether a known row is among {n} of pfed-hier's (guessing: 0.50)"
        lines.append([reported, *(shown(membership, n, each) for each in limits)])
    return lines


if __name__ == "__main__":
    rows = [["what", "in one process (1, 1)", "on a node (10, 5)"], ["---"] * 3, *table()]
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)
