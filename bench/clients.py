"""Exact clients, alone and in batches, over the floor: what LAPACK alone takes for their factorisations.

The floor of a step is two Cholesky factorisations (one for each mean-field step) and one inverse (for the gradient).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from polyfed.gp import ExactModel, infer
from polyfed.gp.batch import ClientBatch

from .harness import Line, Spread, Target, take_turns
from .problems import mixed_prior, mixed_rows

GROUPS = ("kernels", "mixing", "noise")
STEPS = 2  # mean-field steps of a round; a warm start needs no more


def client_step(*, n_rows: int = 1000, dims: int = 8, repeats: int) -> list[Line]:
    """One mixed client: covariance, two plain mean-field steps, bound and gradient in all of Θ."""
    prior, rows = mixed_prior(dims), mixed_rows(n_rows, dims, seed=0)
    parameters = list(prior.group(*GROUPS).values())

    def step() -> None:
        model = ExactModel(prior, rows)
        # A tolerance of minus infinity: both steps are taken whatever they gain.
        q = infer(model, max_steps=STEPS, tolerance=-torch.inf, accelerate=False).q
        torch.autograd.grad(model.bound(q), parameters)

    turns = take_turns(step, floor([torch.Size([n_rows, n_rows])]), repeats=repeats)
    note = f"{_ms(turns.seconds)}; over 2 potrf + 1 potri"
    return [Line(f"client step, N={n_rows:,}", turns.ratio, target=Target("≤", 1.5), note=note)]


def batch_of_clients(*, n_clients: int = 200, n_rows: int = 64, dims: int = 8, repeats: int) -> list[Line]:
    """Many small clients, solved in buckets."""
    run, yardstick = _round(n_clients, n_rows, dims)
    turns = take_turns(run, yardstick, repeats=repeats)
    note = f"{_ms(turns.seconds)} for {n_clients} clients; over 2 potrf + 1 potri of each"
    return [Line(f"batch of clients, N={n_rows}", turns.ratio, target=Target("≤", 2.5), note=note)]


def ten_thousand(
    *, measured: int = 1000, n_clients: int = 10_000, n_rows: int = 100, dims: int = 64, repeats: int
) -> list[Line]:
    """One round of a large federation on one core, measured on some clients and scaled to all of them."""
    run, yardstick = _round(measured, n_rows, dims)
    turns = take_turns(run, yardstick, repeats=repeats, warm_ups=1)
    scale = n_clients / measured
    seconds = Spread.of([scale * s for s in turns.a])
    name = f"{n_clients:,} clients, N={n_rows}, D={dims}, a round"
    note = f"one core, scaled from {measured:,} clients"
    return [
        Line(name, seconds, unit="s", target=Target("≤", 5.0), note=note),
        Line(f"{name}, over the floor", turns.ratio, note=note),
    ]


def floor(shapes: Sequence[torch.Size]) -> Callable[[], None]:
    """Two Cholesky factorisations and one inverse for each shape (..., N, N)."""
    matrices = [_positive_definite(shape) for shape in shapes]

    def run() -> None:
        for A in matrices:
            for _ in range(STEPS - 1):
                torch.linalg.cholesky_ex(A)
            torch.cholesky_inverse(torch.linalg.cholesky_ex(A).L)

    return run


def _round(n_clients: int, n_rows: int, dims: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """One round of all clients, gradients added up as a server would; and its floor in the same buckets.

    The batch is made once for all rounds (padding, distances), so making it is no part of a round.
    """
    prior = mixed_prior(dims)
    batch = ClientBatch([mixed_rows(n_rows, dims, seed) for seed in range(n_clients)])

    def run() -> None:
        step = batch.step(prior, max_steps=STEPS, groups=GROUPS)
        for gradient in step.gradient.values():
            gradient.sum(0)

    return run, floor([torch.Size([len(group), n_rows, n_rows]) for group in batch.groups])


def _positive_definite(shape: torch.Size) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(shape, dtype=torch.float64, generator=generator)
    return half @ half.mT / shape[-1] + torch.eye(shape[-1], dtype=torch.float64)


def _ms(seconds: Spread) -> str:
    return f"{1000 * seconds.median:.0f} ms"
