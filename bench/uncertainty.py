"""What draws of Θ (`theta_draws`) do for the intervals of the synthetic study, and what they cost.

python -m bench.uncertainty [--seeds 10] [--out docs/results/uncertainty.md]

A cold start: nothing is told of the values that made the data. Coverage is the share of 201 points at which the true latent
function of a client lies within 1.96 standard deviations of the predicted one, for both tasks, mean over clients.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import polyfed as pf
from polyfed.data.datasets import load_dataset

ROUNDS = 60
TASKS = ("regression", "classification")
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pfed-mul", {}),
    ("pfed-mul", {"bound": "gaussian"}),
    ("pfed-mul", {"theta_prior": "weak"}),
    ("pfed-st", {}),
)
DRAWS = (0, 4, 16, 64)
HEAD = """# The uncertainty of Θ on the synthetic study

`theta_draws = K`: the server's Laplace approximation of what it learned, and predictions averaged over K draws of it
([model.md](../model.md#the-uncertainty-of-θ)). Cold start, {rounds} rounds, {seeds} seeds: mean over clients and seeds,
± standard deviation over seeds. Coverage of the true latent functions by 95 % intervals; CPU seconds of a run and of predicting
201 rows for each of five clients; kilobytes that all clients sent and received in a run, models to predict with included.

| method | draws | regression coverage | MSE | classification coverage | MSE | run, s | predict, s | sent, kB | received, kB |
|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|
"""


def measured(method: str, options: dict[str, Any], draws: int, seed: int) -> dict[str, float]:
    """One run."""
    federation = load_dataset("synthetic", seed=seed)
    study, truth = federation.prepare(seed), federation.truth or {}
    began = time.process_time()
    run = pf.simulate(method, study, rounds=ROUNDS, seed=seed, evaluate_every=0, theta_draws=draws, **options)
    ended, found = time.process_time(), {}
    said = {client: run.client(client).predict(truth[client]["x"]) for client in study.spec.clients}
    predicted = time.process_time()
    for task in TASKS:
        away = [truth[c][task] - p[task].latent_mean for c, p in said.items()]
        reach = [1.96 * p[task].latent_std for p in said.values()]
        found[f"{task} coverage"] = np.mean([np.abs(a) < r for a, r in zip(away, reach, strict=True)])
        found[f"{task} mse"] = np.mean(np.square(away))
    portions = sum(_n_bytes(run.method.prediction_state(run.federation_state.server, client)) for client in said)
    found |= {"run": ended - began, "predict": predicted - ended}
    return found | {"up": run.rounds.bytes_up.sum() / 1e3, "down": (run.rounds.bytes_down.sum() + portions) / 1e3}


def _n_bytes(state: dict[str, torch.Tensor]) -> int:
    from polyfed.methods.messages import n_bytes

    return n_bytes(state)


def line(method: str, options: dict[str, Any], draws: int, seeds: int) -> str:
    """A row of the table."""
    runs = [measured(method, options, draws, seed) for seed in range(seeds)]
    mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
    std = {key: float(np.std([run[key] for run in runs], ddof=1)) if seeds > 1 else 0.0 for key in runs[0]}
    name = " ".join([method, *(f"{key}={value}" for key, value in options.items())])
    scores = [f"{mean[f'{t} coverage']:.3f} ± {std[f'{t} coverage']:.3f} | {mean[f'{t} mse']:.3f}" for t in TASKS]
    costs = [f"{mean['run']:.2f}", f"{mean['predict']:.2f}", f"{mean['up']:.0f}", f"{mean['down']:.0f}"]
    return " | ".join([f"| {name}", str(draws), *scores, *costs]) + " |\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("docs/results/uncertainty.md"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured("pfed-mul", {}, 2, 0)  # compiles, which is nobody's cost
    lines = [line(*variant, draws, given.seeds) for variant in VARIANTS for draws in DRAWS]
    text = HEAD.format(rounds=ROUNDS, seeds=given.seeds) + "".join(lines)
    given.out.write_text(text + "\n- command: `python -m bench.uncertainty`\n", encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
