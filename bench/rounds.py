"""How many rounds bring Θ to its optimum: the distance to it after each number of rounds.

python -m bench.rounds [--data 'synthetic;penguins'] [--rounds 25] [--methods 'pfed-hier;pfed-mul:learning_rate=0.3']

The unit is nats a client of what the server climbs: the bound of all clients' labels together, with the shared functions
integrated out, and the log density of Θ's prior. It is taken at a Θ by rounds in which Θ rests, until nothing moves.
The optimum is the best that L-BFGS with a line search finds of it, from where each of the methods' own optimisers ended.
Methods of one name are taken to climb the same objective: give them other optimisers, and not another bound or prior.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from polyfed.data import ClientData, Federation
from polyfed.data.datasets.penguins import penguins
from polyfed.data.datasets.synthetic import synthetic
from polyfed.engine.members import Members
from polyfed.engine.rounds import FederationState, common, run_round
from polyfed.engine.settings import Settings
from polyfed.gp import Evidence, hyperprior
from polyfed.methods import Job, Method, PFedMul
from polyfed.methods.gp.states import Server
from polyfed.methods.gp.theta_prior import noise_slope, with_prior
from polyfed.methods.messages import State, strip_prefix
from polyfed.modelling.learning import limits_of
from polyfed.seeds import Stream

from .tables.cells import Variant

DATA = {"synthetic": synthetic, "penguins": penguins, "penguins, 5 labels": partial(penguins, 5)}
DATA |= {f"synthetic, draw {i}": partial(synthetic, seed=i) for i in range(1, 5)}
LIKE_HIER = "learning_rate=0.3,betas=(0.7,0.95),halve_every=5.0"  # the optimiser of pfed-hier by default
METHODS = (
    "pfed-mul",
    f"pfed-mul:{LIKE_HIER}",
    f'pfed-mul:optimiser="quasi-newton",{LIKE_HIER}',
    "pfed-hier",
    'pfed-hier:optimiser="quasi-newton"',
)
CLOSE = 0.1  # nats a client
SETTLED, MOST_RESTS = 1e-7, 60  # nats a client between two rounds in which Θ rests, and how many of these at most


class Objective:
    """What the server of a method climbs, per client, and its gradient by name, at the Θ of a server's state."""

    def __init__(self, method: PFedMul, training: Mapping[str, ClientData]) -> None:
        self.method = replace(method, mf_steps=200, tolerance=1e-9)
        self.data = {name: mine for name, mine in sorted(training.items()) if mine.n_labels}
        self.states = {name: dict(method.start(mine, common(0))) for name, mine in self.data.items()}
        self.sums: State = {}  # of evidence, as the last Θ left them

    def __call__(self, server: State) -> tuple[float, State]:
        server = {**server, **{name: torch.zeros_like(v) for name, v in server.items() if name.startswith("evidence/")}}
        server |= self.sums
        total, updates = self._rested(server)
        for _ in range(MOST_RESTS if self.sums else 0):
            before, (total, updates) = total, self._rested(server)
            if abs(total - before) < SETTLED * len(self.data):
                break
        theta, pooled, n = strip_prefix(server, "theta"), strip_prefix(server, "pooled"), len(self.data)
        slopes = {name: torch.stack([update.arrays[name] for update in updates]).mean(0) for name in theta}
        for name, value in pooled.items():
            sums = (torch.stack([update.pooled[name][i] for update in updates]).sum() for i in (0, 1))
            slopes[name] = noise_slope(value, *sums, n)
        if not (densities := strip_prefix(server, "density")):
            return total / n, slopes
        # Clients without labels take no part, and the server counts them where it adds the prior.
        prior = float(hyperprior.log_density(theta | pooled, densities)) / float(server["clients"])
        return total / n + prior, with_prior(slopes, theta | pooled, Server.from_arrays(server))

    def _rested(self, server: State) -> tuple[float, list]:
        """The joint bound after one more round in which Θ rests, and what clients sent; `server` gets their new evidence."""
        messages = self.method.broadcasts(server, list(self.data))
        jobs = [
            Job(name, self.states[name], message, mine, Stream(0, "local", 1, name))
            for (name, mine), message in zip(self.data.items(), messages, strict=True)
        ]
        done = self.method.local_many(jobs)
        for outcome in done:
            if isinstance(outcome, Exception):
                raise outcome
        total = sum(update.metrics["bound"] for _, update in done)
        if sums := strip_prefix(server, "evidence"):
            # A client's bound is of its labels given what the others know: what they know is taken out of it again.
            everyone, own = Evidence(**sums), [strip_prefix(state, "own") for state in self.states.values()]
            for (state, _), old in zip(done, own, strict=True):
                others = everyone - Evidence(**old) if old else everyone
                total += log_partition(others) - log_partition(others + Evidence(**strip_prefix(dict(state), "own")))
            now = [Evidence(**strip_prefix(dict(state), "own")) for state, _ in done]
            new = Evidence(sum(one.triangle for one in now), sum(one.shift for one in now))
            total += log_partition(new)
            self.sums = {"evidence/triangle": new.triangle, "evidence/shift": new.shift}
            server |= self.sums
        self.states = {name: dict(state) for name, (state, _) in zip(self.data, done, strict=True)}
        return total, [update for _, update in done]


