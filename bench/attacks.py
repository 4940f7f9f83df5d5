"""python -m bench.attacks: what malicious clients do to a federation, under each rule of aggregation.

    python -m bench.attacks                     the table of docs/security.md: penguins, one of nine clients, every rule
    python -m bench.attacks --attackers 2       two of nine
    python -m bench.attacks --factors           the same for clip at 1, 2 and 3 times the median norm
    python -m bench.attacks --bias              what these three cost honest clients that are very unequal (made-up data)

Scores are of the personal models on the test rows of the honest clients: RMSE of body mass in grams, and the accuracies of
sex and species. An update that is rejected shows as (rejected).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it

import numpy as np
import torch

import polyfed as pf
from polyfed.data import ClientData, FederationSpec, LabelCodec, PreparedFederation, Task
from polyfed.data.datasets import load_dataset
from polyfed.engine import robust
from polyfed.engine.rounds import FederationState, common, run_round
from polyfed.engine.settings import Settings
from polyfed.methods import ClientUpdate, Job, Outcome, PFedMul
from polyfed.seeds import Stream

ROUNDS = 15
SCORES = (("body_mass_g", "rmse"), ("sex", "accuracy"), ("species", "accuracy"))
FACTORS = (1.0, 2.0, 3.0)
Attack = Callable[[ClientUpdate, Stream], ClientUpdate]


# ---- attacks ----------------------------------------------------------------------------------------------------------


def scaled(update: ClientUpdate, stream: Stream, *, factor: float) -> ClientUpdate:
    return replace(update, arrays={name: factor * value for name, value in update.arrays.items()})


def random(update: ClientUpdate, stream: Stream) -> ClientUpdate:
    """Noise a hundred times as long as what it should send."""
    rng = replace(stream, purpose="attack").numpy()
    arrays = {}
    for name, value in update.arrays.items():
        drawn = torch.from_numpy(rng.standard_normal(tuple(value.shape))).to(value.dtype)
        arrays[name] = 100 * drawn * value.norm() / drawn.norm().clamp_min(1e-12)
    return replace(update, arrays=arrays)


def steady(update: ClientUpdate, stream: Stream) -> ClientUpdate:
    """Always the same direction, drawn once, so large that every rule that shortens leaves it at its limit."""
    return random(update, replace(stream, round=0))


def noise(update: ClientUpdate, stream: Stream, *, total: float, count: float) -> ClientUpdate:
    return replace(update, pooled={name: (total * t, count * n) for name, (t, n) in update.pooled.items()})


ATTACKS: dict[str, Attack | None] = {
    "none": None,
    "gradient × −1000": partial(scaled, factor=-1000.0),
    "gradient × −2": partial(scaled, factor=-2.0),
    "gradient × 1000": partial(scaled, factor=1000.0),
    "random, × 100": random,
    "one direction, × 100": steady,
    "noise × 10⁴": partial(noise, total=1e4, count=1.0),
    "count of the noise × 10⁶": partial(noise, total=1e9, count=1e6),
}


class Poisoned(PFedMul):
    """pFed-Mul with some clients that do not send what they should."""

    attack: Attack | None = None
    attackers: tuple[str, ...] = ()

    def local_many(self, jobs: Sequence[Job]) -> list[Outcome]:
        outcomes = super().local_many(jobs)
        return [self._sent(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def _sent(self, job: Job, outcome: Outcome) -> Outcome:
        if self.attack is None or job.client not in self.attackers or isinstance(outcome, Exception):
            return outcome
        return outcome[0], self.attack(outcome[1], job.stream)


def poisoned(attack: Attack | None, attackers: Sequence[str]) -> PFedMul:
    made = Poisoned()
    object.__setattr__(made, "attack", attack)
    object.__setattr__(made, "attackers", tuple(attackers))
    return made


# ---- scores -----------------------------------------------------------------------------------------------------------


def attacked(study: PreparedFederation, attack: Attack | None, attackers: Sequence[str], rule: str) -> str:
    """The scores of the honest clients after some rounds, in a cell of the table."""
    run = pf.simulate(poisoned(attack, attackers), study, rounds=ROUNDS, seed=0, aggregation=rule, evaluate_every=0)
    event: dict[str, Any] = next(e for e in reversed(run.events) if e["event"] == "evaluation" and e["part"] == "test")
    honest = [client for client in event["clients"] if client not in attackers]
    found = []
    for task, metric in SCORES:
        values = [event["clients"][client].get(task, {}).get(metric) for client in honest]
        found.append(float(np.mean([value for value in values if value is not None])))
    rejected = any(e["rejected"] for e in run.events if e["event"] == "round")
    cell = f"{found[0]:.0f}, {found[1]:.2f}, {found[2]:.2f}".replace("0.", ".")
    return f"{cell} (rejected)" if rejected else cell


def penguin_table(n_attackers: int, rules: Mapping[str, tuple[str, float]]) -> list[list[str]]:
    """A row for each attack, a column for each rule: its name and the factor of clip."""
    study = load_dataset("penguins").prepare(0)
    attackers = sorted(study.clients)[:n_attackers]
    rows = []
    for name, attack in ATTACKS.items():
        cells = []
        for rule, factor in rules.values():
            with patch.object(robust, "clipped", partial(robust.clipped, factor=factor)):
                cells.append(attacked(study, attack, attackers, rule))
        rows.append([name, *cells])
        _say(_line(rows[-1]))
    return rows


# ---- what it costs honest clients ---------------------------------------------------------------------------------------


def unequal(seed: int) -> tuple[FederationSpec, dict[str, ClientData]]:
    """Nine made-up clients of 6 to 300 labels each, of different noise, a third of them without one of the two tasks."""
    rng = np.random.default_rng(seed)
    codecs = {
        "level": LabelCodec(Task("level", "regression"), None, 0.0, 1.0),
        "high": LabelCodec(Task("high", "binary", classes=("no", "yes")), ("no", "yes"), 0.0, 1.0),
    }
    data = {}
    for i, n in enumerate((6, 8, 12, 20, 30, 50, 80, 150, 300)):
        x = rng.normal(size=(n, 3))
        f = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] + 0.3 * rng.standard_normal()
        y = f + rng.uniform(0.1, 0.6) * rng.standard_normal(n)
        seen = {"level": (np.arange(n), y), "high": (np.arange(n), np.where(y > 0, 1.0, -1.0))}
        if i % 3 == 1:
            del seen["level" if i == 4 else "high"]
        data[f"client {i}"] = ClientData(x, seen, codecs)
    return FederationSpec(tuple(codec.task for codec in codecs.values()), 3, tuple(data), codecs), data


def bias(rounds: int = 60, seeds: Sequence[int] = (0, 1, 2)) -> dict[str, float]:
    """Rule → the sum of all clients' bounds after some rounds, the mean over the seeds; higher is better."""
    cases = {"mean": ("mean", 1.0), **{f"clip {factor:g}": ("clip", factor) for factor in FACTORS}}
    found = {}
    for title, (rule, factor) in cases.items():
        sums = []
        for seed in seeds:
            spec, data = unequal(seed)
            made, settings = PFedMul(), Settings(aggregation=rule)
            progress = FederationState(0, made.init(spec, common(0)), {})
            event: dict[str, Any] = {}
            with patch.object(robust, "clipped", partial(robust.clipped, factor=factor)):
                for _ in range(rounds + 1):
                    progress, event = run_round(made, progress, data, settings)
            sums.append(sum(metrics["bound"] for metrics in event["metrics"].values()))
        found[title] = float(np.mean(sums))
    return found


# ---- the command ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description="Malicious clients, rule by rule.")
    parser.add_argument("--attackers", type=int, default=1, help="how many of the nine clients are malicious")
    parser.add_argument(
        "--factors", action="store_true", help="clip at 1, 2 and 3 times the median instead of the rules"
    )
    parser.add_argument("--bias", action="store_true", help="what clip at 1, 2 and 3 costs honest, unequal clients")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.bias:
        for title, value in bias().items():
            _say(f"{title:8} {value:10.2f}")
        return
    rules = {rule: (rule, robust.CLIP) for rule in ("mean", "clip", "median", "trimmed", "krum")}
    if options.factors:
        rules = {f"clip {factor:g}": ("clip", factor) for factor in FACTORS}
    _say(_line(["attack", *rules]))
    _say(_line(["---"] * (1 + len(rules))))
    penguin_table(options.attackers, rules)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
