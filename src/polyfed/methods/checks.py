"""`check_method`: what every method must keep to, as a suite that anybody can run on their own.

    from polyfed.methods.checks import CHECKS, check_method

    check_method(MyMethod())                       # raises CheckFailed with the first promise that is broken

    @pytest.mark.parametrize("check", CHECKS)      # or each by itself
    def test_my_method(check):
        check(MyMethod())

>>> from polyfed.methods import PFedMul
>>> len(check_method(PFedMul())) == len(CHECKS)
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyfed.data import ClientData, FederationSpec, LabelCodec, Task
from polyfed.errors import PolyfedError
from polyfed.methods.base import Job, Method
from polyfed.methods.messages import ClientUpdate, State, from_bytes, to_bytes
from polyfed.seeds import Stream

CODECS = {
    "pulse": LabelCodec(Task("pulse", "regression"), None, 70.0, 10.0),
    "sick": LabelCodec(Task("sick", "binary", classes=("no", "yes")), ("no", "yes"), 0.0, 1.0),
    "stage": LabelCodec(Task("stage", "multiclass", classes=("a", "b", "c")), ("a", "b", "c"), 0.0, 1.0),
}
START = Stream(0, "start")


class CheckFailed(PolyfedError):
    """A promise of the contract that a method breaks."""


def check_method(method: Method) -> list[str]:
    """Run every check; the names of those that passed, which are all of them."""
    for check in CHECKS:
        check(method)
    return [check.__name__ for check in CHECKS]


# ---- the checks ----------------------------------------------------------------------------------------------------------


def states_are_flat_dictionaries_of_tensors(method: Method) -> None:
    completed = _run_all(method)
    for what, state in {"server": completed.server, **completed.states, "broadcast": completed.message}.items():
        _require(method, isinstance(state, Mapping), f"the state of {what!r} is a {type(state).__name__}, not a dict")
        for name, value in state.items():
            sound = isinstance(name, str) and isinstance(value, Tensor) and not value.requires_grad
            _require(method, sound, f"entry {name!r} of {what!r} is not a plain tensor without a graph")


def updates_are_what_the_template_says(method: Method) -> None:
    """All clients alike, whatever tasks they have: the server must know the form before it looks."""
    completed = _run_all(method)
    wanted = {name: (v.shape, v.dtype) for name, v in completed.form.wire().items()}
    for client, update in completed.updates.items():
        _require(method, isinstance(update, ClientUpdate), f"client {client!r} sent a {type(update).__name__}")
        found = {name: (v.shape, v.dtype) for name, v in update.wire().items()}
        different = sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))
        _require(method, not different, f"the update of client {client!r} differs from the template in {different[:3]}")
        finite = all(bool(torch.isfinite(v).all()) for v in update.wire().values())
        _require(method, finite, f"the update of client {client!r} is not finite")


def messages_survive_the_wire(method: Method) -> None:
    completed = _run_all(method)
    for update in completed.updates.values():
        again = ClientUpdate.from_wire(from_bytes(to_bytes(update.wire())))
        _require(method, _equal(again.wire(), update.wire()), "an update changes when it is sent and received")
        _require(method, update.n_bytes() == len(to_bytes(update.wire())), "an update's bytes are miscounted")


def nothing_private_is_sent(method: Method) -> None:
    """No number of an upload is an input, a target or an entry of the client's own state."""
    completed = _run_all(method)
    for client, update in completed.updates.items():
        sent = _numbers(value for value in [*update.arrays.values(), *(total for total, _ in update.pooled.values())])
        data = completed.data[client]
        private = {float(v) for v in data.x.reshape(-1)} | {float(v) for v in data.labels.get("pulse", ((), ()))[1]}
        _require(method, not sent & private, f"client {client!r} sends inputs or targets")
        own = _numbers(value for name, value in completed.states[client].items() if name.startswith("personal/"))
        _require(method, not sent & own, f"client {client!r} sends what it keeps as personal")


def functions_change_nothing_in_place(method: Method) -> None:
    server, data = method.init(_spec(method), START), _clients(method)
    client = next(iter(data))
    state, message = method.start(data[client], START), method.broadcast(server, client)
    before = [{name: value.clone() for name, value in part.items()} for part in (server, state, message)]
    _, update = method.local(state, message, data[client], Stream(0, "local", 1, client))
    method.aggregate(server, {client: update})
    method.predictor(server, state, data[client])(data[client].x)
    for what, was, now in zip(("server", "client", "broadcast"), before, (server, state, message), strict=True):
        _require(method, _equal(was, now), f"the {what}'s state is changed in place")


