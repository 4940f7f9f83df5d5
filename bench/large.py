"""python -m bench.large FOLDER: tables of many rows or of many clients, and how long `polyfed run` takes with them.

Each is made of numeric features (two of them counts, one that tells nothing), a regression and a binary target: functions that
all clients share, and a part of each client's own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

FEATURES = 6
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Size:
    """`n_clients` clients of `n_rows` rows."""

    n_clients: int
    n_rows: int

    def table(self, seed: int = 0) -> pd.DataFrame:
        """The same for the same seed."""
        rng = np.random.default_rng(seed)
        n, client = self.n_clients * self.n_rows, np.repeat(np.arange(self.n_clients), self.n_rows)
        x = rng.standard_normal((n, FEATURES))
        x[:, 3] = rng.poisson(3.0, n)
        x[:, 4] = rng.poisson(20.0, n)
        own = rng.standard_normal((self.n_clients, 3))
        shared = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.log1p(x[:, 3])
        personal = 0.5 * own[client, 0] * np.cos(x[:, 0]) + 0.3 * own[client, 1] * x[:, 1] + 0.5 * own[client, 2]
        f = shared + personal
        logit = 1.5 * (np.cos(1.5 * x[:, 1]) + 0.7 * f - 1.5)
        features = {f"x{i}": x[:, i].round(4) for i in range(FEATURES)}
        load = 100.0 + 20.0 * (f + 0.4 * rng.standard_normal(n))
        return pd.DataFrame(
            {
                "site": [f"s{c:05d}" for c in client],
                **features,
                "load": load.round(3),
                "alarm": rng.random(n) < 1.0 / (1.0 + np.exp(-logit)),
            }
        )


SIZES = {
    "twelve": Size(12, 8_766),  # 105,192 rows
    "months": Size(12, 1_461),  # 17,532 rows
    "many": Size(10_000, 100),
    "one": Size(1, 200_000),
    "two": Size(2, 20_000),
}


def measure(table: Path, out: Path, arguments: list[str]) -> dict[str, float]:
    """Wall and processor seconds of a run, and its largest memory in GB."""
    given = ["--data", str(table), "--client", "site", "--regression", "load", "--binary", "alarm", "--out", str(out)]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-c",
        "import sys; from polyfed.cli import main; sys.exit(main())",
        "run",
        *given,
        *arguments,
        "--json",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    scores = json.loads(done.stdout)["scores"]
    return {
        "seconds": time.perf_counter() - began,
        "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "memory": after.ru_maxrss / 2**20,
        "rmse": scores["load"]["rmse"]["mean"],
        "accuracy": scores["alarm"]["accuracy"]["mean"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=__doc__)
    parser.add_argument("folder", type=Path, help="where tables and runs go")
    parser.add_argument("--only", action="append", choices=SIZES, help="one of the tables, or several")
    parser.add_argument("--tables", action="store_true", help="make the tables alone")
    options, further = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or SIZES:
        table = options.folder / f"{name}.parquet"
        if not table.exists():
            SIZES[name].table().to_parquet(table)
        if not options.tables:
            found = measure(table, options.folder / f"run-{name}-{time.time_ns()}", further)
            reported = " ".join(f"{what} {value:.4g}" for what, value in found.items())
            sys.stdout.write(f"{name} {reported}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
