"""Everything that the report says of one run, ready for the template. A part that is missing is None or empty."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple

from polyfed.kinds import KINDS
from polyfed.report.charts import effects, latents, scores
from polyfed.report.charts.base import Chart, Entry
from polyfed.report.charts.calibration import balance, reliability
from polyfed.report.charts.predicted import coverages, predicted
from polyfed.report.doubts import doubts, left_out
from polyfed.report.folders import RunFolder
from polyfed.report.tables.comparison import client_table

MOST_REJECTIONS = 200


class Amount(NamedTuple):
    """How much of a run is shown: a page about many runs must still be small enough to be sent."""

    clients: int = 200  # in the table
    latents: int = 50  # clients whose functions are drawn
    effects: int = 12  # clients whose partial dependence is drawn
    points: int = 400  # of predictions


WHOLE, BRIEF = Amount(), Amount(clients=40, latents=6, effects=3, points=150)


def details(run: RunFolder, id: str, name: str, amount: Amount = WHOLE) -> SimpleNamespace:
    """Everything that the report says of one run, ready for the template; a part that is missing is None or empty.

    `id` begins the ids of its charts in the page.
    """
    history, results = run.history, run.results or {}
    predictions, tasks, data = results.get("predictions") or {}, results.get("tasks") or {}, results.get("data") or {}
    moved, model = results.get("effects") or {}, results.get("model") or {}
    of_classes = [task for task in tasks if KINDS[tasks[task]["kind"]].has_classes]
    of_numbers = [task for task in tasks if task not in of_classes]
    drawn = latents.latents(f"{id}-latent", tasks, results.get("latents") or {}, amount.latents)
    choice, functions = drawn or effects.effects(f"{id}-effect", tasks, moved, amount.effects) or (None, [])
    related, points, inputs = model.get("task_correlation"), amount.points, results.get("inputs") or []

    def each(what: str, named: list[str], draw: Callable[[str, str], Chart | None]) -> list[Chart | None]:
        return [draw(f"{id}-{what}-{i}", task) for i, task in enumerate(named)]

    found: dict[str, list[Chart] | list[Chart | None]] = {
        "balance": each("balance", of_classes, lambda i, t: balance(i, t, tasks[t]["classes"] or [], data)),
        "curves": scores.evaluated(id, history),
        "reliability": each("reliable", of_classes, lambda i, t: reliability(i, t, predictions)),
        "predicted": each("predicted", of_numbers, lambda i, t: predicted(i, t, predictions, points)),
        "coverage": each("coverage", of_numbers, lambda i, t: coverages(i, t, predictions)),
        "latents": functions,  # partial dependence, where inputs have several dimensions
        "training": [scores.trained(id, history)],
        "importance": [effects.importance(f"{id}-importance", model, inputs, moved)],
        "correlation": [latents.correlation(f"{id}-correlation", related)] if related else [],
        "traffic": [scores.traffic(id, history)],
    }
    done = f"{history.round} of {run.n_rounds} rounds"
    return SimpleNamespace(
        id=id,
        name=name,
        run=run,
        folder=run.folder.resolve().name,
        facts=[
            f"seed {run.seed}",
            done if history.round >= run.n_rounds else f"{done} so far",
            counted(len(history.clients), "client"),
            counted(len(history.kinds), "task"),
            duration(run.seconds),
        ],
        charts={section: [chart for chart in of_section if chart] for section, of_section in found.items()},
        client_choice=choice,
        clients=client_table(history, data, amount.clients),
        doubts=doubts(history),
        one_dimensional=results.get("latents") is not None,
        length_scales=[_length_scale(one) for one in model.get("length_scales") or []],
        noise={task: f"{value:.4g}" for task, value in (model.get("noise") or {}).items() if value is not None},
        rejections=history.rejections[:MOST_REJECTIONS],
        lost_rounds=[one.round for one in history.rounds if not one.used and one.dropped is None],  # without a quorum
        dropped_rounds={one.round: one.dropped for one in history.rounds if one.dropped is not None},
        left_out=left_out(results.get("left_out") or {}),
        texts={
            "Options of the method": _texts(run.described.get("options")),
            "Settings of the run": _texts(run.settings),
            "Versions": _texts(run.described.get("versions")),
        },
        command=shlex.join(run.described.get("command") or []),
    )


def _length_scale(one: Entry) -> tuple[str, str, str]:
    whose = f"{one['latent']} of {one['task']}" if "task" in one else str(one["latent"])
    return whose, str(one["kernel"]), ", ".join(f"{value:.4g}" for value in one["values"] if value is not None)


def _texts(values: Mapping[str, object] | None) -> dict[str, str]:
    """Words as they are, everything else as JSON."""
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in (values or {}).items()}


def counted(n: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "client"), counted(1200, "client")
    ('1 client', '1,200 clients')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(0.42), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
