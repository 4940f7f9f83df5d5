"""python -m bench.images PAGE [--data-dir data] [--seeds 3] [--cells runs/bench-images.jsonl] [--out docs/results/PAGE.md]

Pages: `projection` (what becomes of two tasks that have nothing in common), `parts` (of pfed-hier), `costs`. All scores are of
validation images. Ctrl-C and the same command again goes on with the cells that are left; `--no-runs` writes what there is.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from .cells import keep, known, measured
from .pages import PAGES


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.images")
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=Path, default=Path("runs/bench-images.jsonl"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-runs", action="store_true")
    given = parser.parse_args()
    page, done = PAGES[given.page], known(given.cells)
    # A process of its own for each cell where the peak of its memory is asked for.
    workers = ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) if page.alone else None
    for cell in page.cells(given.seeds) if not given.no_runs else ():
        if (key := page.key(cell)) not in done:
            asked = (cell, given.data_dir)
            done[key] = workers.submit(measured, *asked).result() if workers else measured(*asked)
            keep(given.cells, key, done[key])
            print(key, {name: round(value, 4) for name, value in done[key].items()}, flush=True)  # noqa: T201
    out = given.out or Path("docs/results") / f"{given.page}.md"
    command = f"python -m bench.images {given.page} --data-dir data" + (
        f" --seeds {given.seeds}" if given.seeds != 3 else ""
    )
    out.write_text(page.text(done, given.seeds, command), encoding="utf-8")


if __name__ == "__main__":
    main()
