"""After round 0, on each client: its rows and labels as numbers, in the agreed code or in units of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from polyfed.data.agreement import Agreement
from polyfed.data.client import ClientData
from polyfed.data.encoder import Encoder
from polyfed.data.labels import LabelCodec
from polyfed.data.raw import RawClient
from polyfed.data.scaling import Moments
from polyfed.data.splits import Division

# federated: means and spreads of all clients' training rows, pooled in round 0
# local: those of the client's own; nothing is told, but the same number means different things at different clients
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
    name: str, raw: RawClient, division: Division, agreed: Agreement, shared: Encoder, *, local: bool
) -> tuple[ClientParts, Encoder]:
    """One client's parts and how it encodes rows; `shared` is the encoder of all, used as it is unless `local`."""
    training = division.training(raw)
    encoder, codecs = code_of(name, training, agreed, shared, local=local)
    nothing = ClientData(np.empty((0, len(encoder.names))), {}, codecs)
    held_out = [
        code_rows(name, raw.take(rows), encoder, codecs) if len(rows) else nothing
        for rows in (division.validation, division.test)
    ]
    return ClientParts(code_rows(name, training, encoder, codecs), *held_out), encoder


def code_of(
    name: str, training: RawClient, agreed: Agreement, shared: Encoder, *, local: bool
) -> tuple[Encoder, Mapping[str, LabelCodec]]:
    """The encoder and the codecs that a client with these training rows uses."""
    if not local:
        return shared, agreed.codecs
    encoder = shared.with_own_scale(training.features, where=f"client {name!r}")
    return encoder, {task: _own_codec(codec, training) for task, codec in agreed.codecs.items()}


def code_rows(name: str, raw: RawClient, encoder: Encoder, codecs: Mapping[str, LabelCodec]) -> ClientData:
    """Rows of a client with all their labels; a task without a label here is left out."""
    seen = {}
    for task, codec in codecs.items():
        labels = raw.labels.get(task)
        if labels is not None and len(labels.at):
            seen[task] = (labels.at.astype(np.int64), codec.code(labels))
    return ClientData(encoder.encode(raw.features, where=f"client {name!r}"), seen, codecs)


def _own_codec(codec: LabelCodec, training: RawClient) -> LabelCodec:
    """In the client's own units. Without labels it knows no unit, and nobody tells it one: then 0 and 1."""
    labels = training.labels.get(codec.task.name)
    if codec.classes is not None or labels is None or len(labels.at) == 0 or codec.task.kind == "proportion":
        return codec
    own = Moments.of(labels.values[:, None]).scaler()
    return LabelCodec.standard(codec.task, float(own.mean[0]), float(own.scale[0]))
