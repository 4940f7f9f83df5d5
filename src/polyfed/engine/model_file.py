"""One client's model as one file, which needs no run folder: safetensors, never pickle, with a sealed JSON document in it.

The file holds what the client's model is made of: the shared part of the server's state, the client's own state, and its
training rows, for a Gaussian process is its data. It is as private as these. No other client's rows are in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load as read_arrays
from safetensors.torch import save as array_bytes

from polyfed.data import PreparedFederation
from polyfed.data.schema.coding import ClientParts
from polyfed.data.schema.limits import Round0
from polyfed.engine.checkpoints import readable, state_errors
from polyfed.engine.run import ClientModel
from polyfed.engine.storage import options_of
from polyfed.errors import ConfigError, DataError, UsageError
from polyfed.files import write_whole
from polyfed.folders.documents import FORMAT, digest, read_content, read_sealed, sealed
from polyfed.folders.schemas import ModelDocument
from polyfed.methods import State, method
from polyfed.methods.messages import strip_prefix, to_bytes, with_prefix
from polyfed.nets.permission import reject_code

if TYPE_CHECKING:
    from polyfed.engine.run import Run

REMEDY = "export the model anew"
KEY = "polyfed"  # of the document, among the metadata of the arrays


def write_model(run: Run, client: str, path: Path) -> None:
    """The model of a client of a run, whole or not at all."""
    if run.method.pools_data:
        remedy = "export a model of a method that keeps clients apart"
        raise UsageError(f"a model of {run.method.name} holds the rows of all clients", where="export", remedy=remedy)
    run.client(client)  # an error if there is no such client
    prepared, state = _own(run, client)
    arrays = with_prefix("prepared", {name: torch.from_numpy(value) for name, value in prepared.arrays().items()})
    arrays |= with_prefix("server", run.method.prediction_state(run.federation_state.server, client))
    arrays |= with_prefix("state", state or {})
    content = to_bytes(arrays)
    document = {
        "format": FORMAT,
        "sha256": digest(content),
        "method": run.method.name,
        "options": json.loads(json.dumps(options_of(run.method))),
        "client": client,
        "round": run.federation_state.round,
        "has_state": state is not None,
        "prepared": prepared.to_dict(),
    }
    try:
        write_whole(path, array_bytes(read_arrays(content), metadata={KEY: sealed(document).decode()}))
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise UsageError(what, where=str(path), remedy="choose another file") from None


def load_model(path: str | Path, *, allow_code: Collection[str] = ()) -> ClientModel:
    """The model in a file that `polyfed export --model` wrote; it predicts without the run that it comes from.

    `allow_code` names code that the method's options may name as its network, as in `load`.
    """
    path = Path(path)
    if not path.exists():
        raise DataError("there is no such file", where=str(path), remedy="give a file of polyfed export --model")
    content = read_content(path, REMEDY)
    described = read_sealed(_document(content, path), ModelDocument, str(path), REMEDY)
    with readable(path, REMEDY):
        arrays = read_arrays(content)
    if digest(to_bytes(arrays)) != described["sha256"]:
        raise DataError("is damaged (its digest does not fit)", where=str(path), remedy=REMEDY)
    reject_code(described["options"], allow_code, where=str(path))
    with readable(path, REMEDY, passing=ConfigError):
        made = method(described["method"], **described["options"])
        saved = {name: value.numpy() for name, value in strip_prefix(arrays, "prepared").items()}
        prepared = PreparedFederation.from_saved(described["prepared"], saved)
    client = described["client"]
    state = strip_prefix(arrays, "state") if described["has_state"] else None
    with state_errors(path):
        predictor = made.predictor(strip_prefix(arrays, "server"), state, prepared.clients[client].train)
    return ClientModel(client, state_errors(path)(predictor), lambda X: prepared.encode(client, X))


def _own(run: Run, client: str) -> tuple[PreparedFederation, State | None]:
    """What the model is made of: the client's training rows with what was agreed, and its state."""
    if client in run.members.trainer:
        prepared, state = run.prepared, run.members.state(run.federation_state, client)
    else:
        assert run.late_clients is not None
        prepared, state = run.late_clients, run.late_states[client]
    train = prepared.clients[client].train
    nothing = replace(train, x=np.empty((0, train.x.shape[1])), labels={}, weights={})
    alone = replace(
        prepared,
        spec=replace(prepared.spec, clients=(client,)),
        clients={client: ClientParts(train, nothing, nothing)},
        encoders={client: prepared.encoders[client]},
        round0_bytes={client: 0},
        truth=None,
        round0=Round0(),  # it names other clients
    )
    return alone, state


def _document(content: bytes, path: Path) -> bytes:
    try:
        size = int.from_bytes(content[:8], "little")
        return json.loads(content[8 : 8 + size] if 0 < size <= len(content) - 8 else "{}")["__metadata__"][KEY].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        remedy = "give a file of polyfed export --model"
        raise DataError("is no model of polyfed", where=str(path), remedy=remedy) from None
