"""`results.json`: of a run that has come to its end, and what it may be (`schemas` has the other files of a run folder)."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, model_validator

from polyfed.errors import DataError
from polyfed.folders.documents import read_document
from polyfed.folders.schemas import Count, Kind, Part, Sealed

NAME = "results.json"
Numbers = list[FiniteFloat | None]


def _reject_ragged(rows: Sized, *columns: Sized | None) -> None:
    if any(column is not None and len(column) != len(rows) for column in columns):
        raise ValueError("columns of different lengths")


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

    @model_validator(mode="after")
    def _one_for_each_row(self) -> Predicted:
        _reject_ragged(self.y, self.mean, self.std, self.lower, self.upper, self.proba)
        if self.proba is not None:
            (n_classes, *others) = {len(row) for row in self.proba} or {0}
            known = range(n_classes)
            if others or any(y is not None and y not in known for y in self.y):
                raise ValueError("a class that is not there")
        return self


class Seen(Part):
    x: Numbers
    y: Numbers

    @model_validator(mode="after")
    def _pairs(self) -> Seen:
        if len(self.x) != len(self.y):
            raise ValueError("x and y of different lengths")
        return self


class Latent(Part):
    x: Annotated[Numbers, Field(min_length=1)]
    mean: Numbers
    lower: Numbers
    upper: Numbers
    truth: Numbers | None
    seen: Seen

    @model_validator(mode="after")
    def _one_for_each_input(self) -> Latent:
        _reject_ragged(self.x, self.mean, self.lower, self.upper, self.truth)
        return self


class Correlation(Part):
    names: list[str]
    matrix: list[Numbers]

    @model_validator(mode="after")
    def _square(self) -> Correlation:
        if {len(self.matrix), *map(len, self.matrix)} - {len(self.names)}:
            raise ValueError("a matrix that does not fit the names")
        return self


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

    @model_validator(mode="after")
    def _one_for_each_value(self) -> Effect:
        _reject_ragged(self.x, *(column for curve in self.curves for column in (curve.mean, curve.lower, curve.upper)))
        return self


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
