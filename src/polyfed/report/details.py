"""Everything that the report says of one run, ready for the template. A part that is missing is None or empty."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from polyfed.kinds import KINDS
from polyfed.report import charts
from polyfed.report.charts import Chart, Control
from polyfed.report.doubts import doubts, left_out
from polyfed.report.folders import RunFolder
from polyfed.report.history import Rejection
from polyfed.report.tables.clients import ClientTable, client_table

MOST_REJECTIONS = 200


class Amount(NamedTuple):
    """How much of a run is shown: a page about many runs must still be small enough to be sent."""

    clients: int = 200  # in the table
    latents: int = 50  # clients whose functions are drawn
    effects: int = 12  # clients whose partial dependence is drawn
    points: int = 400  # of predictions


WHOLE, BRIEF = Amount(), Amount(clients=40, latents=6, effects=3, points=150)


@dataclass(frozen=True)
class RunDetails:
    """One run, section by section."""

    id: str
    name: str
    run: RunFolder
    facts: list[str]
    charts: dict[str, list[Chart]]  # by section; latents are partial dependence, where inputs have several dimensions
    client_choice: Control | None
    clients: ClientTable | None
    doubts: list[str]  # scores that are not worth having
    one_dimensional: bool
    length_scales: list[tuple[str, str, str]]  # latent function, kernel, lengths
    noise: dict[str, str]
    rejections: list[Rejection]
    lost_rounds: list[int]  # without a quorum
    dropped_rounds: dict[int, str]  # round → what was wrong with the state that came out
    left_out: list[str]  # who took no part in rounds, and what would not elsewhere
    texts: dict[str, dict[str, str]]  # title → what was set
    command: str

    @property
    def folder(self) -> str:
        return self.run.folder.resolve().name

    def all_charts(self) -> list[Chart]:
        return [chart for found in self.charts.values() for chart in found]


def details(run: RunFolder, id: str, name: str, amount: Amount = WHOLE) -> RunDetails:
    """Look at one run from all sides. `id` begins the ids of its charts in the page."""
    history, results = run.history, run.results or {}
    predictions, tasks, data = results.get("predictions") or {}, results.get("tasks") or {}, results.get("data") or {}
    moved, model = results.get("effects") or {}, results.get("model") or {}
    of_classes = [task for task in tasks if KINDS[tasks[task]["kind"]].has_classes]
    of_numbers = [task for task in tasks if task not in of_classes]
    drawn = charts.latents(f"{id}-latent", tasks, results.get("latents") or {}, amount.latents)
    choice, latents = drawn or charts.effects(f"{id}-effect", tasks, moved, amount.effects) or (None, [])
    related, points = model.get("task_correlation"), amount.points
    found: dict[str, Iterable[Chart | None]] = {
        "balance": [
            charts.balance(f"{id}-balance-{i}", t, tasks[t]["classes"] or [], data) for i, t in enumerate(of_classes)
        ],
        "curves": charts.evaluated(id, history),
        "reliability": [charts.reliability(f"{id}-reliable-{i}", t, predictions) for i, t in enumerate(of_classes)],
        "predicted": [
            charts.predicted(f"{id}-predicted-{i}", t, predictions, points) for i, t in enumerate(of_numbers)
        ],
        "coverage": [charts.coverages(f"{id}-coverage-{i}", t, predictions) for i, t in enumerate(of_numbers)],
        "latents": latents,
        "training": [charts.trained(id, history)],
        "importance": [charts.importance(f"{id}-importance", model, results.get("inputs") or [], moved)],
        "correlation": [charts.correlation(f"{id}-correlation", related)] if related else [],
        "traffic": [charts.traffic(id, history)],
    }
    return RunDetails(
        id=id,
        name=name,
        run=run,
        facts=_facts(run),
        charts={section: [chart for chart in of_section if chart] for section, of_section in found.items()},
        client_choice=choice,
        clients=client_table(history, data, amount.clients),
        doubts=doubts(history),
        one_dimensional=results.get("latents") is not None,
        length_scales=[_length_scale(one) for one in model.get("length_scales") or []],
        noise={task: f"{value:.4g}" for task, value in (model.get("noise") or {}).items() if value is not None},
        rejections=history.rejections[:MOST_REJECTIONS],
        lost_rounds=[round.round for round in history.rounds if not round.used and round.dropped is None],
        dropped_rounds={round.round: round.dropped for round in history.rounds if round.dropped is not None},
        left_out=left_out(results.get("left_out") or {}),
        texts={
            "Options of the method": _texts(run.described.get("options")),
            "Settings of the run": _texts(run.settings),
            "Versions": _texts(run.described.get("versions")),
        },
        command=shlex.join(run.described.get("command") or []),
    )


def _facts(run: RunFolder) -> list[str]:
    history = run.history
    done = f"{history.round} of {run.n_rounds} rounds"
    return [
        f"seed {run.seed}",
        done if history.round >= run.n_rounds else f"{done} so far",
        counted(len(history.clients), "client"),
        counted(len(history.kinds), "task"),
        duration(run.seconds),
    ]


def _length_scale(one: dict[str, Any]) -> tuple[str, str, str]:
    whose = f"{one['latent']} of {one['task']}" if "task" in one else str(one["latent"])
    return whose, str(one["kernel"]), ", ".join(f"{value:.4g}" for value in one["values"] if value is not None)


def _texts(values: dict[str, Any] | None) -> dict[str, str]:
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
