"""A federation made ready: what was agreed in round 0, and every client's parts as numbers.

>>> from polyfed.data import Federation, Split
>>> clients = {"basel": ([[10.0], [30.0]], {"pulse": [60, 80]})}
>>> prepared = Federation.from_clients(clients, {"pulse": "regression"}, split=Split(test=0.0)).prepare(seed=0)
>>> prepared.clients["basel"].train.x, prepared.encode("basel", [[40.0]])
(array([[-1.],
       [ 1.]]), array([[2.]]))
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np

from polyfed.data.client import ClientData, FederationSpec
from polyfed.data.features.transforms import FeatureScaler
from polyfed.data.labels.codec import LabelCodec
from polyfed.data.prepared_checks import is_floats, odd, reject_odd_rows, reject_odd_schema
from polyfed.data.raw import read_client
from polyfed.data.schema.coding import ClientParts, Encoder, code_parts, shared_part
from polyfed.data.schema.limits import OPEN, Limits, Round0
from polyfed.data.schema.negotiation import Schema
from polyfed.data.splits import Split, divide
from polyfed.data.tables.files import is_table_source
from polyfed.data.tables.reading import read_client_table
from polyfed.errors import UnknownNameError, UsageError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class PreparedFederation:
    """What methods and engines work with."""

    spec: FederationSpec  # what everyone knows
    clients: Mapping[str, ClientParts]  # name → its parts, sorted by name
    encoders: Mapping[str, Encoder]  # name → how it encodes rows; one shared object unless scaling is local
    scaling: str  # "federated", "local", "targets" or "none"
    agreed: Schema  # the result of round 0
    round0_bytes: Mapping[str, int]  # name → size of what the client sent in round 0
    # for made-up data, client → {"x": inputs as given, task: the true latent function there}
    truth: Mapping[str, Mapping[str, np.ndarray]] | None = None
    # who took part in round 0 and with what, who is silent, who was rejected
    round0: Round0 = field(default_factory=Round0)

    def shared(self, client: str) -> ClientData:
        """The training data from which this client's updates are made; without labels if it is silent."""
        train, limits = self.clients[client].train, self.round0.limits
        return train if limits == OPEN else shared_part(train, self.agreed.columns, limits)

    def below(self, limits: Limits) -> dict[str, dict[str, int]]:
        """client whose data are here → task → its training labels, where they are too few for these limits."""
        counts = {client: parts.train.counts() for client, parts in self.clients.items()}
        few = {client: {t: n for t, n in own.items() if 0 < n < limits.min_rows} for client, own in counts.items()}
        return {client: own for client, own in few.items() if own}

    def encode(self, client: str, X: object) -> np.ndarray:
        """Features of new rows as this client encodes them: a table, a dictionary of columns, or as many columns in order."""
        self._reject_unknown_clients([client])
        return self.encoders[client].encode_new(X, f"client {client!r}, new rows")

    def admit(self, name: str, data: object) -> tuple[ClientData, Encoder]:
        """A client that was not there at round 0: its rows, all for training, and how it encodes further ones.

        `data` is as in `Federation.from_clients`, or a table (or file) with the agreed columns and those of the tasks
        that it has. It uses what was agreed: an unseen category is all zeros, an unseen class an error.
        """
        parts, encoder = self._admitted(name, data, Split(test=0.0), 0)
        return parts.train, encoder

    def _admitted(self, name: str, data: object, split: Split, seed: int) -> tuple[ClientParts, Encoder]:
        if name in self.clients:
            what = f"client {name!r} is a member already"
            raise UsageError(what, where="admit", remedy="choose a name that is not taken")
        tasks, columns = self.agreed.tasks, [column.name for column in self.agreed.columns]
        read = read_client_table if is_table_source(data) else read_client
        raw = read(name, data, tasks, columns)
        division = divide(tasks, raw, split, seed=seed, client=name)
        shared, local = Encoder.of(self.agreed), self.scaling == "local"
        parts, encoder = code_parts(name, raw, division, self.agreed, shared, local=local)
        encoder.warn_of_unseen(raw.features, f"client {name!r}")
        return parts, encoder

    def with_late_client(
        self, name: str, data: Any, late_clients: PreparedFederation | None = None, *, test: float = 0.0, seed: int = 0
    ) -> PreparedFederation:
        """A prepared federation of the clients that were admitted later: this one, and those before it.

        All its rows are for training, but for a share that is kept for testing.
        """
        parts, encoder = self._admitted(name, data, Split(test=test), seed)
        before = replace(self, clients={}, encoders={}) if late_clients is None else late_clients
        clients = {**before.clients, name: parts}
        return replace(
            self,
            spec=replace(self.spec, clients=tuple(clients)),
            clients=clients,
            encoders={**before.encoders, name: encoder},
            round0_bytes=dict.fromkeys(clients, 0),
            truth=None,
            round0=Round0(),
        )

    def without(self, names: Iterable[str]) -> PreparedFederation:
        """The same prepared federation with some members left out; what was agreed stays as it is."""
        names = [names] if isinstance(names, str) else list(names)
        self._reject_unknown_clients(names)
        kept = tuple(name for name in self.clients if name not in set(names))
        if not kept:
            raise UsageError("no client would be left", where="without", remedy="keep at least one")
        truth = None if self.truth is None else {name: self.truth[name] for name in kept if name in self.truth}
        return replace(
            self,
            spec=replace(self.spec, clients=kept),
            clients={name: self.clients[name] for name in kept},
            encoders={name: self.encoders[name] for name in kept},
            round0_bytes={name: self.round0_bytes[name] for name in kept},
            truth=truth,
        )

    def to_dict(self) -> dict[str, Any]:
        """All that is not an array, ready for JSON."""
        units = None
        if self.scaling == "local":  # else all clients have the agreed codecs
            units = [[[c.shift, c.scale] for c in parts.train.codecs.values()] for parts in self.clients.values()]
        return {
            "scaling": self.scaling,
            "agreed": self.agreed.to_dict(),
            "clients": list(self.clients),
            "members": list(self.spec.clients),  # on many machines, more than those whose data are here
            "units": units,
            "round0_bytes": [self.round0_bytes[name] for name in self.clients],
            "truth": None if self.truth is None else list(self.truth),
            "round0": self.round0.to_dict(),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays, by names such as "client/0/train/x": members and tasks go by their position.

        Names of clients and tasks may contain any character, so "client/3/train/1/y" holds the labels of task 1 in the training
        part of client 3. Empty arrays are left out, and inputs that another client before has too, such as test images that
        are the same for all, are kept once: "client/3/test/x_of" says whose they are.
        """
        tasks = [task.name for task in self.spec.tasks]
        named: dict[str, np.ndarray] = {}
        first: dict[tuple[str, int], int] = {}  # part and checksum of inputs → the first client with them
        for i, (name, parts) in enumerate(self.clients.items()):
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
            if self.scaling == "local":
                scaler = self.encoders[name].scaler
                named[f"client/{i}/mean"], named[f"client/{i}/scale"] = scaler.mean, scaler.scale
        for i, truth in enumerate((self.truth or {}).values()):
            named[f"truth/{i}/x"] = truth["x"]
            for t, task in enumerate(tasks):
                if task in truth:
                    named[f"truth/{i}/{t}"] = truth[task]
        return {name: array for name, array in named.items() if array.size}

    @classmethod
    def from_saved(cls, described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PreparedFederation:
        """The prepared federation that `to_dict` and `arrays` described, bit for bit; or an error."""
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
                if not (is_floats(mean, (n,)) and is_floats(scale, (n,)) and (scale > 0).all()):
                    raise odd("a client's own scale is not one number above 0 for each column")
                encoders[name] = Encoder(agreed.columns, FeatureScaler(mean, scale))
            clients[name] = ClientParts(*(_part(arrays, i, part, codecs, n_features) for part in PARTS))
            if not clients[name].train.x.size:
                raise odd(f"arrays of client {name!r} are missing")
        bytes_sent = dict(zip(names, described["round0_bytes"], strict=True))
        truth = None if described["truth"] is None else _truth(described["truth"], arrays, spec)
        round0 = Round0.from_dict(described["round0"]) if "round0" in described else Round0()
        return cls(spec, clients, encoders, described["scaling"], agreed, bytes_sent, truth, round0)

    def _reject_unknown_clients(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.clients:
                close = difflib.get_close_matches(str(name), list(self.clients), n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                what = f"client {name!r} is no member of this federation"
                raise UnknownNameError(what, remedy=f"{hint}it has {len(self.clients)}; admit() takes in new ones")


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
        if n < 1 or not all(is_floats(value, (n, *value.shape[1:])) for value in truth[name].values()):
            raise odd(f"truth/{i} does not hold a value for each input")
    return truth
