"""python -m bench [--quick] [--only NAME] [--json PATH]: run the benchmarks and show them as one table."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

# Before torch and numpy are imported: their libraries read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# gpytorch decorates with torch.jit.script when it is imported.
warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning)

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from .harness import Line  # noqa: E402
from .suite import BENCHMARKS  # noqa: E402

HEADINGS = ("benchmark", "median", "quartiles", "target", "met", "note")


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    console = Console()
    if not console.is_terminal:
        console.width = 140  # a log has no width of its own, and eighty columns would break every line
    lines: list[Line] = []
    for name in options.only or BENCHMARKS:
        with console.status(f"{name} ..."):
            lines += BENCHMARKS[name].measure(quick=options.quick)
    console.print(table(lines))
    if options.json:
        document = {"torch": torch.__version__, "quick": options.quick, "lines": [line.as_json() for line in lines]}
        options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The benchmarks of polyfed.")
    parser.add_argument("--quick", action="store_true", help="few repeats and smaller sizes: a tenth of the time")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file too")
    return parser


def table(lines: Sequence[Line]) -> Table:
    shown = Table(title="One thread, float64, turn by turn in one run", title_justify="left")
    for heading in HEADINGS:
        shown.add_column(heading, justify="left" if heading in ("benchmark", "note") else "right")
    for line in lines:
        shown.add_row(*line.cells())
    return shown


if __name__ == "__main__":
    main()
