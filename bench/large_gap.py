"""python -m bench.large_gap: what inducing inputs cost one client of `months` (bench/large.py), against its exact posterior.

Θ and the shared functions are those of pfed-hier after some rounds of three clients; then one client's posterior is found
exactly and with more and more inducing inputs, under the same Θ.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

import polyfed as pf
from polyfed.gp import ExactModel, InformedSparseModel, Model, choose_inducing, infer, predict_latents
from polyfed.methods.gp.model import PosteriorPredictor, prepared_rows

from .large import SIZES

CLIENTS, ROUNDS, SIZES_OF_Z = 3, 8, (32, 64, 128, 256)


def main() -> None:
    torch.set_num_threads(1)
    table = SIZES["months"].table()
    table = table[table["site"] < f"s{CLIENTS:05d}"]
    tasks = {"load": "regression", "alarm": "binary"}
    federation = pf.Federation.from_table(table, client="site", tasks=tasks)
    run = pf.simulate("pfed-hier", federation, rounds=ROUNDS, evaluate_every=0)
    client = run.clients[0]
    predictor = run.members.predictor(run.federation_state, client)
    assert isinstance(predictor, PosteriorPredictor)
    assert predictor.knowledge is not None
    prior, knowledge = predictor.prior, predictor.knowledge
    rows, test = prepared_rows(predictor.data, predictor.model.likelihoods), run.prepared.clients[client].test

    def measured(label: str, gp: Model, exact: float | None = None) -> float:
        began = time.process_time()
        with torch.no_grad():
            found = infer(gp, tolerance=1e-4)
            seconds = time.process_time() - began
            mean, _ = predict_latents(gp, found.q, torch.from_numpy(test.x)).of("load")
        at, y = test.labels["load"]
        error = np.sqrt(np.mean((mean[at, 0].numpy() - y) ** 2))
        gap = 0.0 if exact is None else (exact - found.bound) / len(rows)
        reported = f"bound {found.bound:.1f}, {gap:.4f} nats a row below the exact one, scaled rmse {error:.4f}"
        sys.stdout.write(f"{label}: {reported}, {seconds:.2f} s\n")
        return found.bound

    exact = measured(f"exact, {len(rows):,} rows", ExactModel(prior, rows, knowledge=knowledge))
    for method in ("greedy", "uniform"):
        for M in SIZES_OF_Z:
            Z = choose_inducing(prior, rows, M, method=method)
            measured(f"{method} {M}", InformedSparseModel(prior, rows, Z, knowledge), exact)


if __name__ == "__main__":
    main()