def the_same_streams_give_the_same_result(method: Method) -> None:
    """Whatever the global generators have been doing."""
    torch.manual_seed(1)
    first = _run_all(method)
    torch.manual_seed(2)
    torch.randn(7)
    same = _equal(first.server, _run_all(method).server, _precision(first.server))
    _require(method, same, "two runs of one seed differ: a global generator is used")


def the_order_of_clients_does_not_matter(method: Method) -> None:
    one, other = _run_all(method), _run_all(method, reverse=True)
    _require(method, _equal(one.server, other.server, 1e-9), "the server's state depends on the order of the clients")


def a_run_can_be_stored_and_resumed(method: Method) -> None:
    whole = _run_all(method, rounds=3)
    stored = _run_all(method, rounds=3, store=True)
    exact = _precision(whole.server)
    _require(method, _equal(whole.server, stored.server, exact), "the server's state after a resume is another")
    for client, state in whole.states.items():
        same = _equal(state, stored.states[client], exact)
        _require(method, same, f"the state of {client!r} after a resume is another")


def personal_states_persist(method: Method) -> None:
    """A client goes on from where it was: without its own state it would end elsewhere, if it has one at all."""
    completed = _run_all(method, rounds=2)
    for client, state in completed.states.items():
        lost = sorted(method.start(completed.data[client], START).keys() - state.keys())
        _require(method, not lost, f"client {client!r} loses {lost[:3]} in a round")


def every_client_gets_predictions(method: Method) -> None:
    """Those that lack tasks, have one class, one sample, were never sampled, or come later; and the server's model alone."""
    data = _clients(method)
    completed = _run_all(method, who=[client for client in data if client != "never sampled"])
    new = _served(method, _client(np.random.default_rng(9), 6))
    for client, mine in data.items():
        for state in (completed.states[client], None):
            _finite(method, method.predictor(completed.server, state, mine)(mine.x[:3]), mine, client)
    state = method.join(completed.server, new, Stream(0, "join", client="new"))
    _finite(method, method.predictor(completed.server, state, new)(new.x[:3]), new, "new")


def a_prediction_state_is_enough_to_predict(method: Method) -> None:
    """On many machines a client has no more of the server's state than `prediction_state` gives it."""
    completed = _run_all(method)
    for client, mine in completed.data.items():
        known = method.prediction_state(completed.server, client)
        extra = sorted(known.keys() - completed.server.keys())
        _require(method, not extra, f"the prediction_state of {client!r} has {extra[:3]}, which the server has not")
        for state in (completed.states[client], None):
            whole, part = (method.predictor(one, state, mine)(mine.x[:3]) for one in (completed.server, known))
            same = all(np.array_equal(_values(whole[task]), _values(part[task])) for task in whole)
            what = f"client {client!r} predicts otherwise with its prediction_state of the server's state"
            _require(method, same, what)


CHECKS: list[Callable[[Method], None]] = [
    states_are_flat_dictionaries_of_tensors,
    updates_are_what_the_template_says,
    messages_survive_the_wire,
    nothing_private_is_sent,
    functions_change_nothing_in_place,
    the_same_streams_give_the_same_result,
    the_order_of_clients_does_not_matter,
    a_run_can_be_stored_and_resumed,
    personal_states_persist,
    every_client_gets_predictions,
    a_prediction_state_is_enough_to_predict,
]


# ---- a small federation with every difficulty -----------------------------------------------------------------------------


@dataclass
class _Completed:
    server: State
    states: dict[str, State]
    updates: dict[str, ClientUpdate]
    data: dict[str, ClientData]
    message: State
    form: ClientUpdate  # of the updates that the server expected in the last round


def _client(
    rng: np.random.Generator, n: int, tasks: tuple[str, ...] = tuple(CODECS), one_class: bool = False
) -> ClientData:
    x = rng.standard_normal((n, 3))
    f = np.sin(x[:, 0]) + 0.3 * rng.standard_normal(n)
    labels = {"pulse": f, "sick": np.where(f > 0, 1.0, -1.0), "stage": np.digitize(f, [-0.4, 0.4]).astype(float)}
    if one_class:
        labels |= {"sick": np.ones(n), "stage": np.full(n, 2.0)}
    return ClientData(x, {task: (np.arange(n), labels[task]) for task in tasks}, CODECS)


