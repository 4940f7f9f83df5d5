"""The benchmarks by name, with their sizes for a full, a quick and a tiny run (the last for the tests)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .clients import batch_of_clients, client_step, growth, ten_thousand
from .engine import engine_round, idle_round, preparation, threads
from .harness import Line
from .learning import fit
from .published import against_published
from .rival import against_gpytorch
from .shared import shared_memory, shared_round
from .sparse import sparse_step


@dataclass(frozen=True)
class Benchmark:
    run: Callable[..., list[Line]]
    full: Mapping[str, Any]
    quick: Mapping[str, Any]
    tiny: Mapping[str, Any]

    def measure(self, *, quick: bool) -> list[Line]:
        return self.run(**(self.quick if quick else self.full))


SIZES = ((200, 64, 1.5), (2000, 20, 2.5))  # clients, rows of each, what to reach over the floor

BENCHMARKS = {
    "client": Benchmark(
        client_step,
        full={"repeats": 31},
        quick={"repeats": 5},
        tiny={"n_rows": 8, "dims": 2, "repeats": 2},
    ),
    "batch": Benchmark(
        batch_of_clients,
        full={"sizes": SIZES, "repeats": 41},
        quick={"sizes": SIZES, "repeats": 5},
        tiny={"sizes": [(3, 8, 1.5)], "dims": 2, "repeats": 2},
    ),
    "federation": Benchmark(
        ten_thousand,
        full={"repeats": 9},
        quick={"measured": 200, "repeats": 3},
        tiny={"measured": 4, "n_rows": 6, "dims": 3, "repeats": 1},
    ),
    "growth": Benchmark(
        growth,
        full={"repeats": 5},
        quick={"rows": (100, 1000), "clients": (100, 1000), "repeats": 3},
        tiny={"rows": (4, 8), "clients": (2, 4), "n_rows": 4, "dims": 2, "repeats": 1},
    ),
    "idle": Benchmark(
        idle_round,
        full={"repeats": 31},
        quick={"repeats": 5},
        tiny={"n_clients": 3, "repeats": 1},
    ),
    "engine": Benchmark(
        engine_round,
        full={"repeats": 9},
        quick={"measured": 200, "repeats": 3},
        tiny={"measured": 4, "n_rows": 6, "dims": 3, "repeats": 1},
    ),
    "threads": Benchmark(
        threads,
        full={"repeats": 5},
        quick={"n_clients": 1000, "repeats": 3},
        tiny={"n_clients": 4, "n_rows": 6, "dims": 3, "repeats": 1},
    ),
    "preparation": Benchmark(
        preparation,
        full={"repeats": 3},
        quick={"repeats": 1},
        tiny={"n_clients": 5, "n_rows": 20, "repeats": 1},
    ),
    "published": Benchmark(
        against_published,
        full={"repeats": 31},
        quick={"repeats": 5},
        tiny={"n_clients": 2, "repeats": 1},
    ),
    "gpytorch": Benchmark(
        against_gpytorch,
        full={"seeds": 3, "repeats": 3},
        quick={"seeds": 1, "repeats": 1, "climb": 40},
        tiny={"n_regression": 4, "n_binary": 4, "inducing": 5, "seeds": 1, "repeats": 1, "climb": 4},
    ),
    "shared": Benchmark(
        shared_round,
        full={"repeats": 9},
        quick={"repeats": 2},
        tiny={"n_clients": 3, "n_rows": 8, "dims": 2, "repeats": 1},
    ),
    "memory": Benchmark(
        shared_memory,
        full={},
        quick={"n_clients": 1000},
        tiny={"n_clients": 3, "n_rows": 8, "dims": 2},
    ),
    "sparse": Benchmark(
        sparse_step,
        full={"repeats": 3},
        quick={"n_rows": 5_000, "more_rows": 50_000, "repeats": 1},
        tiny={"inducing": 4, "n_rows": 20, "more_rows": 40, "dims": 2, "repeats": 1},
    ),
    "fit": Benchmark(
        fit,
        full={"repeats": 9},
        quick={"repeats": 2},
        tiny={"n_rows": 10, "repeats": 1},
    ),
}
