"""The border between labels as users have them and the numbers that models compute with.

Inside, a binary label is -1 or +1, a class is its position, a target has mean 0 and spread 1, and a missing
label is simply not there. Outside, users keep their booleans, words, units and gaps.

Weights say how much each label counts in training: a column of weights, weights of classes, or both multiplied. They are
relative: those of a client's labels of a task have mean one, so that it counts for as many labels as it has, with whatever
sum its column comes (as for pseudo-posteriors of survey weights, Savitsky and Toth, "Bayesian estimation under informative
sampling", Electronic Journal of Statistics 2016). A label of weight zero is none. Units and classes, which are agreed on
before, and scores know no weights.

>>> codec = LabelCodec.learn(Task("sick", "binary"), ["no", None, "yes"])
>>> codec.code(LabelColumn(codec.task, ["yes", "no", None]).read())
array([ 1., -1.])
>>> codec.decode_labels([1, 0])
array(['yes', 'no'], dtype='<U3')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from polyfed.data.features.matrix import Described, to_numpy
from polyfed.data.features.transforms import FeatureScaler
from polyfed.data.labels.column import LabelColumn, Labels
from polyfed.data.task import BALANCED, Label, Task, class_name
from polyfed.errors import ConfigError, DataError, UsageError, nearest
from polyfed.kinds import LabelForm

if TYPE_CHECKING:
    import pandas as pd

KEY = "weight"  # under which rows have theirs
SLACK = 1e-12  # relative, by which rounding may not lift the sum above the number of labels


@dataclass(frozen=True)
class LabelCodec(Described):
    """How one task's labels are coded: its classes, or the shift and scale of its targets."""

    task: Task
    classes: tuple[Label, ...] | None
    shift: float
    scale: float

    @classmethod
    def learn(cls, task: Task, y: object, *, scale: bool = True) -> LabelCodec:
        """Learn what the task leaves open from `y`, which may have gaps, be empty, or be None.

        Targets are standardised and counts get their mean as unit, unless `scale` is False.
        """
        if task.form.has_classes:
            if (classes := task.classes) is None:
                column = LabelColumn(task, y)
                labels = column.read()
                first = f", {column.place(int(labels.at[0]))}" if len(labels.at) else ""
                classes = settle_classes(task, labels.vocabulary or (), where=f"task {task.name!r}{first}")
            return cls(task, classes, 0.0, 1.0)
        if not scale or task.form is LabelForm.PAIR:
            return cls(task, None, 0.0, 1.0)
        return cls.standard(task, FeatureScaler.learn(LabelColumn(task, y).read().values[:, None]))

    @classmethod
    def standard(cls, task: Task, scaler: FeatureScaler) -> LabelCodec:
        """The codec of a task whose labels have this mean and this scale; kinds that need neither ignore them."""
        mean, scale = float(scaler.mean[0]), float(scaler.scale[0])
        if task.form is LabelForm.COUNT:  # counts keep their zero, and their mean is the unit in which rates are given
            return cls(task, None, 0.0, mean if mean > 0 else 1.0)
        return cls(task, None, mean, scale) if task.form is LabelForm.NUMBER else cls(task, task.classes, 0.0, 1.0)

    def code(self, labels: Labels) -> np.ndarray:
        """Labels that were read and checked, as numbers.

        regression, robust: (y - shift) / scale;  count: the counts;  binary: -1 or +1;
        multiclass: the position of the class;  proportion: two columns, successes and trials
        """
        if self.classes is not None:
            position = {label: float(i) for i, label in enumerate(self.classes)}
            known = np.array([position[label] for label in labels.vocabulary or ()], dtype=np.float64)
            coded = known[labels.values]
            return 2 * coded - 1 if self.task.form is LabelForm.BINARY else coded
        if self.task.form is not LabelForm.NUMBER:
            return labels.values
        scaler = FeatureScaler(np.array([self.shift]), np.array([self.scale]))
        return scaler.apply(labels.values[:, None])[:, 0]

    def decode_labels(self, index_array: ArrayLike) -> np.ndarray:
        """The users' labels at these class positions (of a binary task also from the coded -1 and +1)."""
        if self.classes is None:
            raise UsageError(f"a {self.task.kind} task has no classes", where=f"task {self.task.name!r}")
        index = to_numpy(index_array).astype(np.int64)
        if self.task.form is LabelForm.BINARY:
            index = np.where(index == -1, 0, index)
        if index.size and (index.min() < 0 or index.max() >= len(self.classes)):
            what = f"class positions run from {index.min()} to {index.max()}"
            remedy = f"with {len(self.classes)} classes they are 0 to {len(self.classes) - 1}"
            raise DataError(what, where=f"task {self.task.name!r}", remedy=remedy)
        return _class_array(self.classes)[index]

    def decode(self, y: np.ndarray) -> np.ndarray:
        """Coded labels as users write them: `code` undone."""
        if self.classes is not None:
            return self.decode_labels(y)
        return y if self.task.form in (LabelForm.PAIR, LabelForm.COUNT) else self.shift + self.scale * y

    def without_units(self) -> LabelCodec:
        """What a model must know of it: the unit of a count is part of its likelihood, shift and scale of a target not."""
        return self if self.task.form is LabelForm.COUNT else replace(self, shift=0.0, scale=1.0)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> LabelCodec:
        classes, units = described["classes"], (float(described[key]) for key in ("shift", "scale"))
        return cls(Task.from_dict(described["task"]), None if classes is None else tuple(classes), *units)


