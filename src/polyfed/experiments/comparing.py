"""Several methods with several seeds, one run folder for each cell; what is finished is kept, what is not goes on.

Several processes may share out the cells. Each begins anew, and sends word of how far it is while it works.

>>> of_seeds = {"a": [{"pulse": {"rmse": 2.0}}, {"pulse": {"rmse": 4.0}}], "b": [{"pulse": {"rmse": 5.0}}]}
>>> ranked(of_seeds, {"pulse": "rmse"})["a"]["pulse"]
Score(mean=3.0, std=1.4142, seeds=2, rank=1.0)
"""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyfed.errors import ConfigError, PolyfedError, UsageError, nearest
from polyfed.experiments.building import build_method
from polyfed.experiments.config import Config
from polyfed.experiments.grid import Options, combinations, folder_name, grids
from polyfed.experiments.reading import check
from polyfed.experiments.running import OnEvent, read_config, resolved, resume, start
from polyfed.experiments.tuning import reject_without_validation
from polyfed.folders.lines import Event, read_events
from polyfed.folders.making import is_half_made
from polyfed.folders.results_file import finished_rounds
from polyfed.metrics import badness

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    import pandas as pd

    from polyfed.data import Federation

Scores = Mapping[str, Mapping[str, float]]  # task → metric → value
FREE = ("folder", "rounds", "workers", "keep")  # a run may go on, be faster, larger or elsewhere
PAUSE = 0.2  # seconds between two looks at the words

# Of a process that works: where its words go, and whether it was stopped by Ctrl-C.
_words: Queue[tuple[int, Event]] | None = None
_stopped = False


@dataclass(frozen=True)
class Cell:
    """One method with one seed, where it is kept, and which options it has from a grid."""

    method: str
    seed: int
    folder: Path
    config: Config
    options: Options = field(default_factory=dict)


