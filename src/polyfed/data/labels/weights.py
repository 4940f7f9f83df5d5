"""How much each label counts in training: a column of weights, weights of classes, or both multiplied.

Weights are relative: those of a client's labels of a task have mean one, so that it counts for as many labels as it has,
with whatever sum its column comes (as for pseudo-posteriors of survey weights, Savitsky and Toth, "Bayesian estimation under
informative sampling", Electronic Journal of Statistics 2016). A label of weight zero is none. Units and classes, which are
agreed on before, and scores know no weights.

>>> import pandas as pd
>>> read_weights(pd.Series([1, 3]), "w", "row {}".format)
array([1., 3.])
>>> relative(np.array([1.0, 3.0])), relative(np.array([2.0, 2.0]))
(array([0.5, 1.5]), None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyfed.data.labels.codec import LabelCodec
from polyfed.data.labels.column import Labels
from polyfed.data.task import BALANCED, class_name
from polyfed.errors import ConfigError, DataError, nearest

KEY = "weight"  # under which rows have theirs
SLACK = 1e-12  # relative, by which rounding may not lift the sum above the number of labels


def read_weights(values: Any, name: str, row_name: Callable[[int], str]) -> np.ndarray:
    """A column of weights, or an error about the first that is none."""
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
    """With mean one, and none above zero lost; None if they are all the same."""
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
