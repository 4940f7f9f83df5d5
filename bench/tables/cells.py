"""One cell: a method on a problem, its scores and its time. Cells that were measured are read back from a file."""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import polyfed as pf
from polyfed import metrics
from polyfed.engine.storage import options_of
from polyfed.errors import ConfigError
from polyfed.methods import Method, method

from .drawing import Problem


@dataclass(frozen=True)
class Variant:
    """A method with options, as the command line names it: `pfed-mul` or `pfed-mul:bound="gaussian",rounds=40`."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Variant:
        name, _, rest = text.partition(":")
        try:
            call = ast.parse(f"f({rest})", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise ValueError(rest)
            return cls(text, name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
        except (SyntaxError, ValueError):
            raise ConfigError(
                f"{text!r} is no method with options", remedy='write for example pfed-mul:bound="gaussian"'
            ) from None

    def made(self) -> Method:
        return method(self.method, **{name: value for name, value in self.options.items() if name != "rounds"})


@dataclass(frozen=True)
class Cell:
    table: str
    scenario: str
    labels: int
    seed: int
    variant: Variant
    rounds: int

    def made(self) -> Method:
        return self.variant.made()

    def key(self, part: str) -> str:
        """All that decides the figures, the defaults of options included: another default is another cell."""
        said = [part, self.table, self.scenario, self.labels, self.seed, self.variant.method, self.rounds]
        text = json.dumps([*said, options_of(self.made())], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def measure(cell: Cell, problem: Problem) -> dict[str, Any]:
    """Scores by task, seconds of the processor, bytes that a client sends in a round."""
    began, cpu = time.perf_counter(), time.process_time()
    run = pf.simulate(cell.made(), problem.federation, cell.rounds, cell.seed, evaluate_every=10**6)
    scores = _scores(run, problem)
    sent = [event for event in run.events if event["event"] == "round"]
    return {
        "scores": scores,
        "cpu": round(time.process_time() - cpu, 3),
        "wall": round(time.perf_counter() - began, 3),
        "bytes_up": max((event["bytes_up"] / max(1, len(event["sampled"])) for event in sent), default=0.0),
        "rejected": sum(len(event["rejected"]) for event in sent),
    }


def _scores(run: pf.Run, problem: Problem) -> dict[str, dict[str, float]]:
    by_task: dict[str, list[tuple[Any, np.ndarray]]] = {}
    for client, tasks in problem.scored.items():
        held = run.members.part(client, "test")
        predictions = run.client(client).predictor(held.x)
        for task in tasks:
            at, y = held.labels.get(task, (np.zeros(0, dtype=int), None))
            if len(at):
                by_task.setdefault(task, []).append((predictions[task].take(at), held.codecs[task].decode(y)))
    kinds = {task.name: task.kind for task in problem.federation.tasks}
    return {task: _of_task(kinds[task], pairs, problem.std.get(task)) for task, pairs in by_task.items()}


def _of_task(kind: str, pairs: list[tuple[Any, np.ndarray]], std: float | None) -> dict[str, float]:
    """Means over the clients, numbers in units of the target's std; AUROC and ECE over all rows together."""
    own = [metrics.score(kind, prediction, y) for prediction, y in pairs]
    common = set.intersection(*(set(one) for one in own))  # some scores need both classes
    mean = {name: float(np.mean([one[name] for one in own])) for name in common}
    if std is not None:
        return {
            "rmse": mean["rmse"] / std,
            "nlpd": mean["nlpd"] - float(np.log(std)),
            "coverage": mean["coverage"],
        }
    proba = np.concatenate([prediction.class_proba for prediction, _ in pairs])
    at = np.concatenate([prediction.positions(y) for prediction, y in pairs])
    said = proba[:, 1] if kind == "binary" else proba
    return {
        "log_loss": mean["nll"],
        "auroc": _auroc(proba, at),
        "ece": metrics.ece(said, at),
        "accuracy": mean["accuracy"],
    }


def _auroc(proba: np.ndarray, at: np.ndarray) -> float:
    """Of two classes; of more, each against the others, the mean over those that occur. NaN if one alone does."""
    classes = [1] if proba.shape[1] == 2 else list(range(proba.shape[1]))
    found = [metrics.auroc(proba[at != k, k], proba[at == k, k]) for k in classes if 0 < np.sum(at == k) < len(at)]
    return float(np.mean(found)) if found else float("nan")


def _place(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(line[name] for name in ("table", "scenario", "labels", "seed")), line["variant"]["label"])


class Cache:
    """Cells that were measured, one line of JSON each; a line that was cut off is passed over."""

    def __init__(self, folder: Path, part: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.part, self.path = part, folder / f"{part}.jsonl"
        self.found = {line["key"]: line for line in self._lines()}

    def named(self, cell: Cell) -> dict[str, Any] | None:
        """The line of a cell by its names alone, with whatever options it was measured."""
        return self._by_place.get(_place(asdict(cell)))

    @cached_property
    def _by_place(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {_place(line): line for line in self.found.values()}

    def get(self, cell: Cell) -> dict[str, Any] | None:
        return self.found.get(cell.key(self.part))

    def put(self, cell: Cell, result: Mapping[str, Any]) -> dict[str, Any]:
        line = {"key": cell.key(self.part), **asdict(cell), "every_option": options_of(cell.made()), **result}
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._is_cut_off() + json.dumps(line, default=str) + "\n")
        self.found[line["key"]] = line
        return line

    def _is_cut_off(self) -> bool:
        content = self.path.read_bytes()[-1:] if self.path.is_file() else b""
        return content not in (b"", b"\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.is_file():
            return
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(text)
            except ValueError:
                continue
