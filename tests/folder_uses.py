"""All that is done with a run folder: each use ends well, or with one sentence. Anything else is a raw error."""

from __future__ import annotations

import atexit
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import polyfed as pf
from polyfed.cli import main
from polyfed.errors import PolyfedError
from polyfed.experiments import running
from polyfed.experiments.predicting import client_table, predict_table
from polyfed.report.document import report_html
from polyfed.report.folders import read_run
from polyfed.report.live import Watcher, snapshot

ROUNDS = 3  # of the run as it was made
HEADER = "ward,age,sex,pulse,sick,stage"
# How runs are begun, so that a folder holds every kind of thing that one may.
KINDS = {
    "pfed-mul": ["--method", "pfed-mul"],
    "fedavg": ["--method", "fedavg", "--set", "method.hidden=[3]", "--set", "data.scaling=local"],
    "one feature": ["--method", "local", "--features", "age"],
}


def people(n: int, seed: int) -> str:
    """Rows of age and sex, with labels of three kinds."""
    rng = np.random.default_rng(seed)
    lines = [HEADER]
    for i in range(n):
        age = round(float(rng.uniform(20, 80)), 1)
        sex, ward, stage = "fm"[i % 2], "ab"[i // 2 % 2], "xyz"[i % 3]
        lines.append(f"{ward},{age},{sex},{60 + age / 2:.1f},{'yes' if age > 50 else 'no'},{stage}")
    return "\n".join(lines) + "\n"


@cache
def made(kind: str = "pfed-mul") -> Path:
    """A finished run of two clients with a third that joined later, and the file `new.csv` beside it."""
    home = Path(mkdtemp(prefix="polyfed-uses-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "table.csv").write_text(people(32, seed=0))
    (home / "new.csv").write_text(people(6, seed=1))
    argv = ["run", "--data", str(home / "table.csv"), "--client", "ward", "--rounds", str(ROUNDS), "--no-report"]
    argv += ["--regression", "pulse", "--binary", "sick", "--multiclass", "stage", "--set", "run.evaluate_every=1"]
    with warnings.catch_warnings():
        assert main([*argv, *KINDS[kind], "--out", str(home / "run"), "--quiet"]) == 0
        assert main(["join", str(home / "run"), str(home / "new.csv"), "--name", "late"]) == 0
    return home / "run"


@dataclass(frozen=True)
class Folder:
    """A copy of a run, and the rows to use it with."""

    path: Path
    rows: Path

    @classmethod
    def copied(cls, kind: str, to: Path) -> Folder:
        return cls(Path(shutil.copytree(made(kind), to)), made(kind).parent / "new.csv")


def predict(folder: Folder, client: str = "a") -> None:
    predict_table(pf.load(folder.path), folder.rows, client)


def scores(folder: Folder) -> None:
    run = pf.load(folder.path)
    run.rounds, run.stopped, run.summary("all")


def join(folder: Folder) -> None:
    run = pf.load(folder.path)
    run.join("another", client_table(run, folder.rows))
    run.save(folder.path)


def report(folder: Folder) -> None:
    report_html([read_run(folder.path)])


def watch(folder: Folder) -> None:
    snapshot(Watcher(folder.path).look())


USES: dict[str, Callable[[Folder], object]] = {
    "load": lambda folder: pf.load(folder.path),
    "scores": scores,
    "predict": predict,
    "predict for who joined": lambda folder: predict(folder, "late"),
    "report": report,
    "watch": watch,
    "join": join,
    "resume": lambda folder: running.resume(folder.path, ROUNDS + 1),
}
READING = tuple(USES)[:-2]


def rejections(folder: Folder, uses=tuple(USES)) -> dict[str, str]:
    """Use → the sentence that rejects it, for those that are rejected; raw errors are raised."""
    found = {}
    for use in uses:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong elsewhere is told, and those who do without it go on
            try:
                USES[use](folder)
            except PolyfedError as error:
                found[use] = str(error)
    for use, sentence in found.items():
        assert "\n" not in sentence, (use, sentence)
        assert len(sentence) < 1000, (use, sentence)
    return found