def _served(method: Method, data: ClientData) -> ClientData:
    codecs = {name: codec for name, codec in CODECS.items() if method.kinds is None or codec.task.kind in method.kinds}
    return ClientData(data.x, {task: seen for task, seen in data.labels.items() if task in codecs}, codecs)


def _clients(method: Method) -> dict[str, ClientData]:
    rng = np.random.default_rng(0)
    clients = {
        "usual": _client(rng, 12),
        "large": _client(rng, 20),
        "lacks a task": _client(rng, 9, ("pulse", "stage")),
        "one task": _client(rng, 7, ("sick",)),
        "one class": _client(rng, 8, one_class=True),
        "one sample": _client(rng, 1),
        "never sampled": _client(rng, 5),
    }
    return {name: _served(method, data) for name, data in clients.items()}


def _spec(method: Method) -> FederationSpec:
    clients = _clients(method)
    codecs = clients["usual"].codecs
    return FederationSpec(tuple(codec.task for codec in codecs.values()), 3, tuple(clients), codecs)


def _run_all(
    method: Method, rounds: int = 2, *, reverse: bool = False, store: bool = False, who: list[str] | None = None
) -> _Completed:
    data = _clients(method)
    names = (who or list(data))[:: -1 if reverse else 1]
    server = method.init(_spec(method), START)
    states = {client: method.start(mine, START) for client, mine in data.items()}
    updates: dict[str, ClientUpdate] = {}
    message: State = {}
    form = method.template(server)
    for r in range(1, rounds + 1):
        server = method.begin_round(server, rounds - r)
        form = method.template(server)
        jobs = [Job(c, states[c], method.broadcast(server, c), data[c], Stream(0, "local", r, c)) for c in names]
        updates = {}
        for job, outcome in zip(jobs, method.local_many(jobs), strict=True):
            if isinstance(outcome, Exception):
                what = f"client {job.client!r} failed in round {r} with {type(outcome).__name__}: {outcome}"
                raise CheckFailed(what, where=f"method {method.name!r}") from outcome
            states[job.client], updates[job.client] = outcome
        message = jobs[0].message
        server = method.aggregate(server, updates)
        if store:
            server = from_bytes(to_bytes(server))
            states = {client: from_bytes(to_bytes(state)) for client, state in states.items()}
            data = _clients(method)
    return _Completed(server, states, updates, data, message, form)


def _require(method: Method, holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailed(what, where=f"method {method.name!r}")


def _finite(method: Method, predictions: Mapping, data: ClientData, client: str) -> None:
    complete = list(predictions) == list(data.codecs)
    _require(method, complete, f"client {client!r} gets predictions of {list(predictions)}")
    for task, prediction in predictions.items():
        values = _values(prediction)
        _require(method, bool(np.isfinite(values).all()), f"client {client!r} gets no finite prediction of {task!r}")
        sums = not hasattr(prediction, "class_proba") or bool(np.allclose(values.sum(1), 1.0))
        _require(method, sums, f"probabilities of {task!r} at client {client!r} do not sum to one")


def _values(prediction: Any) -> np.ndarray:
    if hasattr(prediction, "class_proba"):
        return prediction.class_proba
    return np.stack([prediction.mean, prediction.std])


def _equal(a: Mapping[str, Tensor], b: Mapping[str, Tensor], atol: float = 0.0) -> bool:
    def same(x: Tensor, y: Tensor) -> bool:
        return torch.equal(x, y) or (atol > 0 and torch.allclose(x, y, rtol=atol, atol=atol))

    return a.keys() == b.keys() and all(same(value, b[name]) for name, value in a.items())


def _precision(state: Mapping[str, Tensor]) -> float:
    """How near two runs of the same must be: alike to the last bit, unless a network computes in float32. Its sums may be
    taken in another order when its numbers lie elsewhere in memory, and all that follows differs by as much."""
    return 1e-4 if any(value.dtype == torch.float32 for value in state.values()) else 0.0


def _numbers(values) -> set[float]:
    """All numbers but the trivial ones, which mean nothing."""
    found = {float(number) for value in values for number in value.reshape(-1).tolist()}
    return found - {0.0, 1.0, -1.0}
