"""The sparse posterior: does the time of a step grow as the number of rows does, and how much memory does it want?"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from polyfed.gp import infer
from polyfed.gp.latent_sparse import SparseModel

from .clients import GROUPS, STEPS
from .harness import Line, Spread, Target, take_turns
from .problems import mixed_prior, mixed_rows

ROOT = Path(__file__).resolve().parents[1]


def sparse_step(
    *, inducing: int = 100, n_rows: int = 10_000, more_rows: int = 100_000, dims: int = 8, repeats: int
) -> list[Line]:
    """Two solves and a gradient with fixed Z, for some rows and for ten times as many."""
    many, few = (client(n, inducing, dims) for n in (more_rows, n_rows))
    turns = take_turns(many, few, repeats=repeats, warm_ups=1)
    growth = more_rows / n_rows
    sizes = f"M={inducing}, N={n_rows:,} → {more_rows:,}"
    memory = peak_memory(more_rows, inducing, dims)
    return [
        Line(
            f"sparse, {sizes}",
            turns.ratio,
            target=Target("≤", 1.1 * growth),
            note=f"{turns.seconds.median:.1f} s for {more_rows:,} rows",
        ),
        Line(
            f"sparse, M={inducing}, N={more_rows:,}, peak memory",
            Spread.of([memory]),
            unit="GB",
            target=Target("≤", 2.0),
            note="a process of its own, with the libraries it imports",
        ),
    ]


def client(n_rows: int, inducing: int, dims: int) -> Callable[[], None]:
    """A step of one client whose inducing inputs are its first inputs (they are random)."""
    prior, rows = mixed_prior(dims), mixed_rows(n_rows, dims, seed=0)
    Z, parameters = rows.x[:inducing].clone(), list(prior.group(*GROUPS).values())

    def step() -> None:
        model = SparseModel(prior, rows, Z)
        q = infer(model, max_steps=STEPS, tolerance=-torch.inf, accelerate=False).q
        torch.autograd.grad(model.bound(q), parameters)

    return step


def peak_memory(n_rows: int, inducing: int, dims: int) -> float:
    """Gigabytes that a fresh process holds at its peak, making the data included."""
    code = f"from bench.sparse import run_alone; run_alone({n_rows}, {inducing}, {dims})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return float(done.stdout)


def run_alone(n_rows: int, inducing: int, dims: int) -> None:
    """One step in this process, and its peak on stdout."""
    torch.set_num_threads(1)
    client(n_rows, inducing, dims)()
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9))
