"""python -m bench.deploy_limits [--nodes 10] [--rounds 100] [--kill-every 10] [--forks]: many nodes and rounds, and kills.

At the end the server's Θ is compared with that of the engine, which runs the same rounds with the clients that the server
says it used. What the server holds (memory, open files) is looked at every few rounds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import torch
from rich.console import Console

import polyfed as pf
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings

from .deployed import Cost, Deployed, family, open_files, rounds_of, seconds_of

TASKS = [pf.Task("height", "regression"), pf.Task("high", "binary")]
STUDY = """
[data]
test = 0.25
[data.tasks]
regression = ["height"]
binary = ["high"]
[method]
name = "pfed-mul"
scheme = "K"
[run]
rounds = {rounds}
evaluate_every = 0
quorum = 0.3
"""


def write_tables(folder: Path, n_nodes: int) -> dict[str, Path]:
    """n00.csv, n01.csv, ...: 24 rows each."""
    folder.mkdir()
    tables, rng = {}, np.random.default_rng(0)
    for i in range(n_nodes):
        x = rng.uniform(-2, 2, 24)
        f = np.sin(2 * x)
        table = pd.DataFrame({"age": 50 + 10 * x, "height": 100 + 10 * f + rng.standard_normal(24)})
        table["high"] = np.where(f + 0.3 * rng.standard_normal(24) > 0, "yes", "no")
        tables[f"n{i:02d}"] = folder / f"n{i:02d}.csv"
        table.to_csv(tables[f"n{i:02d}"], index=False)
    return tables


def difference(tables: Path, folder: Path) -> float:
    """The largest difference of a parameter between the server's Θ and the engine's, after the same rounds."""
    run = pf.load(folder)
    federation = pf.Federation.from_table(tables, tasks=TASKS, split=pf.Split(test=0.25))
    mine = pf.simulate("pfed-mul", federation, rounds=0, seed=run.settings.seed, scheme="K", evaluate_every=0)
    progress, lenient = mine.federation_state, Settings(rounds=run.settings.rounds, seed=run.settings.seed, quorum=0.0)
    for event in rounds_of(folder):
        who = [name for name in event["sampled"] if name not in event["rejected"]] if event["used"] else []
        if who:
            progress, _ = run_round(mine.method, progress, mine.members.training, lenient, participants=who)
        else:
            progress = FederationState(event["round"], progress.server, progress.clients)
    theirs = run.federation_state.server
    assert progress.server.keys() == theirs.keys()
    return max(float(torch.max(torch.abs(value - theirs[name]))) for name, value in progress.server.items())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.deploy_limits")
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--kill-every", type=int, default=10, help="rounds; 0 kills nobody")
    parser.add_argument("--forks", action="store_true", help="nodes share memory: for many of them")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for a round")
    options = parser.parse_args(arguments)
    rng, killed, held = np.random.default_rng(1), [], []
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        tables = write_tables(root / "tables", options.nodes)
        (root / "limits.toml").write_text(STUDY.format(rounds=options.rounds))
        with Deployed(root / "limits", tables, forks=options.forks) as deployed:
            run = deployed.folder / "runs" / "limits-pfed-mul-0"
            deployed.start("run", "run", deployed.folder, root / "limits.toml", "--timeout", options.timeout)
            every, next_look, next_kill = max(options.rounds // 10, 1), 1, options.kill_every
            while deployed.processes["run"].poll() is None:
                n = len(rounds_of(run))
                if n >= next_look:
                    server = family(deployed.processes["server"].pid)
                    held.append({"round": n, "megabytes": round(Cost.of(server).megabytes), **open_files(server)})
                    next_look = n + every
                if options.kill_every and n >= next_kill and n < options.rounds - 2:
                    name = str(rng.choice(sorted(tables)))
                    deployed.kill(name)
                    deployed.node(name)
                    killed.append((n, name))
                    next_kill = n + options.kill_every
                try:
                    deployed.processes["run"].wait(0.2)
                except subprocess.TimeoutExpired:  # it runs on
                    continue
            if deployed.processes.pop("run").returncode:
                raise RuntimeError(deployed.log("run"))
            seconds, rounds = seconds_of(run), rounds_of(run)
            node = deployed.costs(sorted(tables)[0])
        rejected = sum(len(event["rejected"]) for event in rounds)
        found = {
            "nodes": options.nodes,
            "rounds": len(rounds),
            "median_seconds": round(median(seconds), 3),
            "rounds_per_second": round(len(seconds) / sum(seconds), 3),
            "killed": killed,
            "updates_missing": rejected,
            "rounds_used": sum(event["used"] for event in rounds),
            "difference_from_engine": difference(root / "tables", run),
            "server": held,
            "node_megabytes": round(node.megabytes),
        }
    Console().print_json(json.dumps(found))


if __name__ == "__main__":
    main()
