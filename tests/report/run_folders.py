"""Run folders without a run: the files that an engine leaves, with numbers that a test chooses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from polyfed.folders.documents import write_document

CLIENTS = ("basel", "bern", "thun")
TASKS = {"height": "regression", "high": "binary"}
METRICS = {
    "regression": ("mse", "rmse", "nlpd", "coverage", "width"),
    "binary": ("accuracy", "nll", "ece"),
    "multiclass": ("accuracy", "nll", "ece"),
    "count": ("rmse", "nlpd", "deviance"),
}
CLASSES = {"binary": ["no", "yes"], "multiclass": ["a", "b", "c"]}

Score = Callable[[str, str, str, int], float | None]  # (client, task, metric, round) -> value


def falling(client: str, task: str, metric: str, round: int) -> float:
    """A score that differs between clients and gets better round by round."""
    start = 0.5 + 0.01 * sum(map(ord, client + task)) % 0.3
    return min(1.0, start + 0.02 * round) if metric == "accuracy" else start / (1 + 0.1 * round)


def start_event(method="pfed-mul", seed=0, clients=CLIENTS, tasks=TASKS):
    return {"event": "start", "method": method, "options": {}, "seed": seed, "clients": list(clients), "tasks": tasks}


def round_event(round, clients=CLIENTS, rejected=None, used=True):
    rejected = rejected or {}
    return {
        "event": "round",
        "round": round,
        "sampled": list(clients),
        "rejected": rejected,
        "used": used,
        "bytes_down": 600 * len(clients),
        "bytes_up": 1000 * (len(clients) - len(rejected)),
        "metrics": {c: {"bound": -100.0 / round} for c in clients if c not in rejected},
    }


def evaluation_event(
    round, score: Score = falling, part="test", model="personal", clients=CLIENTS, tasks=TASKS, guess=False
):
    more = ("baseline", "skill") if guess else ()
    scores = {
        c: {t: {m: score(c, t, m, round) for m in (*METRICS[k], *more)} for t, k in tasks.items()} for c in clients
    }
    return {"event": "evaluation", "round": round, "part": part, "model": model, "clients": scores}


def results(clients=CLIENTS, tasks=TASKS, one_dimensional=True, n=40, rounds=4):
    """Predictions that are right within their intervals but for every tenth row, and sine waves as functions."""
    x = [10.0 * i / (n - 1) for i in range(n)]
    wave = [math.sin(value) for value in x]

    def numbers(shift):
        y = [value + shift for value in wave]
        mean = [value + (1.0 if i % 10 == 0 else 0.1) for i, value in enumerate(y)]
        return {
            "y": y,
            "mean": mean,
            "std": [0.25] * n,
            "lower": [value - 0.5 for value in mean],
            "upper": [value + 0.5 for value in mean],
        }

    def classes(k):
        top = [0.5 + 0.49 * abs(value) for value in wave]
        proba = [[t if j == i % k else (1 - t) / (k - 1) for j in range(k)] for i, t in enumerate(top)]
        return {"y": [(i + (i % 4 == 0)) % k for i in range(n)], "proba": proba}

    def latent(kind, shift):
        f = [value + shift for value in wave]
        y = [float(value > 0) for value in wave] if kind in CLASSES else f
        return {
            "x": x,
            "mean": f,
            "lower": [value - 0.4 for value in f],
            "upper": [value + 0.4 for value in f],
            "truth": [value + 0.1 for value in f],
            "seen": {"x": x[::4], "y": y[::4]},
        }

    def amounts(kind):
        return {
            "train": 20,
            "validation": 0,
            "test": n,
            "classes": [8, 7, 5][: len(CLASSES[kind])] if kind in CLASSES else None,
        }

    def effect(kind, i):
        n_curves = 3 if kind == "multiclass" else 1
        grid = [0.1 * j for j in range(5)]
        curve = {"mean": [0.1 * i + 0.05 * j for j in range(5)]}
        if n_curves == 1:
            curve |= {"lower": [v - 0.1 for v in curve["mean"]], "upper": [v + 0.1 for v in curve["mean"]]}
        words = {"mean": [0.2, 0.21], "lower": [0.1, 0.1], "upper": [0.3, 0.3]}
        return [
            {"input": "age", "x": grid, "curves": [curve] * n_curves},
            {"input": "sex", "x": ["f", "<m>"], "curves": [words] * n_curves},
        ]

    size = len(tasks)
    return {
        "data": {
            c: {"rows": {"train": 30, "validation": 0, "test": n}, "labels": {t: amounts(k) for t, k in tasks.items()}}
            for c in clients
        },
        "inputs": ["age", "sex=f", "sex=<m>"],
        "effects": None
        if one_dimensional
        else {c: {t: effect(k, i) for t, k in tasks.items()} for i, c in enumerate(clients)},
        "round": rounds,
        "part": "test",
        "tasks": {task: {"kind": kind, "classes": CLASSES.get(kind)} for task, kind in tasks.items()},
        "predictions": {
            c: {t: classes(len(CLASSES[k])) if k in CLASSES else numbers(0.2 * i) for t, k in tasks.items()}
            for i, c in enumerate(clients)
        },
        "latents": {c: {t: latent(k, 0.3 * i) for t, k in tasks.items()} for i, c in enumerate(clients)}
        if one_dimensional
        else None,
        "model": {
            "task_correlation": {
                "names": list(tasks),
                "matrix": [[1.0 if i == j else -0.25 for j in range(size)] for i in range(size)],
            },
            "length_scales": [{"latent": 1, "kernel": "rbf", "values": [2.5]}],
            "noise": {task: 0.0847 for task, kind in tasks.items() if kind == "regression"},
        },
    }


def make_run(
    folder: Path,
    *,
    method="pfed-mul",
    seed=0,
    rounds=4,
    completed: int | None = None,
    options=None,
    clients=CLIENTS,
    tasks=TASKS,
    score: Score = falling,
    parts=("validation", "test"),
    models=("personal",),
    rejected=None,
    found: dict | str | None = "made",
    command=None,
    guess=False,
    described=None,
) -> Path:
    """A folder with a run that completed so many of its rounds. `found` is results.json: made, None, or a dictionary."""
    folder.mkdir(parents=True, exist_ok=True)
    described = {
        **(described or {}),
        "method": method,
        "options": options or {"kernel": "rbf"},
        "settings": {"rounds": rounds, "seed": seed, "sample": None},
        "versions": {"polyfed": "0.1.0", "numpy": "2.0.0"},
    }
    if command:
        described["command"] = command
    completed = rounds if completed is None else completed
    events = [start_event(method, seed, clients, tasks)]
    for r in range(1, completed + 1):
        events.append(round_event(r, clients, (rejected or {}).get(r)))
        if r % 2 == 0:
            events += [evaluation_event(r, score, p, m, clients, tasks, guess) for p in parts for m in models]
    write_lines(folder / "events.jsonl", events)
    times = [{"time": 0.0, "round": r, "seconds": 2.0, "evaluation_seconds": 1.0} for r in range(1, completed + 1)]
    write_lines(folder / "timing.jsonl", times)
    if found == "made":
        found = results(clients, tasks, rounds=rounds)
    if found is not None:
        write_document(folder / "results.json", found)
    write_document(folder / "run.json", described)
    return folder


def write_lines(path: Path, lines, mode="w") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