def log_partition(evidence: Evidence) -> float:
    """log ∫ N(u | 0, I) exp(ηᵀu − ½ uᵀΛu) du."""
    L = torch.linalg.cholesky(torch.eye(evidence.shift.shape[-1], dtype=torch.float64) + evidence.precision)
    white = torch.linalg.solve_triangular(L, evidence.shift[:, None], upper=False)
    return float(0.5 * white.square().sum() - L.diagonal().log().sum())


def best_of(objective: Objective, server: State, most: int = 300) -> float:
    """The best value that L-BFGS finds from this Θ."""
    start = strip_prefix(server, "theta") | strip_prefix(server, "pooled")
    kinds = {name: "theta" if f"theta/{name}" in server else "pooled" for name in start}
    best = -np.inf

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        pieces = torch.from_numpy(x.copy()).split([value.numel() for value in start.values()])
        moved = {f"{kinds[n]}/{n}": p.reshape(start[n].shape) for n, p in zip(start, pieces, strict=True)}
        value, slopes = objective({**server, **moved})
        best = max(best, value)
        return -value, -np.concatenate([_numbers(slopes[name]) for name in start])

    x = np.concatenate([_numbers(value) for value in start.values()])
    box = [limits_of(name) for name, value in start.items() for _ in range(value.numel())]
    options = {"maxiter": most, "maxcor": 30, "ftol": 1e-10}
    minimize(at, x, jac=True, method="L-BFGS-B", bounds=box, options=options)
    return best


def _numbers(value: Tensor) -> np.ndarray:
    return value.detach().reshape(-1).numpy()


def servers_of(method: Method, federation: Federation, rounds: int) -> tuple[Mapping[str, ClientData], list[State]]:
    """The training data of the clients, and the server's state before the first round and after each."""
    study = federation.prepare(0)
    training, settings = Members.of(method, study).training, Settings(rounds=rounds)
    state = FederationState(0, method.init(study.spec, common(0)), {})
    servers = [state.server]
    for _ in range(rounds):
        state, _ = run_round(method, state, training, settings)
        servers.append(state.server)
    return training, servers


def distances(variants: Sequence[Variant], federation: Federation, rounds: int) -> list[list[float]]:
    """Of methods that climb the same objective: their distances to its optimum, before the first round and after each."""
    values, found = [], []
    for variant in variants:
        training, servers = servers_of(variant.made(), federation, rounds)
        objective = Objective(variant.made(), training)
        values.append([objective(server)[0] for server in servers])
        found.append(best_of(objective, servers[-1]))
    return [[max(*found, *map(max, values)) - value for value in own] for own in values]


def rounds_needed(distance: Sequence[float]) -> int | None:
    """After how many rounds it is close, and stays so; None if it never is."""
    far = [i for i, d in enumerate(distance) if d > CLOSE]
    return 0 if not far else far[-1] + 1 if far[-1] + 1 < len(distance) else None


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rounds", description="Rounds to the optimum of Θ.")
    parser.add_argument("--data", type=lambda text: text.split(";"), default=list(DATA)[:2], help="; ".join(DATA))
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--methods", type=lambda text: text.split(";"), default=METHODS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    shown = sorted({*range(0, options.rounds, 5), options.rounds})
    by_method: dict[str, list[Variant]] = {}
    for variant in map(Variant.parse, options.methods):
        by_method.setdefault(variant.method, []).append(variant)
    heads = ["data", "method", *(f"{r} rounds" for r in shown), f"rounds to {CLOSE}"]
    sys.stdout.write("Nats a client to the optimum of the joint bound and the prior of Θ\n")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n")
    for name in options.data:
        for variants in by_method.values():
            for variant, distance in zip(variants, distances(variants, DATA[name](), options.rounds), strict=True):
                cells = [name, f"`{variant.label}`", *(f"{distance[r]:.3f}" for r in shown)]
                needed = rounds_needed(distance)
                sys.stdout.write(f"| {' | '.join(cells)} | {'more' if needed is None else needed} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
