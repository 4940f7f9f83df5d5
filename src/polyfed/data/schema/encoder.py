"""From features as a client has them to the numbers that models see.

Numbers are standardised, a missing one becomes 0 (the mean) beside an indicator, a text becomes one 0 or 1 for each
category. A category that nobody named in round 0 is OTHER where there is one, and else all of them are 0.

>>> columns = (Column("age", "number", gaps=True), Column("sex", "text", gaps=False, categories=("f", "m")))
>>> encoder = Encoder(columns, FeatureScaler(np.array([40.0]), np.array([10.0])))
>>> encoder.names
('age', 'age is missing', 'sex=f', 'sex=m')
>>> encoder.encode(read_features([[55, "m"], [None, "x"]], where="X"), where="X")
array([[1.5, 0. , 0. , 1. ],
       [0. , 1. , 0. , 0. ]])
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyfed.data.features.matrix import reads_as_number
from polyfed.data.features.raw import RawFeatures, read_features
from polyfed.data.features.scaling import FeatureScaler, Moments
from polyfed.data.schema.client_summary import describe_columns
from polyfed.data.schema.limits import MOST_CATEGORIES, OTHER
from polyfed.data.schema.negotiation import Column, Schema, agree_columns
from polyfed.errors import DataError


@dataclass(frozen=True, eq=False)
class Encoder:
    """How one client (or all of them) encodes rows: the agreed columns, and the scaler of those that are numbers."""

    columns: tuple[Column, ...]
    scaler: FeatureScaler

    @classmethod
    def of(cls, agreed: Schema) -> Encoder:
        return cls(agreed.columns, agreed.scaler)

    @classmethod
    def learn(cls, features: RawFeatures, *, scale: bool = True) -> Encoder:
        """The encoder of one machine's rows alone, in units of their own unless `scale` is False."""
        columns = agree_columns({"": describe_columns(features, features)})
        warn_of_grouped(columns, [features])
        encoder = cls(columns, FeatureScaler.identity(sum(column.kind == "number" for column in columns)))
        return encoder.with_own_scale(features, "") if scale else encoder

    def with_own_scale(self, training: RawFeatures, where: str) -> Encoder:
        """The same columns in units of this client's own training rows."""
        numbers = self._changed(self._aligned(training, where).numbers)
        return replace(self, scaler=Moments.of(numbers).scaler())

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.encoded_names())

    def encode_new(self, X: object, where: str) -> np.ndarray:
        """New rows as users have them: a table, a dictionary of columns, or as many columns in order."""
        if isinstance(X, Mapping):
            from pandas import DataFrame

            X = DataFrame(X)
        features = read_features(X, where=where, only=self._column_names)
        self.warn_of_unseen(features, where)
        return self.encode(features, where)

    def encode(self, features: RawFeatures, where: str) -> np.ndarray:
        """(rows, encoded columns), finite."""
        features = self._aligned(features, where)
        missing = np.isnan(features.numbers)
        numbers = self._changed(features.numbers)
        numbers = np.where(missing, self.scaler.mean, numbers) if missing.any() else numbers
        values = self.scaler.apply(numbers)
        if len(self.names) == len(self.columns) and not self._text_names:
            return np.ascontiguousarray(values)
        encoded: list[np.ndarray] = []
        number = 0
        for column in self.columns:
            if column.kind == "text":
                texts = features.texts[column.name]
                gaps = texts == None  # noqa: E711, entry by entry
                named = {category: texts == category for category in column.categories}
                if OTHER in named:
                    named[OTHER] = ~np.any([gaps, *(at for level, at in named.items() if level != OTHER)], axis=0)
                encoded += named.values()
            else:
                encoded.append(values[:, number])
                gaps = missing[:, number]
                number += 1
            if column.gaps:
                encoded.append(gaps)
        return np.stack([part.astype(np.float64) for part in encoded], axis=1)

    def warn_of_unseen(self, features: RawFeatures, where: str) -> None:
        for column, strange in self.unseen(features, where).items():
            warnings.warn(f"{where}: {unseen_message(column, strange)}", stacklevel=4)

    def unseen(self, features: RawFeatures, where: str) -> dict[str, dict[str, int]]:
        """Text column → category that was not agreed → how many rows hold it, the most frequent first."""
        strange = {name: Counter(texts[at]) for name, texts, at in self._unknown_texts(features, where)}
        return {name: dict(counts.most_common()) for name, counts in strange.items() if counts}

    def unseen_rows(self, features: RawFeatures, where: str) -> np.ndarray:
        """For each row, whether it holds a category that was not agreed."""
        unknown = [at for _, _, at in self._unknown_texts(features, where)]
        return np.any([np.zeros(len(features), dtype=bool), *unknown], axis=0)

    def _unknown_texts(self, features: RawFeatures, where: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Of each text column its values, and which of them were not agreed."""
        features = self._aligned(features, where)
        for column in self.columns:
            if column.kind == "text":
                texts, known = features.texts[column.name], {*column.categories, None}
                yield column.name, texts, np.array([text not in known for text in texts], dtype=bool)

    def _changed(self, numbers: np.ndarray) -> np.ndarray:
        if not any(column.transform for column in self.columns):
            return numbers
        numeric = [column for column in self.columns if column.kind == "number"]
        return np.column_stack([column.changed(numbers[:, i]) for i, column in enumerate(numeric)])

    @cached_property
    def _column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @cached_property
    def _text_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.kind == "text")

    def _aligned(self, features: RawFeatures, where: str) -> RawFeatures:
        """The agreed columns in the agreed order, each of the agreed kind."""
        features = features.select(self._column_names, where)
        agreed_texts = self._text_names
        if tuple(features.texts) == agreed_texts:
            return features
        for name in features.texts:
            if name not in agreed_texts:
                texts = [text for text in features.texts[name] if text is not None]
                value = next((text for text in texts if not reads_as_number(text)), texts[0])
                what = f"column {name!r} holds text such as {value!r}, but numbers were agreed"
                raise DataError(what, where=where, remedy="give numbers, or leave it empty")
        texts = {
            name: features.texts[name] if name in features.texts else _no_texts(features, name, where)
            for name in agreed_texts
        }
        kept = [i for i, name in enumerate(features.number_names) if name not in agreed_texts]
        return replace(features, numbers=features.numbers[:, kept], texts=texts)


def _no_texts(features: RawFeatures, name: str, where: str) -> np.ndarray:
    values = features.column(name)
    present = values[~np.isnan(values)]
    if len(present):
        what = f"column {name!r} holds numbers such as {present[0]:g}, but text was agreed"
        raise DataError(what, where=where, remedy="give text, or leave it empty")
    return np.full(len(features), None, dtype=object)


def warn_of_grouped(columns: Sequence[Column], clients: Sequence[RawFeatures]) -> None:
    """Say which texts have more levels than are kept."""
    for column in columns:
        if column.kind != "text" or (column.categories and OTHER not in column.categories):
            continue
        texts = [features.texts[column.name] for features in clients if column.name in features.texts]
        n = len({text for values in texts for text in values if text is not None})
        if n > MOST_CATEGORIES:
            n_kept = len(set(column.categories) - {OTHER})
            kept = f"{n_kept} of them are kept, all others are {OTHER!r}"
            rest = kept if n_kept else "and says nothing of other rows"
            warnings.warn(f"column {column.name!r} has {n} different texts; {rest}", stacklevel=4)


def unseen_message(column: str, strange: Mapping[str, int]) -> str:
    """One sentence about categories that were not agreed.

    >>> unseen_message("sex", {"x": 2, "y": 1})
    "column 'sex': 3 rows hold a category that training did not know ('x', 'y')"
    """
    n, shown = sum(strange.values()), ", ".join(map(repr, list(strange)[:3]))
    rows = "1 row holds" if n == 1 else f"{n} rows hold"
    more = f" and {len(strange) - 3} more" if len(strange) > 3 else ""
    return f"column {column!r}: {rows} a category that training did not know ({shown}{more})"
