"""A federation: clients with data of their own, the tasks they share, and how the data will be split and scaled.

>>> hospitals = {
...     "basel": {"pulse": ([[50.0], [60.0]], [70, 80]), "sick": ([[50.0], [40.0]], ["yes", "no"])},
...     "bern": ([[30.0], [20.0]], {"sick": ["no", None]}),
... }
>>> Federation.from_clients(hospitals, {"pulse": "regression", "sick": "binary"})
Federation of 2 clients and 6 rows; pulse (regression): 2 labels, sick (binary): 3 labels; scaling 'federated'
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from polyfed.data.client import FederationSpec
from polyfed.data.features.matrix import at
from polyfed.data.prepared import PreparedFederation
from polyfed.data.raw import RawClient, read_client
from polyfed.data.schema.client_summary import describe
from polyfed.data.schema.coding import SCALINGS, Encoder, code_parts, n_unknown, warn_of_grouped
from polyfed.data.schema.limits import OPEN, Limits, Round0
from polyfed.data.schema.negotiation import agree
from polyfed.data.splits import DEFAULT_SPLIT, Split, divide
from polyfed.data.tables.reading import TableReader
from polyfed.data.task import Task, as_tasks
from polyfed.errors import ConfigError, DataError, nearest
from polyfed.kinds import LabelForm


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Made by `from_clients` or `from_table`; `prepare` splits, runs round 0 and codes everything as numbers.

    tasks     what is to be predicted; a client may lack any of them
    raw       name → the client's data as read, sorted by name
    scaling   "federated": units that all clients agree on; "local": each client its own; "none": as they came;
              "targets": agreed units of the targets, features as they came (pixels, or maps that a network takes)
    split     which rows are for training, validation and testing
    truth     for made-up data, client → {"x": inputs, task: the true latent function there}, in the units given
    limits    what each client lets leave; in one process all of it, as all data are in one place
    """

    tasks: tuple[Task, ...]
    raw: Mapping[str, RawClient]
    scaling: str
    split: Split
    truth: Mapping[str, Mapping[str, np.ndarray]] | None = None
    limits: Limits = OPEN

    def __post_init__(self) -> None:
        if self.scaling not in SCALINGS:
            raise ConfigError(f"scaling {self.scaling!r} is not known", remedy=nearest(self.scaling, SCALINGS))
        if not isinstance(self.split, Split):
            raise ConfigError(f"split={self.split!r} is not a split", remedy="give for example Split(test=0.2)")
        if not self.raw:
            raise DataError("there is no client", where="federation", remedy="give at least one")
        for name in self.raw:
            if not name.isascii() and name.encode(errors="replace").decode() != name:  # of a file name that is no text
                raise DataError(f"client {name!r} has no name that can be written", remedy="rename it")
        for task in self.tasks:
            if not any(task.name in raw.labels and len(raw.labels[task.name].at) for raw in self.raw.values()):
                what = "no client has a label"
                raise DataError(what, where=f"task {task.name!r}", remedy="give some, or leave the task out")

    @classmethod
    def from_clients(
        cls,
        clients: Mapping[str, object],
        tasks: object,
        *,
        scaling: str = "federated",
        split: Split = DEFAULT_SPLIT,
        test: Mapping[str, object] | None = None,
        truth: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    ) -> Federation:
        """From {name: {task: (X, y)}} or, where the tasks share their inputs, {name: (X, {task: y})}.

        X is an array, a tensor or a table; text columns are categories, NaN and None are missing values or labels.
        A client in `test` (of the same form) brings test rows of its own: the fraction of `split` is not for it.
        """
        tasks = as_tasks(tasks)
        raw = _read_all(clients, tasks, "clients")
        for name, extra in _read_all(test or {}, tasks, "test").items():
            if name not in raw:
                what = f"client {name!r} has test rows but no others"
                raise DataError(what, where="test", remedy="give it among the clients too")
            raw[name] = raw[name].with_test(extra, where=f"client {name!r}, test rows")
        return cls(tasks, dict(sorted(raw.items())), scaling, split, _checked_truth(truth, tasks, raw))

    @classmethod
    def from_table(
        cls,
        source: object,
        *,
        client: str | None = None,
        tasks: object,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        derive: Mapping[str, str] | None = None,
        missing: Sequence[str] | None = None,
        query: str | None = None,
        transform: Mapping[str, str] | None = None,
        weights: str | None = None,
        scaling: str = "federated",
        split: Split = DEFAULT_SPLIT,
    ) -> Federation:
        """From a DataFrame, a file (CSV, also compressed, TSV, Parquet, Feather, Excel, a database of SQLite or DuckDB with
        a `query`), the URL of a database such as "postgresql://reader:${PASSWORD}@host/clinic", a pattern such as
        "data/*.csv", or a folder with one file for each client.

        `client` names the column that says whose row it is; in a folder it is None and the names of the files say it, as
        they do for a pattern if it is not given.
        Tasks are found by the name of their column; a proportion task "k/n" takes the columns k and n. All other
        columns are features, unless `features` lists them or `drop` leaves some out. `derive` makes further columns,
        as in {"disease": "num > 0"}; a column that a task is derived from is no feature unless it is listed.

        Class labels and names of clients in a CSV file are taken as they are written: NA, None and 01 are what they say,
        and an empty field is no label. `missing` lists the texts that mean so instead, as in ["", "NA"]; with [] an empty
        label is a class. In columns of numbers and in features the usual markers (NA, NaN, null, ...) mean a gap anyway.

        `transform` takes the logarithm of skewed inputs, as in {"income": "log"}, or their rank among the values of all
        clients ("rank"); a skewed target can be derived as {"log_income": "log(income)"}. Dates become
        numbers. Columns that number or name the rows are left out, with a warning, unless `features` lists them.

        `weights` names a column that says how much each row counts in training, relative to the client's others; a row of
        weight zero is for testing alone. Classes have weights of their own: `Task(..., class_weights="balanced")`.
        """
        tasks = as_tasks(tasks)
        columns = {"features": features, "drop": drop, "derive": derive, "missing": missing}
        reader = TableReader(tasks, **columns, split=split, transform=transform, weights=weights)
        raw = reader.clients(source, client=client, query=query)
        _report_constant(raw, tasks)
        return cls(tasks, dict(sorted(raw.items())), scaling, split)

    @property
    def names(self) -> tuple[str, ...]:
        """The clients, sorted."""
        return tuple(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        labels = []
        for task in self.tasks:
            n = sum(len(raw.labels[task.name].at) for raw in self.raw.values() if task.name in raw.labels)
            labels.append(f"{task.name} ({task.kind}): {n} labels")
        clients = f"{len(self)} client{'s' if len(self) > 1 else ''}"
        rows = sum(map(len, self.raw.values()))
        return f"Federation of {clients} and {rows} rows; {', '.join(labels)}; scaling {self.scaling!r}"

    def with_options(
        self, *, scaling: str | None = None, split: Split | None = None, limits: Limits | None = None
    ) -> Federation:
        """The same clients with another scaling, another split or other limits."""
        return replace(self, scaling=scaling or self.scaling, split=split or self.split, limits=limits or self.limits)

    def prepare(self, seed: int) -> PreparedFederation:
        """Split every client's rows, agree on columns, classes and units (round 0), and code all rows as numbers."""
        if not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0:
            raise ConfigError(f"seed={seed!r} is not a seed", remedy="give a whole number from 0 up")
        local = self.scaling == "local"
        divisions, summaries = {}, {}
        for name, raw in self.raw.items():
            divisions[name] = divide(self.tasks, raw, self.split, seed=int(seed), client=name)
            summaries[name] = describe(self.tasks, raw, divisions[name], scaling=self.scaling, limits=self.limits)
        agreed = agree(self.tasks, summaries)
        warn_of_grouped(agreed.columns, [raw.features for raw in self.raw.values()])
        shared = Encoder.of(agreed)
        clients, encoders, unknown = {}, {}, {}
        for name, raw in self.raw.items():
            if lost := n_unknown(raw, divisions[name], agreed.codecs):
                unknown[name] = lost
            clients[name], encoders[name] = code_parts(name, raw, divisions[name], agreed, shared, local=local)
        spec = FederationSpec(agreed.tasks, len(shared.names), self.names, agreed.codecs)
        sizes = {name: summary.n_bytes for name, summary in summaries.items()}
        declared = {name: dict(summary.labels) for name, summary in summaries.items()}
        round0 = Round0(self.limits, declared, unknown=unknown)
        return PreparedFederation(spec, clients, encoders, self.scaling, agreed, sizes, self.truth, round0)


def _report_constant(raw: Mapping[str, RawClient], tasks: Sequence[Task]) -> None:
    """Say of which tasks all labels are the same: whatever is predicted, it looks perfect."""
    for task in tasks:
        labels = [client.labels[task.name] for client in raw.values() if task.name in client.labels]
        if task.form is LabelForm.PAIR or sum(len(own.at) for own in labels) < 2:
            continue
        values = {value for own in labels for value in (own.vocabulary or own.values.tolist())}
        # Of one word alone no classes are made.
        if len(values) == 1 and not isinstance(value := values.pop(), str):
            warnings.warn(f"task {task.name!r}: all labels are {value!r}, so there is nothing to learn", stacklevel=3)


def _read_all(clients: Mapping[str, object], tasks: Sequence[Task], where: str) -> dict[str, RawClient]:
    if not isinstance(clients, Mapping):
        what = f"are a {type(clients).__name__}"
        raise DataError(what, where=where, remedy="give {name: {task: (X, y)}} or {name: (X, {task: y})}")
    raw: dict[str, RawClient] = {}
    for key, data in clients.items():
        name = str(key)
        if name in raw:
            raise DataError(f"client {name!r} is given twice", where=where, remedy="give each client a name of its own")
        raw[name] = read_client(name, data, tasks)
    return raw


def _checked_truth(
    truth: Mapping[str, Mapping[str, ArrayLike]] | None, tasks: Sequence[Task], clients: Mapping[str, RawClient]
) -> Mapping[str, Mapping[str, np.ndarray]] | None:
    """The truth as arrays: for each client inputs x and, for some tasks, as many values of the function."""
    if truth is None:
        return None
    known = [task.name for task in tasks]
    if "x" in known:
        raise ConfigError("with truth no task can be called 'x'", where="truth", remedy="rename the task")
    checked = {}
    for name, functions in truth.items():
        with at(f"truth of client {name!r}"):
            if str(name) not in clients:
                raise DataError("there is no such client", remedy=nearest(name, list(clients)[:20]))
            arrays = {key: np.array(values, dtype=np.float64) for key, values in functions.items()}
            if "x" not in arrays or arrays["x"].ndim != 2:
                raise DataError("has no matrix 'x' of inputs", remedy="give {'x': (points, features), task: f}")
            n = len(arrays["x"])
            for key, values in arrays.items():
                if key != "x" and key not in known:
                    raise DataError(f"task {key!r} is unknown", remedy=nearest(key, known))
                if len(values) != n or not np.isfinite(values).all():
                    raise DataError(f"{key!r} is not {n} finite numbers", remedy="give one for each row of x")
        checked[str(name)] = arrays
    return checked
