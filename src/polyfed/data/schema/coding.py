"""After round 0, on each client: its rows and labels as numbers, in the agreed code or in units of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyfed.data.client import ClientData
from polyfed.data.features.scaling import FeatureScaler
from polyfed.data.labels.codec import KEY, LabelCodec, weighted
from polyfed.data.labels.column import Labels
from polyfed.data.raw import RawClient
from polyfed.data.schema.encoder import Encoder
from polyfed.data.schema.limits import OTHER, Limits
from polyfed.data.schema.negotiation import Column, Schema
from polyfed.data.splits import Division
from polyfed.kinds import LabelForm

# federated: means and stds of all clients' training rows, pooled in round 0
# local: those of the client's own; nothing is sent, but the same number means different things at different clients
# targets: targets as in federated, features as they came: what a pretrained network takes has its units already
# none: features and targets stay in the units they came in
SCALINGS = ("federated", "local", "targets", "none")


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
    """Those labels whose class is among the agreed ones: what no training row of a client that takes part has, no model
    can tell, and its name has not left its client."""
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
    also those that other clients named: an update would tell of a level that one row has.
    """
    reported = limits.reported(train.counts())
    seen = {task: labels for task, labels in train.labels.items() if task in reported}
    x, first = train.x, 0
    for column in columns:
        names = column.encoded_names()
        if column.kind == "text" and limits.min_count > 1 and column.categories:
            block = slice(first, first + len(column.categories))
            x = np.concatenate([x[:, : block.start], _coarse(x[:, block], column, limits), x[:, block.stop :]], axis=1)
        first += len(names)
    if len(seen) == len(train.labels) and np.array_equal(x, train.x):
        return train
    weights = {task: weight for task, weight in train.weights.items() if task in reported}
    return replace(train, x=x, labels=seen, weights=weights)


def _coarse(indicators: np.ndarray, column: Column, limits: Limits) -> np.ndarray:
    rare = (indicators.sum(axis=0) < limits.min_count) & (np.array(column.categories) != OTHER)
    coarse = np.where(rare, 0.0, indicators)
    if OTHER in column.categories:
        coarse[:, column.categories.index(OTHER)] += indicators[:, rare].sum(axis=1)
    return coarse


def _own_codec(codec: LabelCodec, training: RawClient) -> LabelCodec:
    """In the client's own units. Without labels it knows no unit, and nobody tells it one: then 0 and 1."""
    labels = training.labels.get(codec.task.name)
    if codec.classes is not None or labels is None or len(labels.at) == 0 or codec.task.form is LabelForm.PAIR:
        return codec
    return LabelCodec.standard(codec.task, FeatureScaler.learn(labels.values[:, None]))
