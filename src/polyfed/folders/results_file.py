"""`results.json`: of a run that has come to its end, and what it may be (`schemas` has the other files of a run folder)."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from polyfed.errors import DataError
from polyfed.folders.documents import read_document
from polyfed.folders.schemas import Count, Kind, Part, Sealed

NAME = "results.json"
Numbers = list[FiniteFloat | None]


def _ragged(rows: Sized, *columns: Sized | None) -> str | None:
    is_ragged = any(column is not None and len(column) != len(rows) for column in columns)
    return "columns of different lengths" if is_ragged else None


class ResultTask(Part):
    kind: Kind
    classes: list[str | bool | int | FiniteFloat] | None


class Predicted(Part):
    """Of one client and task: numbers, or the probabilities of classes, beside what was true."""

    y: Numbers
    mean: Numbers | None = None
    std: Numbers | None = None
    lower: Numbers | None = None
    upper: Numbers | None = None
    proba: list[Numbers] | None = None

    def wrong(self) -> str | None:
        ragged = _ragged(self.y, self.mean, self.std, self.lower, self.upper, self.proba)
        if self.proba is not None and not ragged:
            (n_classes, *others) = {len(row) for row in self.proba} or {0}
            known = range(n_classes)
            if others or any(y is not None and y not in known for y in self.y):
                return "a class that is not there"
        return ragged


class Seen(Part):
    x: Numbers
    y: Numbers

    def wrong(self) -> str | None:
        return "x and y of different lengths" if len(self.x) != len(self.y) else None


class Latent(Part):
    x: Annotated[Numbers, Field(min_length=1)]
    mean: Numbers
    lower: Numbers
    upper: Numbers
    truth: Numbers | None
    seen: Seen

    def wrong(self) -> str | None:
        return _ragged(self.x, self.mean, self.lower, self.upper, self.truth)


class Correlation(Part):
    names: list[str]
    matrix: list[Numbers]

    def wrong(self) -> str | None:
        fits = {len(self.matrix), *map(len, self.matrix)} == {len(self.names)}
        return None if fits else "a matrix that does not fit the names"


class LengthScale(Part):
    latent: int
    kernel: str
    values: Numbers
    task: str = ""


class Learned(Part):
    task_correlation: Correlation | None = None
    length_scales: list[LengthScale] | None = None
    noise: dict[str, FiniteFloat | None] | None = None


class LeftOut(Part):
    """Who took no part in rounds, and who would not on a machine of its own."""

    silent: list[str] = Field(default_factory=list)
    rejected: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, dict[str, Count]] = Field(default_factory=dict)
    below: dict[str, dict[str, Count]] = Field(default_factory=dict)


class LabelCounts(Part):
    train: Count
    validation: Count
    test: Count
    classes: list[Count] | None = None


class ClientAmounts(Part):
    """Rows by part of the data, and labels by task."""

    rows: dict[str, Count]
    labels: dict[str, LabelCounts]


class Curve(Part):
    mean: Numbers
    lower: Numbers | None = None
    upper: Numbers | None = None


class Effect(Part):
    """What is expected of a task as one input moves: a curve, or one for each class."""

    input: str
    x: Annotated[list[FiniteFloat | str], Field(min_length=1)]
    curves: Annotated[list[Curve], Field(min_length=1)]

    def wrong(self) -> str | None:
        return _ragged(self.x, *(column for curve in self.curves for column in (curve.mean, curve.lower, curve.upper)))


class ResultsDocument(Sealed):
    """`results.json`; a report does without the parts that are not there."""

    round: Count
    part: Literal["test", "validation"] | None = None
    tasks: dict[str, ResultTask] | None = None
    predictions: dict[str, dict[str, Predicted]] | None = None
    data: dict[str, ClientAmounts] | None = None
    inputs: list[str] | None = None
    effects: dict[str, dict[str, list[Effect]]] | None = None
    latents: dict[str, dict[str, Latent]] | None = None
    model: Learned | None = None
    left_out: LeftOut | None = None


def read_results(folder: Path) -> dict[str, Any]:
    """What a finished run predicts and has learned."""
    return read_document(folder / NAME, ResultsDocument, "resume the run to have it written anew")


def finished_rounds(folder: Path) -> int | None:
    """After how many rounds the run in a folder came to its end; None if it did not, or if that cannot be read."""
    try:
        return read_results(folder)["round"]
    except DataError:
        return None
