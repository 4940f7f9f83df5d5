"""python -m bench.deploy [--rounds N] [--stock-rounds N] [--json PATH]: a round of three nodes, warm and stock, in one run.

Server and nodes are processes of this machine, with TLS and node keys; the data are three of the example's hospitals.
Beside the wall clock, which others on the machine move, stands the processor time of all processes for a round.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from .deployed import Deployed, family, seconds_of
from .harness import Spread

HERE = Path(__file__).parent
NAMES = ("basel", "bern", "aarau")
TARGET = 1.0  # seconds for a round of warm nodes on a machine that does nothing else; 2.0 is accepted
STUDY = """
[data]
features = ["age", "sex", "cholesterol", "bmi"]
test = 0.2
[data.tasks]
regression = ["pulse"]
binary = ["sick"]
count = ["visits"]
[method]
name = "pfed-mul"
[run]
rounds = {rounds}
evaluate_every = 0
"""


def measure(root: Path, kind: str, rounds: int) -> dict:
    """Seconds of each round, and what all processes together needed for one; the first is left out, for it warms up."""
    tables = {name: root / f"{name}.csv" for name in NAMES}
    study = root / f"{kind}.toml"
    study.write_text(STUDY.format(rounds=rounds))
    with Deployed(root / kind, tables, ["--stock"] if kind == "stock" else []) as deployed:
        parts = [*NAMES, "server"]
        run = deployed.folder / "runs" / f"{kind}-pfed-mul-0"
        deployed.start("run", "run", deployed.folder, study, "--timeout", 300)
        deployed.wait(lambda: (run / "timing.jsonl").exists() and len(seconds_of(run)) >= 1)
        before = {name: deployed.costs(name).seconds for name in parts}
        n_before = len(seconds_of(run))
        deployed.wait(lambda: len(seconds_of(run)) >= rounds - 1)
        n_between = len(seconds_of(run)) - n_before
        after = {name: deployed.costs(name) for name in parts}
        deployed.wait(lambda: deployed.processes["run"].poll() is not None)
        if deployed.processes.pop("run").returncode:
            raise RuntimeError(deployed.log("run"))
        sizes = {name: round(cost.megabytes) for name, cost in after.items()}
        processor = {name: (after[name].seconds - before[name]) / n_between for name in parts}
        return {
            "seconds": seconds_of(run)[1:],
            "processor_seconds": {name: round(value, 3) for name, value in processor.items()},
            "megabytes": sizes,
            "processes": {name: len(family(deployed.processes[name].pid)) for name in parts},
        }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.deploy")
    parser.add_argument("--rounds", type=int, default=20, help="of warm nodes")
    parser.add_argument("--stock-rounds", type=int, default=4, help="of stock nodes; 0 leaves them out")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file too")
    options = parser.parse_args(arguments)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        whole = pd.read_csv(HERE.parent / "examples" / "hospitals.csv")
        for name in NAMES:
            whole[whole["hospital"] == name].drop(columns="hospital").to_csv(root / f"{name}.csv", index=False)
        for kind, rounds in (("warm", options.rounds), ("stock", options.stock_rounds)):
            if rounds:
                found[kind] = measure(root, kind, rounds)
    shown = Table(title=f"A round of three nodes; load of the machine {os.getloadavg()[0]:.1f}", title_justify="left")
    for heading in ("nodes", "median", "quartiles", "processor, all", "server", "a node", "MB server", "MB a node"):
        shown.add_column(heading, justify="left" if heading == "nodes" else "right")
    for kind, figures in found.items():
        spread, processor, sizes = Spread.of(figures["seconds"]), figures["processor_seconds"], figures["megabytes"]
        shown.add_row(
            kind,
            f"{spread.median:.2f} s",
            f"{spread.low:.2f}–{spread.high:.2f}",
            f"{sum(processor.values()):.2f} s",
            f"{processor['server']:.2f} s",
            f"{sum(processor[name] for name in NAMES) / len(NAMES):.2f} s",
            f"{sizes['server']}",
            f"{sum(sizes[name] for name in NAMES) / len(NAMES):.0f}",
        )
    Console(width=140).print(shown)
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg(), "target": TARGET, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
