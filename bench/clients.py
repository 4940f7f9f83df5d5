"""Exact clients, alone and in batches, over the floor (floors.py): what LAPACK alone takes for their factorisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from time import process_time

import torch

from polyfed.gp import ExactModel, infer
from polyfed.gp.batch import ClientBatch, buckets

from .floors import STEPS, scipy_floor, torch_floor
from .harness import Line, Spread, Target, Turns, take_turns
from .problems import mixed_prior, mixed_rows

GROUPS = ("kernels", "mixing", "noise")


def client_step(*, n_rows: int = 1000, dims: int = 8, repeats: int) -> list[Line]:
    """One mixed client: covariance, two plain mean-field steps, bound and gradient in all of Θ."""
    shapes = [torch.Size([n_rows, n_rows])]
    turns, more = _over_floors(_one_client(n_rows, dims), shapes, repeats=repeats)
    note = f"{_ms(turns.seconds)}; over 2 potrf + 1 potri of torch"
    return _both(f"client step, N={n_rows:,}", turns, more, 1.2, note)


def batch_of_clients(*, sizes: Sequence[tuple[int, int, float]], dims: int = 8, repeats: int) -> list[Line]:
    """Many small clients, solved in buckets: for each of the sizes (clients, rows of each, target)."""
    lines = []
    for n_clients, n_rows, target in sizes:
        run, shapes = _round(n_clients, n_rows, dims)
        turns, more = _over_floors(run, shapes, repeats=repeats)
        note = f"{_ms(turns.seconds)} for {n_clients:,} clients; over 2 potrf + 1 potri of each, by torch"
        lines += _both(f"batch of clients, N={n_rows}", turns, more, target, note)
    return lines


def ten_thousand(
    *, measured: int = 1000, n_clients: int = 10_000, n_rows: int = 100, dims: int = 64, repeats: int
) -> list[Line]:
    """One round of a large federation on one core, measured on some clients and scaled to all of them."""
    run, shapes = _round(measured, n_rows, dims)
    turns, more = _over_floors(run, shapes, repeats=repeats, warm_ups=1)
    scale = n_clients / measured
    seconds = Spread.of([scale * s for s in turns.a])
    name = f"{n_clients:,} clients, N={n_rows}, D={dims}, a round"
    note = f"one core, scaled from {measured:,} clients"
    return [
        Line(name, seconds, unit="s", target=Target("≤", 3.0), note=note),
        *_both(f"{name}, over the floor", turns, more, None, note),
    ]


def growth(
    *,
    rows: Sequence[int] = (100, 1000, 4000),
    clients: Sequence[int] = (100, 1000, 10_000),
    n_rows: int = 20,
    dims: int = 8,
    repeats: int,
) -> list[Line]:
    """How cost grows with the rows of one client (the cube of them, for large ones) and with the number of clients."""
    lines = []
    steps = [(f"client step, N={n:,}", n, lambda n=n: _one_client(n, dims)) for n in rows]
    rounds = [(f"{n:,} clients, N={n_rows}", n, lambda n=n: _round(n, n_rows, dims)[0]) for n in clients]
    for family in (steps, rounds):
        before = None
        for name, n, make in family:
            taken = _milliseconds(make(), repeats)
            note = "" if before is None else f"grows as n^{log(taken.median / before[1]) / log(n / before[0]):.2f}"
            lines.append(Line(name, taken, unit="ms", note=note))
            before = n, taken.median
    return lines


def _milliseconds(run: Callable[[], None], repeats: int) -> Spread:
    run()
    taken = []
    for _ in range(repeats):
        start = process_time()
        run()
        taken.append(1000.0 * max(process_time() - start, 1e-9))  # a clock may be coarser than a tiny run
    return Spread.of(taken)


def _over_floors(run: Callable[[], None], shapes: Sequence[torch.Size], **options: int) -> tuple[Turns, Turns | None]:
    """Turns with torch's LAPACK, and with scipy's if compiled code is there to call it."""
    other = scipy_floor(shapes)
    return take_turns(run, torch_floor(shapes), **options), None if other is None else take_turns(run, other, **options)


def _both(name: str, turns: Turns, more: Turns | None, target: float | None, note: str) -> list[Line]:
    line = Line(name, turns.ratio, target=None if target is None else Target("≤", target), note=note)
    return [line] if more is None else [line, Line(f"{name}, of scipy's LAPACK", more.ratio)]


def _one_client(n_rows: int, dims: int) -> Callable[[], None]:
    prior, rows = mixed_prior(dims), mixed_rows(n_rows, dims, seed=0)
    parameters = list(prior.group(*GROUPS).values())

    def step() -> None:
        model = ExactModel(prior, rows)
        # A tolerance of minus infinity: both steps are taken whatever they gain.
        q = infer(model, max_steps=STEPS, tolerance=-torch.inf, accelerate=False).q
        torch.autograd.grad(model.bound(q), parameters)

    return step


def _round(n_clients: int, n_rows: int, dims: int) -> tuple[Callable[[], None], list[torch.Size]]:
    """One round of all clients, gradients added up as a server would; and the matrices of its floor.

    The batch is made once for all rounds (padding, distances), so making it is no part of a round.
    """
    prior = mixed_prior(dims)
    batch = ClientBatch([mixed_rows(n_rows, dims, seed) for seed in range(n_clients)])

    def run() -> None:
        step = batch.step(prior, max_steps=STEPS, groups=GROUPS)
        for gradient in step.gradient.values():
            gradient.sum(0)

    # In buckets of the size that suits torch best: larger ones would slow the floor down.
    return run, [torch.Size([len(group), n_rows, n_rows]) for group in buckets([n_rows] * n_clients)]


def _ms(seconds: Spread) -> str:
    return f"{1000 * seconds.median:.0f} ms"
