"""After round 0, on each client: its rows and labels as numbers, in the agreed code or in units of its own.

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

from polyfed.data.client import ClientData
from polyfed.data.features.matrix import reads_as_number
from polyfed.data.features.raw import RawFeatures, read_features
from polyfed.data.features.transforms import FeatureScaler, Moments
from polyfed.data.labels.codec import KEY, LabelCodec, weighted
from polyfed.data.labels.column import Labels
from polyfed.data.raw import RawClient
from polyfed.data.schema.client_summary import describe_columns
from polyfed.data.schema.limits import MOST_CATEGORIES, OTHER, Limits
from polyfed.data.schema.negotiation import Column, Schema, agree_columns
from polyfed.data.splits import Division
from polyfed.errors import DataError
from polyfed.kinds import LabelForm

# federated: means and stds of all clients' training rows, pooled in round 0
# local: those of the client's own; nothing is sent, but the same number means different things at different clients
# targets: targets as in federated, features as they came: what a pretrained network takes has its units already
# none: features and targets stay in the units they came in
SCALINGS = ("federated", "local", "targets", "none")


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
        numeric = zip(values.T, missing.T, strict=True)
        for column in self.columns:
            if column.kind == "text":
                texts = features.texts[column.name]
                gaps = texts == None  # noqa: E711, entry by entry
                named = {category: texts == category for category in column.categories}
                if OTHER in named:
                    named[OTHER] = ~np.any([gaps, *(at for level, at in named.items() if level != OTHER)], axis=0)
                encoded += named.values()
            else:
                own, gaps = next(numeric)
                encoded.append(own)
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


@dataclass(frozen=True, eq=False)
class ClientParts:
    """A client's rows by their use. A part may be empty."""

    train: ClientData
    validation: ClientData
    test: ClientData


def code_parts(
    name: str, raw: RawClient, division: Division, agreed: Schema, shared: Encoder, *, local: bool
) -> tuple[ClientParts, Encoder]:
    """One client's parts and how it encodes rows; `shared` is the encoder of all, used as it is unless `local`."""
    training, encoder, codecs = division.training(raw), shared, agreed.codecs
    if local:
        encoder = shared.with_own_scale(training.features, where=f"client {name!r}")
        codecs = {task: _own_codec(codec, training) for task, codec in agreed.codecs.items()}
    nothing = ClientData(np.empty((0, len(encoder.names))), {}, codecs)
    held_out = [
        code_rows(name, raw.take(rows), encoder, codecs) if len(rows) else nothing
        for rows in (division.validation, division.test)
    ]
    return ClientParts(code_rows(name, training, encoder, codecs, weigh=True), *held_out), encoder


def code_rows(
    name: str, raw: RawClient, encoder: Encoder, codecs: Mapping[str, LabelCodec], *, weigh: bool = False
) -> ClientData:
    """Rows of a client with all their labels; a task without a label here is left out. Those for training may `weigh` more
    or less, by their classes and by the weights of the rows."""
    seen, weights = {}, {}
    for task, codec in codecs.items():
        if task not in raw.labels:
            continue
        labels, weight = codable(raw.labels[task], codec), None
        if weigh:
            labels, weight = weighted(labels, codec, raw.keys.get(KEY))
        if weight is not None:
            weights[task] = weight
        if len(labels.at):
            seen[task] = (labels.at.astype(np.int64), codec.code(labels))
    return ClientData(encoder.encode(raw.features, where=f"client {name!r}"), seen, codecs, weights=weights)


def codable(labels: Labels, codec: LabelCodec) -> Labels:
    """Those labels whose class is among the agreed ones. No model can predict a class without training rows at any client that
    takes part, and its name has not left its client."""
    if codec.classes is None or labels.vocabulary is None:
        return labels
    known = np.array([label in codec.classes for label in labels.vocabulary], dtype=bool)
    if known.all():
        return labels
    kept = known[labels.values.astype(np.int64)]
    new = np.cumsum(known) - 1
    vocabulary = tuple(label for label, is_known in zip(labels.vocabulary, known, strict=True) if is_known)
    return Labels(labels.at[kept], new[labels.values[kept].astype(np.int64)], vocabulary)


def n_unknown(raw: RawClient, division: Division, codecs: Mapping[str, LabelCodec]) -> dict[str, int]:
    """task → labels of classes that were not agreed, in all parts of a client's data."""
    parts = [division.training(raw), raw.take(division.validation), raw.take(division.test)]
    found = {}
    for task, codec in codecs.items():
        given = [part.labels[task] for part in parts if codec.classes is not None and task in part.labels]
        if lost := sum(len(labels.at) - len(codable(labels, codec).at) for labels in given):
            found[task] = lost
    return found


def shared_part(train: ClientData, columns: Sequence[Column], limits: Limits) -> ClientData:
    """The training data from which a client's updates are made: what its limits let through, and the very same if they do.

    Tasks with too few labels are left out, and levels with too few rows here are OTHER (or nothing, where there is none),
    also those that other clients named: an update would reveal a level that one row has.
    """
    reported = limits.reported(train.counts())
    seen = {task: labels for task, labels in train.labels.items() if task in reported}
    x, first = train.x.copy(), 0
    for column in columns:
        block = slice(first, first + len(column.categories))
        if column.kind == "text" and limits.min_count > 1 and column.categories:
            indicators, coarse = train.x[:, block], x[:, block]
            rare = (indicators.sum(axis=0) < limits.min_count) & (np.array(column.categories) != OTHER)
            coarse[:, rare] = 0.0
            if OTHER in column.categories:
                coarse[:, column.categories.index(OTHER)] += indicators[:, rare].sum(axis=1)
        first += len(column.encoded_names())
    if len(seen) == len(train.labels) and np.array_equal(x, train.x):
        return train
    weights = {task: weight for task, weight in train.weights.items() if task in reported}
    return replace(train, x=x, labels=seen, weights=weights)


def _own_codec(codec: LabelCodec, training: RawClient) -> LabelCodec:
    """In the client's own units. A client without labels has no unit of its own and is sent none: shift 0, scale 1."""
    labels = training.labels.get(codec.task.name)
    if codec.classes is not None or labels is None or len(labels.at) == 0 or codec.task.form is LabelForm.PAIR:
        return codec
    return LabelCodec.standard(codec.task, FeatureScaler.learn(labels.values[:, None]))
