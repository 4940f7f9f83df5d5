"""python -m bench.deploy_network [--rounds 30] [--delay 0.05] [--loss 0.05]: rounds over a line that delays and loses packets.

Three nodes in a network of their own (`bench.deploy_link`; needs root), the server outside: first over a line that does no
harm, then over a bad one. At the end the server's Θ is compared with the engine's, as in `bench.deploy_limits`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .deploy_limits import STUDY, difference, write_tables
from .deploy_link import HERE, Link, is_possible
from .deployed import Deployed, rounds_of, seconds_of
from .harness import Spread


def measure(root: Path, delay: float, loss: float, rounds: int) -> dict:
    root.mkdir()
    tables = write_tables(root / "tables", 3)
    (root / "study.toml").write_text(STUDY.format(rounds=rounds))
    with Link(delay, loss) as link, Deployed(root / "d", tables, host=HERE, inside=link.inside) as deployed:
        run = deployed.folder / "runs" / "study-pfed-mul-0"
        deployed.start("run", "run", deployed.folder, root / "study.toml", "--timeout", 60)
        deployed.wait(lambda: deployed.processes["run"].poll() is not None)
        if deployed.processes.pop("run").returncode:
            raise RuntimeError(deployed.log("run"))
    completed, spread = rounds_of(run), Spread.of(seconds_of(run)[1:])
    return {
        "delay_seconds": delay,
        "packets": link.n_packets,
        "packets_lost": link.n_lost,
        "rounds": len(completed),
        "rounds_used": sum(event["used"] for event in completed),
        "updates_missing": sum(len(event["rejected"]) for event in completed),
        "round_seconds": {
            "median": round(spread.median, 2),
            "low": round(spread.low, 2),
            "high": round(spread.high, 2),
        },
        "difference_from_engine": difference(root / "tables", run),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.deploy_network")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds, one way")
    parser.add_argument("--loss", type=float, default=0.05, help="share of the packets, each way")
    options = parser.parse_args(arguments)
    if not is_possible():
        raise SystemExit("a network of its own needs root and /dev/net/tun")
    with tempfile.TemporaryDirectory() as place:
        lines = {"good": (0.0, 0.0), "bad": (options.delay, options.loss)}
        found = {name: measure(Path(place) / name, *line, options.rounds) for name, line in lines.items()}
    Console().print_json(json.dumps(found))


if __name__ == "__main__":
    main()
