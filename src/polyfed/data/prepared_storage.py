"""A prepared federation as a JSON document and named arrays, and back, bit for bit.

Names of clients and tasks may contain any character, so arrays go by position: "client/3/train/1/y" holds the labels
of task 1 in the training part of client 3. Empty arrays are left out, and inputs that another client before has too, such
as test images that are the same for all, are kept once: "client/3/test/x_of" says whose they are. What is wrong with stored
ones is named, and nothing odd reaches a method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from polyfed.data.client import ClientData, FederationSpec
from polyfed.data.features.scaling import FeatureScaler
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.schema.coding import ClientParts
from polyfed.data.schema.encoder import Encoder
from polyfed.data.schema.limits import Round0
from polyfed.data.schema.negotiation import Schema
from polyfed.errors import DataError
from polyfed.kinds import LabelForm

if TYPE_CHECKING:
    from polyfed.data.prepared import PreparedFederation

PARTS = ("train", "validation", "test")


def described(prepared: PreparedFederation) -> dict[str, Any]:
    units = None
    if prepared.scaling == "local":  # else all clients have the agreed codecs
        units = [[[c.shift, c.scale] for c in parts.train.codecs.values()] for parts in prepared.clients.values()]
    return {
        "scaling": prepared.scaling,
        "agreed": prepared.agreed.to_dict(),
        "clients": list(prepared.clients),
        "members": list(prepared.spec.clients),  # on many machines, more than those whose data are here
        "units": units,
        "round0_bytes": [prepared.round0_bytes[name] for name in prepared.clients],
        "truth": None if prepared.truth is None else list(prepared.truth),
        "round0": prepared.round0.to_dict(),
    }


def arrays(prepared: PreparedFederation) -> dict[str, np.ndarray]:
    tasks = [task.name for task in prepared.spec.tasks]
    named: dict[str, np.ndarray] = {}
    first: dict[tuple[str, int], int] = {}  # part and checksum of inputs → the first client with them
    for i, (name, parts) in enumerate(prepared.clients.items()):
        for part in PARTS:
            data: ClientData = getattr(parts, part)
            j = first.setdefault((part, crc32(data.x.tobytes())), i)
            if j < i and np.array_equal(data.x, named[f"client/{j}/{part}/x"]):
                named[f"client/{i}/{part}/x_of"] = np.array([j])
            else:
                named[f"client/{i}/{part}/x"] = data.x
            for t, task in enumerate(tasks):
                if task in data.labels:
                    named[f"client/{i}/{part}/{t}/at"], named[f"client/{i}/{part}/{t}/y"] = data.labels[task]
                if task in data.weights:
                    named[f"client/{i}/{part}/{t}/weight"] = data.weights[task]
        if prepared.scaling == "local":
            scaler = prepared.encoders[name].scaler
            named[f"client/{i}/mean"], named[f"client/{i}/scale"] = scaler.mean, scaler.scale
    for i, truth in enumerate((prepared.truth or {}).values()):
        named[f"truth/{i}/x"] = truth["x"]
        for t, task in enumerate(tasks):
            if task in truth:
                named[f"truth/{i}/{t}"] = truth[task]
    return {name: array for name, array in named.items() if array.size}


def restored(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    agreed = Schema.from_dict(described["agreed"])
    reject_odd_schema(agreed, len(described["agreed"]["codecs"]))
    names = tuple(described["clients"])
    shared, local = Encoder.of(agreed), described["scaling"] == "local"
    n_features = len(shared.names)
    spec = FederationSpec(agreed.tasks, n_features, tuple(described.get("members", names)), agreed.codecs)
    clients, encoders = {}, {}
    for i, name in enumerate(names):
        codecs, encoders[name] = agreed.codecs, shared
        if local:
            codecs = {
                task: replace(codec, shift=shift, scale=scale)
                for (task, codec), (shift, scale) in zip(agreed.codecs.items(), described["units"][i], strict=True)
            }
            no_numbers = np.empty(0)  # all features may be texts
            mean, scale = (arrays.get(f"client/{i}/{key}", no_numbers) for key in ("mean", "scale"))
            n = sum(column.kind == "number" for column in agreed.columns)
            if not (_is_floats(mean, (n,)) and _is_floats(scale, (n,)) and (scale > 0).all()):
                raise odd("a client's own scale is not one number above 0 for each column")
            encoders[name] = Encoder(agreed.columns, FeatureScaler(mean, scale))
        clients[name] = ClientParts(*(_part(arrays, i, part, codecs, n_features) for part in PARTS))
        if not clients[name].train.x.size:
            raise odd(f"arrays of client {name!r} are missing")
    return {
        "spec": spec,
        "clients": clients,
        "encoders": encoders,
        "scaling": described["scaling"],
        "agreed": agreed,
        "round0_bytes": dict(zip(names, described["round0_bytes"], strict=True)),
        "truth": None if described["truth"] is None else _truth(described["truth"], arrays, spec),
        "round0": Round0.from_dict(described["round0"]) if "round0" in described else Round0(),
    }


def _part(
    arrays: Mapping[str, np.ndarray], i: int, part: str, codecs: Mapping[str, LabelCodec], n_features: int
) -> ClientData:
    prefix = f"client/{i}/{part}"
    owner = arrays.get(f"{prefix}/x_of", np.array([i]))
    if f"{prefix}/x_of" in arrays and (
        owner.shape != (1,) or owner.dtype.kind not in "iu" or not 0 <= int(owner[0]) < i
    ):
        raise odd(f"{prefix}/x_of is no client before")
    keys = {task: f"{prefix}/{t}" for t, task in enumerate(codecs)}
    seen = {task: (arrays[f"{key}/at"], arrays[f"{key}/y"]) for task, key in keys.items() if f"{key}/at" in arrays}
    weights = {task: arrays[f"{key}/weight"] for task, key in keys.items() if f"{key}/weight" in arrays}
    x = arrays.get(f"client/{int(owner[0])}/{part}/x", np.empty((0, n_features)))
    data = ClientData(x, seen, codecs, weights=weights)
    reject_odd_rows(data, n_features, prefix)
    return data


def _truth(
    names: list[str], arrays: Mapping[str, np.ndarray], spec: FederationSpec
) -> dict[str, dict[str, np.ndarray]]:
    truth = {}
    for i, name in enumerate(names):
        tasks = {task.name: f"truth/{i}/{t}" for t, task in enumerate(spec.tasks)}
        functions = {task: arrays[key] for task, key in tasks.items() if key in arrays}
        x = arrays[f"truth/{i}/x"]
        n, truth[name] = len(x) if x.ndim == 2 else -1, {"x": x, **functions}
        if n < 1 or not all(_is_floats(value, (n, *value.shape[1:])) for value in truth[name].values()):
            raise odd(f"truth/{i} does not hold a value for each input")
    return truth


def reject_odd_schema(agreed: Schema, n_tasks: int) -> None:
    """Each column and each task once, and classes where a task has them."""
    names = [column.name for column in agreed.columns]
    if len(set(names)) < len(names) or len(agreed.codecs) < n_tasks:
        raise odd("a column or a task is there twice")
    for name, codec in agreed.codecs.items():
        if codec.classes != codec.task.classes or (codec.classes is None) != (not codec.task.form.has_classes):
            raise odd(f"the classes of task {name!r} are not those of its codec")


def reject_odd_rows(data: ClientData, n_features: int, prefix: str) -> None:
    """Finite inputs, labels at rows that are there, and labels that a task of this kind can have."""
    if not _is_floats(data.x, (len(data.x) if data.x.ndim else 0, n_features)):
        raise odd(f"{prefix}/x is not a finite table of {n_features} columns")
    for task, (at, y) in data.labels.items():
        if at.ndim != 1 or at.dtype != np.int64 or (len(at) and not 0 <= at.min() <= at.max() < len(data.x)):
            raise odd(f"{prefix}: labels of task {task!r} at rows that are not there")
        codec = data.codecs[task]
        shape = (len(at), 2) if codec.task.form is LabelForm.PAIR else (len(at),)
        if not _is_floats(y, shape) or not _can_be(y, codec):
            raise odd(f"{prefix}: labels of task {task!r} that a {codec.task.kind} task cannot have")
    for task, weight in data.weights.items():
        n = len(data.labels[task][0]) if task in data.labels else -1
        # On average one; what is above would say more of the federation's functions than the labels can.
        if not _is_floats(weight, (n,)) or not (weight > 0).all() or weight.sum() > n * (1 + 1e-9):
            raise odd(f"{prefix}: weights of task {task!r} that are not one, on average, for each label")


def _can_be(y: np.ndarray, codec: LabelCodec) -> bool:
    form = codec.task.form
    if form is LabelForm.BINARY:
        return bool(np.isin(y, (-1.0, 1.0)).all())
    if form is LabelForm.CLASS:
        return bool(np.isin(y, np.arange(len(codec.classes or ()))).all())
    if form is LabelForm.PAIR:
        return bool(((y >= 0).all(axis=1) & (y[:, 0] <= y[:, 1]) & (y[:, 1] > 0)).all())
    return form is not LabelForm.COUNT or bool((y >= 0).all())


def _is_floats(values: np.ndarray, shape: tuple[int, ...]) -> bool:
    return values.dtype == np.float64 and values.shape == shape and bool(np.isfinite(values).all())


def odd(what: str) -> DataError:
    return DataError(what, where="saved study", remedy="give both parts of one save")
