"""python -m bench.tables [--tables ...] [--methods ...] [--test] [--page PATH]: measure what is missing, then tell.

Cells that were measured before are not measured again, so a run that was stopped goes on where it was. Without `--test`
validation rows are scored; test rows are for the end, when nothing is left to be chosen.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

# Before torch and numpy are imported: their libraries read it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from polyfed.errors import PolyfedError

from .cells import Cache, measure
from .drawing import SCENARIOS, draw
from .held_out import HELD_OUT, table_set
from .page import reported, write_page
from .plan import Plan
from .sets import SETS
from .summary import long


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    folder = _folder(options.data)
    plan = Plan(
        options.tables, options.scenarios, options.labels, options.seeds, options.methods, not options.everything
    )
    cache = Cache(options.cache, "test" if options.test else "validation")
    try:
        if options.measured:
            lines = [line for cell in plan.cells() if (line := cache.named(cell))]
        else:
            lines = _measured(plan, cache, folder, seconds=60 * options.minutes, test=options.test)
    except PolyfedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(reported(long(lines), lines) + "\n")
    if options.page:
        write_page(options.page, long(lines), lines, plan, command=_command(options), part=cache.part)
    return 0


def _measured(plan: Plan, cache: Cache, folder: Path, *, seconds: float, test: bool) -> list[dict]:
    lines, frames, problem, place, began = [], {}, None, None, time.perf_counter()
    for cell in plan.cells():
        line = cache.get(cell)
        if line is None:
            if time.perf_counter() - began > seconds:
                continue
            if cell.table not in frames:
                frames[cell.table] = table_set(cell.table).frame(folder)
            here = (cell.table, cell.scenario, cell.labels, cell.seed)
            if here != place:
                problem = draw(table_set(cell.table), frames[cell.table], *here[1:], test=test)
                place = here
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line = cache.put(cell, measure(cell, problem))
            sys.stderr.write(f"{' '.join(map(str, here))} {cell.variant.label}: {line['cpu']} s\n")
        lines.append({**line, "variant": {**line["variant"], "label": cell.variant.label}})
    return lines


def _command(options: argparse.Namespace) -> str:
    """As it would be typed, without folders of this machine."""
    words = ["python -m bench.tables"]
    for name in ("tables", "scenarios", "labels", "seeds", "methods"):
        given = getattr(options, name)
        if given != getattr(Plan, name):
            text = (";" if name == "methods" else ",").join(map(str, given))
            words.append(f"--{name} '{text}'" if name == "methods" else f"--{name} {text}")
    return " ".join([*words, *(["--everything"] if options.everything else []), *(["--test"] if options.test else [])])


def _folder(given: Path | None) -> Path:
    """The tables, in the folder given or in `tables` of POLYFED_DATA."""
    root = os.environ.get("POLYFED_DATA", "")
    return given or Path(root) / "tables"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description="Few labels on real tables.")
    names, numbers = (lambda text: text.split(",")), (lambda text: [int(n) for n in text.split(",")])
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--data", type=Path, help="the folder with the tables (otherwise POLYFED_DATA/tables)")
    parser.add_argument("--cache", type=Path, default=home / "polyfed-tables", help="where measured cells are kept")
    parser.add_argument(
        "--tables", type=names, default=Plan.tables, help=f"{', '.join(SETS)}; held out: {', '.join(HELD_OUT)}"
    )
    parser.add_argument("--scenarios", type=names, default=Plan.scenarios, help=", ".join(SCENARIOS))
    parser.add_argument("--labels", type=numbers, default=Plan.labels)
    parser.add_argument("--seeds", type=numbers, default=Plan.seeds)
    parser.add_argument(
        "--methods",
        type=lambda text: text.split(";" if ";" in text else ","),
        default=Plan.methods,
        help='with commas, or with semicolons where options are given: a;b:bound="gaussian"',
    )
    parser.add_argument("--everything", action="store_true", help="also what takes long and says little")
    parser.add_argument("--test", action="store_true", help="score test rows: once, when all is chosen")
    parser.add_argument(
        "--measured", action="store_true", help="measure nothing: tell what is kept, by whatever options"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further cell after so long")
    parser.add_argument("--page", type=Path, help="write the page with its picture here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
