"""What leaves a client, measured: how many names, and how well a row can be read from moments and from a first update.

    python -m bench.leaks          prints the table of docs/security.md

The client has 1, 2 or 10 rows of a wide table. Moments: one row is their mean; of two, mean plus or minus spread are the two
values of each column. Updates of a linear model: the change of the weights over the change of the bias is the row itself, or
for several rows a mean of them, weighted by their residuals (up to a factor that everybody knows). An error is that of the row
that is matched best, the median of 20 clients, with columns in units of their spread: 0 if the row is read, 1 if nothing is
known of it but the average row.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from polyfed.data import DEPLOYED, OPEN, ClientData, FederationSpec, LabelCodec, Limits, Task, describe
from polyfed.data.coding import shared_part
from polyfed.data.raw import read_client
from polyfed.data.splits import Division
from polyfed.methods import method
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
    note = _note(pd.DataFrame({"name": levels}), limits)
    return len(set(note.categories.get("name", ())) & set(levels))


def from_moments(n: int, limits: Limits, seed: int = 0) -> float | None:
    """The relative error of a client's first row, read from what it tells in round 0; None if there is nothing to read."""
    x = np.random.default_rng(seed).normal(0, 1, (n, N_COLUMNS))
    told = _note(pd.DataFrame(x), limits).moments
    if told is None or not told.count.any():
        return None
    # With one row the spread is 0. Of two, the true value is one of both, column by column.
    guesses = np.stack([told.mean - told.spread, told.mean + told.spread])
    best = np.take_along_axis(guesses, np.abs(guesses - x[0]).argmin(0)[None], 0)[0]
    return float(np.linalg.norm(best - x[0]) / np.linalg.norm(x[0]))


def from_update(name: str, n: int, limits: Limits, seed: int = 0) -> float | None:
    """The relative error of the row that a first update of a linear model is nearest to; None if no update is sent."""
    options, weights, bias = LINEAR[name]
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1, (n, N_COLUMNS)), rng.normal(0, 1, n)
    codecs = {TASK.name: LabelCodec(TASK, None, 0.0, 1.0)}
    spec = FederationSpec((TASK,), N_COLUMNS, ("a",), codecs)
    data = shared_part(ClientData(x, {TASK.name: (np.arange(n), y)}, codecs), (), limits)
    if not data.n_labels:
        return None
    made, start = method(name, **options), Stream(0, "start")
    message = made.download(made.init(spec, start), "a")
    _, update = made.local(made.start(data, start), message, data, Stream(0, "local", 1, "a"))
    ratio = update.arrays[weights].numpy().reshape(-1) / update.arrays[bias].numpy().item()
    cosines = (x @ ratio) / np.linalg.norm(x, axis=1) / np.linalg.norm(ratio)
    best = x[np.abs(cosines).argmax()]
    return float(np.linalg.norm(ratio * (ratio @ best) / (ratio @ ratio) - best) / np.linalg.norm(best))


def _note(X: pd.DataFrame, limits: Limits):
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
        return f"{middle:.0e}" if middle < 1e-3 else f"{middle:.2f}"

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
            told = f"a row from {name}'s first update of {rows}"
            lines.append([told, *(shown(from_update, name, n, each) for each in limits)])
    return lines


if __name__ == "__main__":
    rows = [["what", "in one process (1, 1)", "on a node (10, 5)"], ["---"] * 3, *table()]
    sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in rows)