def settle_classes(task: Task, labels: Sequence[Label], *, where: str) -> tuple[Label, ...]:
    """The classes of a task from all labels that occur: tidied, in order, and completed where one is unmistakable."""
    classes = _in_order(_tidy(labels))
    if len(classes) >= 2:
        return classes
    if task.form is LabelForm.BINARY:
        if not classes:
            return (0, 1)
        for usual in ((False, True), (0, 1), (-1, 1)):
            if classes[0] in usual and type(classes[0]) is type(usual[0]):
                return usual
        what = f"all labels are {classes[0]!r}, so the other class is unknown"
        raise DataError(what, where=where, remedy="leave the task out, or give it classes=(negative, positive)")
    found = f"the only label is {classes[0]!r}" if classes else "there are no labels"
    remedy = "leave the task out, or give it classes=(...) with all of them"
    raise DataError(f"{found}, so the classes are unknown", where=f"task {task.name!r}", remedy=remedy)


def _tidy(labels: Sequence[Label]) -> list[Label]:
    """Undo what storage did: a gap turns a column of 0 and 1 into 0.0 and 1.0, a number turns True into 1."""
    if not all(type(label) is bool for label in labels):
        numbers = [label for label in labels if not isinstance(label, str)]
        if all(float(number).is_integer() for number in numbers):
            labels = [label if isinstance(label, str) else int(label) for label in labels]
    return list(dict.fromkeys(labels))


def _in_order(labels: list[Any]) -> tuple[Label, ...]:
    try:
        return tuple(sorted(labels))
    except TypeError:  # numbers among words: any order will do that is always the same
        return tuple(sorted(labels, key=lambda label: (type(label).__name__, str(label))))


def _class_array(classes: tuple[Label, ...]) -> np.ndarray:
    types = {type(label) for label in classes}
    if len(types) == 1 or types == {int, float}:
        natural = np.array(classes)
        if natural.tolist() == list(classes):  # text that ends in a null character would lose it
            return natural
    return np.array(classes, dtype=object)


def read_weights(values: pd.Series, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    """A column of weights, or an error about the first that is none.

    >>> import pandas as pd
    >>> read_weights(pd.Series([1, 3]), "w", "row {}".format)
    array([1., 3.])
    """
    import pandas as pd

    weights = np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(bad.argmax())
        given = values.iloc[row]
        found = "is empty" if pd.isna(given) else f"is {str(given)!r}"
        what = f"column {name!r}, by which rows are weighted, {found}"
        raise DataError(what, where=row_name(row), remedy="give each row a finite number from 0 up")
    if not weights.any():
        what = f"column {name!r}, by which rows are weighted, is zero everywhere"
        raise DataError(what, where=row_name(0), remedy="give some row a weight above 0, or leave weights out")
    return weights


def weighted(labels: Labels, codec: LabelCodec, of_rows: np.ndarray | None) -> tuple[Labels, np.ndarray | None]:
    """The labels that count, and how much; None if they count alike. Labels are by the rows that `of_rows` weighs."""
    weights = np.ones(len(labels.at)) if of_rows is None else of_rows[labels.at]
    counted = weights > 0
    if not counted.all():
        labels, weights = Labels(labels.at[counted], labels.values[counted], labels.vocabulary), weights[counted]
    if codec.task.class_weights is not None:
        weights = weights * _of_classes(labels, codec)
    return labels, relative(weights)


def relative(weights: np.ndarray) -> np.ndarray | None:
    """With mean one, and none above zero lost; None if they are all the same.

    >>> relative(np.array([1.0, 3.0])), relative(np.array([2.0, 2.0]))
    (array([0.5, 1.5]), None)
    """
    if not len(weights) or np.all(weights == weights[0]):
        return None
    shares = weights / weights.max()  # the sum of huge weights would be infinite
    found = shares * (len(shares) / shares.sum()) * (1.0 - SLACK)
    return np.maximum(found, np.finfo(np.float64).tiny)


def _of_classes(labels: Labels, codec: LabelCodec) -> np.ndarray:
    vocabulary, given = labels.vocabulary or (), codec.task.class_weights
    if given == BALANCED:
        counts = np.bincount(labels.values.astype(np.int64), minlength=max(1, len(vocabulary)))
        return (1.0 / np.maximum(counts, 1))[labels.values.astype(np.int64)]
    assert isinstance(given, tuple)
    known = [class_name(label) for label in codec.classes or ()]
    for label, _ in given:
        if label not in known:
            what = f"class {label!r} has a weight, and is no class of it"
            raise ConfigError(what, where=f"task {codec.task.name!r}", remedy=nearest(label, known))
    by_name = dict(given)
    return np.array([by_name.get(class_name(label), 1.0) for label in vocabulary])[labels.values.astype(np.int64)]
