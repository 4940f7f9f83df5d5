"""What the engine itself costs: a round of clients that do nothing, and a round of a large federation, start to end."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import cpu_count, getloadavg
from pathlib import Path
from time import perf_counter, process_time
from typing import ClassVar

import numpy as np
import torch

from polyfed.data import ClientData, Federation, FederationSpec, LabelCodec, Task
from polyfed.engine.checkpoints import Checkpoints
from polyfed.engine.rounds import FederationState, common, run_round
from polyfed.engine.settings import Settings
from polyfed.gp.batch import ClientBatch
from polyfed.methods import ClientUpdate, Method, PFedMul, State
from polyfed.methods.base import Predictor
from polyfed.methods.gp.model import prepared_rows
from polyfed.seeds import Stream

from .clients import GROUPS
from .floors import STEPS
from .harness import Line, Spread, Target, take_turns
from .large import Size

NUMBERS = 1000  # that each client receives and sends
TASKS = {"pulse": "regression", "sick": "binary"}


@dataclass(frozen=True)
class Idle(Method):
    """Sends back what it got."""

    name: ClassVar[str] = "idle"
    summary: ClassVar[str] = "does nothing"

    def init(self, spec: FederationSpec, stream: Stream) -> State:
        return {"theta": torch.zeros(NUMBERS)}

    def broadcast(self, server: State, client: str) -> State:
        return server

    def local(self, state: State, message: State, data: ClientData, stream: Stream) -> tuple[State, ClientUpdate]:
        return state, ClientUpdate(message, {}, 1.0, {"pulse": 1})

    def template(self, server: State) -> ClientUpdate:
        return ClientUpdate(server, {}, 1.0, {"pulse": 1})

    def aggregate(self, server: State, updates: Mapping[str, ClientUpdate]) -> State:
        return {"theta": torch.stack([update.arrays["theta"] for update in updates.values()]).mean(0)}

    def predictor(self, server: State, state: State | None, data: ClientData) -> Predictor:
        raise NotImplementedError


def idle_round(*, n_clients: int = 1000, repeats: int) -> list[Line]:
    """A round of clients that do nothing: drawing, sending, checking, adding up, an event; then with a checkpoint."""
    spec, data = federation(n_clients, n_rows=2, dims=1)
    method, settings = Idle(), Settings(sample=n_clients)
    progress = FederationState(0, method.init(spec, common(0)), {})

    def run() -> None:
        run_round(method, progress, data, settings)

    with tempfile.TemporaryDirectory() as folder:
        after, _ = run_round(method, progress, data, settings)
        checkpoints = Checkpoints(Path(folder))

        def store() -> None:
            checkpoints.write(after, 0)

        turns = take_turns(run, store, repeats=repeats)
    note = f"{NUMBERS:,} numbers each way"
    return [
        Line(f"{n_clients:,} idle clients, a round", turns.seconds, unit="s", target=Target("≤", 0.05), note=note),
        Line(f"{n_clients:,} idle clients, its checkpoint", Spread.of(turns.b), unit="s"),
    ]


def engine_round(
    *, measured: int = 1000, n_clients: int = 10_000, n_rows: int = 100, dims: int = 64, repeats: int
) -> list[Line]:
    """A round of pFed-Mul in the engine, over the bare batched solver for the same clients."""
    spec, data = federation(measured, n_rows, dims)
    method, settings = PFedMul(), Settings()
    progress = FederationState(0, method.init(spec, common(0)), {})
    progress, _ = run_round(method, progress, data, settings)  # from now on every client starts warm
    model = method.model(next(iter(data.values())))
    batch = ClientBatch([prepared_rows(mine, model.likelihoods) for mine in data.values()])

    def run() -> None:
        run_round(method, progress, data, settings)

    def solve() -> None:
        batch.step(model.prior, max_steps=STEPS, groups=GROUPS)

    turns = take_turns(run, solve, repeats=repeats, warm_ups=1)
    seconds = Spread.of([s * n_clients / measured for s in turns.a])
    note = f"one core, scaled from {measured:,} clients"
    return [
        Line(
            f"{n_clients:,} clients, N={n_rows}, D={dims}, a round of the engine", seconds, "s", Target("≤", 4.0), note
        ),
        Line("engine over the bare batched solver", turns.ratio, target=Target("≤", 1.15), note=note),
    ]


def threads(*, n_clients: int = 10_000, n_rows: int = 100, dims: int = 64, repeats: int) -> list[Line]:
    """A round with one worker over the same with two, by the clock on the wall: it takes two free cores to say much."""
    spec, data = federation(n_clients, n_rows, dims)
    method = PFedMul()
    state = FederationState(0, method.init(spec, common(0)), {})
    state, _ = run_round(method, state, data, Settings())  # every client starts warm, as in all rounds but the first

    def run(workers: int) -> None:
        run_round(method, state, data, Settings(workers=workers))

    turns = take_turns(lambda: run(1), lambda: run(2), repeats=repeats, warm_ups=1, clock=perf_counter)
    load = f"{turns.seconds.median:.2f} s with one; by the clock, load {getloadavg()[0]:.1f} on {cpu_count()} cores"
    return [Line(f"{n_clients:,} clients, one worker over two", turns.ratio, target=Target("≥", 1.7), note=load)]


def preparation(*, n_clients: int = 10_000, n_rows: int = 100, repeats: int) -> list[Line]:
    """From a table to what methods work with: clients, splits, round 0, coding."""
    table = Size(n_clients, n_rows).table()
    taken = []
    for _ in range(repeats):
        start = process_time()
        tasks = {"load": "regression", "alarm": "binary"}
        Federation.from_table(table, client="site", tasks=tasks).prepare(0)
        taken.append(process_time() - start)
    return [Line(f"{n_clients:,} clients, N={n_rows}, preparation", Spread.of(taken), "s", Target("≤", 3.0))]


def federation(n_clients: int, n_rows: int, dims: int) -> tuple[FederationSpec, dict[str, ClientData]]:
    """Clients with half of their rows labelled for each task."""
    rng = np.random.default_rng(0)
    codecs = {
        name: LabelCodec(Task(name, kind), (0, 1) if kind == "binary" else None, 0.0, 1.0)
        for name, kind in TASKS.items()
    }
    data = {}
    for i in range(n_clients):
        x = rng.standard_normal((n_rows, dims))
        f = np.sin(x[:, 0])
        half = n_rows // 2
        seen = {
            "pulse": (np.arange(half), f[:half] + 0.3 * rng.standard_normal(half)),
            "sick": (np.arange(half, n_rows), np.sign(f[half:] + 0.5 * rng.standard_normal(n_rows - half))),
        }
        data[f"client {i:05d}"] = ClientData(x, seen, codecs)
    tasks = tuple(codec.task for codec in codecs.values())
    return FederationSpec(tasks, dims, tuple(data), codecs), data
