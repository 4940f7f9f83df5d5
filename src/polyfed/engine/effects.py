"""Partial dependence (Friedman 2001): what a client's model expects of a task as one input moves and the others stay.

One input at a time takes each value of a grid in some of the client's own rows, and the predictions are averaged over these
rows. The band is the average of the rows' bands: never too narrow, for what rows are unsure of may cancel in an average.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyfed.data.schema.negotiation import Column

if TYPE_CHECKING:
    from polyfed.engine.run import Run


MOST_INPUTS = 30  # columns; of an image's features nobody looks at any single one
POINTS = 20  # of a grid
MOST_LEVELS = 20  # of a text; more are no curve
MOST_ROWS = 4000  # that are predicted for one client, so that a report costs less than a round


class Place(NamedTuple):
    """Where an input lies among the encoded features, and which number of the scaler it is, if it is one."""

    column: Column
    first: int
    number: int | None


def effects(run: Run, client: str) -> dict[str, list[dict[str, object]]]:
    """Partial dependence (Friedman 2001), task → for each input its values and the curves over them: what a client's model
    expects of a task as one input moves and the others stay.
    """
    x, scaler = run.prepared.clients[client].train.x, run.prepared.encoders[client].scaler
    # A number that is the same in all of a client's rows has no curve.
    places = [p for p in _places(run.prepared.agreed.columns) if p.number is None or np.ptp(x[:, p.first]) > 0]
    if not places:
        return {}
    n_rows = max(3, min(40, MOST_ROWS // (POINTS * len(places))))
    rows = x[np.unique(np.linspace(0, len(x) - 1, n_rows).astype(int))]
    moved, values = [], []
    for place in places:
        if place.number is None:
            shown: list[object] = list(place.column.categories)
            codes = np.eye(len(shown))
        else:
            low, high = np.quantile(x[:, place.first], [0.025, 0.975]).tolist()
            if low == high:  # nearly all rows have one value
                low, high = float(x[:, place.first].min()), float(x[:, place.first].max())
            codes = np.linspace(low, high, POINTS)[:, None]
            shown = place.column.undone(scaler.mean[place.number] + scaler.scale[place.number] * codes[:, 0]).tolist()
        values.append(shown)
        moved.append(_moved(rows, place, codes))
    sizes = [len(one) for one in moved]
    predictions = run.members.predictor(run.federation_state, client)(np.concatenate(moved))
    found: dict[str, list[dict[str, object]]] = {}
    for task in predictions:
        ends = np.cumsum(sizes)[:-1]
        parts = [None if part is None else np.split(part, ends) for part in predictions[task].band()]
        found[task] = [
            {"input": place.column.name, "x": shown, "curves": _curves(parts, i, len(rows))}
            for i, (place, shown) in enumerate(zip(places, values, strict=True))
        ]
    return found


def _curves(parts: list[Any], i: int, n_rows: int) -> list[dict[str, object]]:
    """Of input i: the averages over the rows at each value, for each curve."""
    averages = [None if part is None else part[i].reshape(-1, n_rows, part[i].shape[1]).mean(axis=1) for part in parts]
    named = dict(zip(("mean", "lower", "upper"), averages, strict=True))
    n_curves = parts[0][i].shape[1]
    return [{name: None if of is None else of[:, k].tolist() for name, of in named.items()} for k in range(n_curves)]


def _moved(rows: np.ndarray, place: Place, codes: np.ndarray) -> np.ndarray:
    """Every row with every value of the input, value by value."""
    made = np.repeat(rows[None], len(codes), axis=0)
    width = codes.shape[1]
    made[:, :, place.first : place.first + width] = codes[:, None, :]
    if place.column.gaps:
        made[:, :, place.first + width] = 0.0  # the value is there
    return made.reshape(-1, rows.shape[1])


def _places(columns: tuple[Column, ...]) -> Iterator[Place]:
    first = number = 0
    for column in columns:
        is_number = column.kind == "number"
        if is_number or 1 < len(column.categories) <= MOST_LEVELS:
            yield Place(column, first, number if is_number else None)
        number += is_number
        first += len(column.encoded_names())