OnCell = Callable[[Cell, Event], None]


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: nothing to say, or why it failed."""

    cell: Cell
    error: PolyfedError | None = None


def cells(config: Config, federation: Federation, folder: Path, where: str) -> list[Cell]:
    """All cells, each with settings of its own, in folders <method>-<values of its grid>-<seed>."""
    from polyfed.methods import known_methods

    compare, methods, made = config.compare, known_methods(), []
    for names, kind in ((compare.methods, "method"), (compare.seeds, "seed")):
        if len(set(names)) < len(names):
            raise ConfigError(f"a {kind} is given twice", where=f"{where}, compare.{kind}s", remedy="name each once")
    for name in compare.options:
        if name not in methods:
            raise ConfigError("is no method", where=f"{where}, compare.options.{name}", remedy=nearest(name, methods))
    tried = grids(compare, where)
    for method in compare.methods:
        own = config.method.options if config.method.name == method else {}
        for options in combinations(tried.get(method, {})):
            for seed in compare.seeds:
                place = folder / folder_name(method, options, seed)
                document = config.model_dump(exclude={"compare"})
                document["method"] = {"name": method, **own, **compare.options.get(method, {}), **options}
                document["run"] |= {"seed": seed, "folder": str(place)}
                cell = Cell(method, seed, place, check(document, where), options)
                _reject_other(cell, federation, where)  # and a wrong option, before the first run begins
                made.append(cell)
    if tried:
        reject_without_validation(federation, compare.seeds, where)
    return made


def run_cells(
    todo: Sequence[Cell],
    federation: Federation | Callable[[Cell], Federation],
    where: str,
    *,
    jobs: int = 1,
    on_event: OnCell | None = None,
    command: Sequence[str] = (),
) -> Iterator[Outcome]:
    """Every cell as it ends; one that fails does not keep the others from their end.

    Cells of several federations bring a function that finds that of each.
    Of cells that several processes share out, `on_event` hears the number of each round and no more.
    """
    done = {cell.folder for cell in todo if finished(cell)}
    yield from (Outcome(cell) for cell in todo if cell.folder in done)
    open_cells = [cell for cell in todo if cell.folder not in done]
    if jobs <= 1 or len(open_cells) <= 1:
        for cell in open_cells:
            hook = (lambda event, cell=cell: on_event(cell, event)) if on_event else None
            yield _attempt(cell, where, federation(cell) if callable(federation) else federation, hook, command)
        return
    yield from _share_out(open_cells, where, jobs, on_event, command)


def finished(cell: Cell) -> bool:
    completed = finished_rounds(cell.folder)
    return completed is not None and completed >= cell.config.run.rounds


def _attempt(
    cell: Cell, where: str, federation: Federation | None, on_event: OnEvent | None, command: Sequence[str]
) -> Outcome:
    try:
        if (cell.folder / "run.json").is_file():
            resume(cell.folder, cell.config.run.rounds, on_event=on_event, command=command)
        else:
            start(cell.config, cell.folder, where, federation=federation, on_event=on_event, command=command)
    except KeyboardInterrupt:  # also `Interrupted`, which is a PolyfedError
        raise
    except PolyfedError as error:
        return Outcome(cell, error)
    except Exception as error:
        return Outcome(cell, PolyfedError(f"{type(error).__name__}: {error}", where=cell.folder))
    return Outcome(cell)


def _share_out(
    cells: Sequence[Cell], where: str, jobs: int, on_event: OnCell | None, command: Sequence[str]
) -> Iterator[Outcome]:
    from polyfed.nets.vision.weights import named_folder

    # A process that is forked while torch has threads may never come back: each begins anew.
    fresh = multiprocessing.get_context("spawn")
    words = fresh.Queue()
    begin = partial(_begin, words, named_folder())
    with ProcessPoolExecutor(min(jobs, len(cells)), mp_context=fresh, initializer=begin) as pool:
        waiting = {pool.submit(_attempt_apart, i, cell, where, command) for i, cell in enumerate(cells)}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=PAUSE, return_when=FIRST_COMPLETED)
                with suppress(queue.Empty):
                    while True:
                        number, event = words.get_nowait()
                        if on_event is not None:
                            on_event(cells[number], event)
                yield from (future.result() for future in done)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise


def _attempt_apart(number: int, cell: Cell, where: str, command: Sequence[str]) -> Outcome:
    """In another process: it reads the data itself, and reports its rounds."""
    global _stopped
    words = _words
    assert words is not None

    def on_event(event: Event) -> None:
        if event["event"] == "round":
            words.put((number, {"event": "round", "round": event["round"]}))

    try:
        if _stopped:  # the pool hands out a cell ahead, which cannot be cancelled
            raise KeyboardInterrupt
        return _attempt(cell, where, None, on_event, command)
    except KeyboardInterrupt:
        _stopped = True
        raise


def _begin(words: Queue[tuple[int, Event]], weights: str | None) -> None:
    import torch

    from polyfed.nets.vision.weights import weights_in

    global _words
    torch.set_num_threads(1)
    weights_in(weights).__enter__()  # to the end of this process
    words.cancel_join_thread()  # words that nobody reads any more must not keep a process from its end
    _words = words


def _reject_other(cell: Cell, federation: Federation, where: str) -> None:
    """A folder of another comparison must not lend its numbers to this one."""
    method = build_method(cell.config, f"{where}, compare.grid.{cell.method}" if cell.options else where)
    if not (cell.folder / "config.toml").is_file() or is_half_made(cell.folder):
        return
    wanted = check(resolved(cell.config, method, federation, cell.folder), str(cell.folder)).model_dump()
    there = read_config(cell.folder)
    found = there.model_dump()
    # An option that the method no longer has is a difference that is reported below.
    with suppress(PolyfedError):
        # Options that did not exist when it was completed have the values they have when nobody gives them.
        found["method"] = resolved(there, build_method(there, where), federation, cell.folder)["method"]
    different = [
        "data" if key == "sha256" else key
        for section in ("data", "method", "run")
        for key in dict.fromkeys([*wanted[section], *found[section]])
        if key not in FREE and wanted[section].get(key) != found[section].get(key)
    ]
    if (finished_rounds(cell.folder) or 0) > cell.config.run.rounds:
        different.append("rounds")  # beside shorter runs it would look better than it is
    if different:
        remedy = "choose another folder with --out"
        raise UsageError(f"the run there differs in {', '.join(different)}", where=cell.folder, remedy=remedy)


def personal_scores(folder: Path) -> pd.DataFrame:
    """Scores of the personal models of the run in a folder, on the test rows: round, client, task, metric and value."""
    from polyfed.engine.tables import history

    table = history(read_events(folder))
    return table.loc[(table["part"] == "test") & (table["model"] == "personal")]


def scores(folder: Path) -> Scores:
    """Task → metric → its mean over the clients, on the test rows, after the last round of the run in a folder."""
    table = personal_scores(folder)
    last = table.loc[table["round"] == table["round"].max()]
    found: dict[str, dict[str, float]] = {}
    for (task, metric), value in last.groupby(["task", "metric"], sort=False)["value"].mean().items():
        found.setdefault(task, {})[metric] = float(value)
    return found


class Score(NamedTuple):
    """One task's score of a method: over its seeds (one has no std), and its rank among the methods (ties share)."""

    mean: float
    std: float
    seeds: int
    rank: float


def ranked(of_seeds: Mapping[str, Sequence[Scores]], metric_of: Mapping[str, str]) -> dict[str, dict[str, Score]]:
    """Method → task → score. `of_seeds` has the scores of each run of a method, `metric_of` the metric that ranks a task."""
    from scipy import stats

    found: dict[str, dict[str, Score]] = {method: {} for method in of_seeds}
    for task, metric in metric_of.items():
        values = {
            method: [run[task][metric] for run in runs if metric in run.get(task, {})]
            for method, runs in of_seeds.items()
        }
        values = {method: numbers for method, numbers in values.items() if numbers}
        means = np.array([np.mean(numbers) for numbers in values.values()])
        ranks = stats.rankdata([badness(metric, mean) for mean in means])
        for (method, numbers), mean, rank in zip(values.items(), means, ranks, strict=True):
            std = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else float("nan")
            found[method][task] = Score(float(mean), std, len(numbers), float(rank))
    return found
