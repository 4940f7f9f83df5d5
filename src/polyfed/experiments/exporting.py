"""What a run found, for other programs: tables of scores and of predictions, made from its folder alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.errors import DataError
from polyfed.folders.lines import read_events
from polyfed.folders.results_file import read_results

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("mean", "std", "lower", "upper")
COLUMNS = ["client", "task", "part", "true", *NUMBERS, "true_class", "predicted_class", "probability"]


def scores_table(folder: Path) -> pd.DataFrame:
    """Every score of every client in every evaluation: round, part, model, client, task, metric, value."""
    from polyfed.engine.tables import history

    table = history(read_events(folder))
    if table.empty:
        raise DataError("nothing has been evaluated yet", where=str(folder), remedy="wait until the run evaluates")
    return table


def predictions_table(folder: Path) -> pd.DataFrame:
    """One line for each label that the run was measured on.

    Numbers have `true`, `mean`, `std` and their 95 % interval; classes `true_class`, `predicted_class` and the
    `probability` of the predicted one.
    """
    import pandas as pd

    results = read_results(folder)
    lines = [
        {"client": client, "task": task, "part": results["part"], **line}
        for client, of_client in (results.get("predictions") or {}).items()
        for task, columns in of_client.items()
        for line in _lines(columns, results["tasks"][task]["classes"])
    ]
    if not lines:
        raise DataError("the run was measured on no label", where=str(folder), remedy="give it a split with test rows")
    return pd.DataFrame(lines, columns=COLUMNS)


def _lines(columns: dict[str, Any], classes: list[Any] | None) -> Iterator[dict[str, Any]]:
    if columns.get("proba") is None:
        named = {"true": columns["y"], **{name: columns.get(name) or [None] * len(columns["y"]) for name in NUMBERS}}
        for values in zip(*named.values(), strict=True):
            yield dict(zip(named, values, strict=True))
        return
    for y, proba in zip(columns["y"], columns["proba"], strict=True):
        if y is None or None in proba or not classes:
            continue  # a model that has diverged says nothing
        top = int(proba[1] >= 0.5) if len(proba) == 2 else max(range(len(proba)), key=lambda k: proba[k])
        yield {
            "true_class": str(classes[int(y)]),
            "predicted_class": str(classes[top]),
            "probability": proba[top],
        }
