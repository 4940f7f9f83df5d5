"""What the server rejects, and that the rest of the round is as if it had not been there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from federations import START, federation
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.engine.validation import validate_updates
from polyfed.methods import ClientUpdate, PFedMul, PFedSt
from polyfed.methods.messages import strip_prefix
from polyfed.methods.neural.scaffold import Scaffold

FIRST = "mixing.binary"


def with_array(update, value, name=FIRST):
    return replace(update, arrays={**update.arrays, name: value})


def filled(update, number):
    return with_array(update, torch.full_like(update.arrays[FIRST], number))


def without(update, name):
    return replace(update, arrays={n: v for n, v in update.arrays.items() if n != name})


def scaled(update, factor):
    return replace(update, arrays={n: factor * v for n, v in update.arrays.items()})


def with_pooled(update, total, count):
    pair = (torch.tensor(total, dtype=torch.float64), torch.tensor(count, dtype=torch.float64))
    return replace(update, pooled={"noise.regression": pair})


FAULTS = {
    "NaN": (lambda u: filled(u, float("nan")), "array 'mixing.binary' is not finite"),
    "infinity": (lambda u: filled(u, float("inf")), "array 'mixing.binary' is not finite"),
    "shape": (
        lambda u: with_array(u, torch.zeros(3, 3).double()),
        "array 'mixing.binary' has shape (3, 3), not (1, 3)",
    ),
    "broadcast": (lambda u: with_array(u, torch.zeros(1).double()), "array 'mixing.binary' has shape (1,), not (1, 3)"),
    "dtype": (lambda u: with_array(u, u.arrays[FIRST].float()), "is torch.float32, not torch.float64"),
    "list": (lambda u: with_array(u, [[0.0, 0.0]]), "array 'mixing.binary' is a list, not a tensor"),
    "missing": (lambda u: without(u, FIRST), "arrays lack 'mixing.binary'"),
    "extra": (lambda u: with_array(u, torch.zeros(2), "secret"), "arrays have 'secret', which nobody asked for"),
    "zero weight": (lambda u: replace(u, weight=0.0), "weight is 0.0"),
    "negative weight": (lambda u: replace(u, weight=-3.0), "weight is -3.0"),
    "NaN weight": (lambda u: replace(u, weight=float("nan")), "weight is nan"),
    "negative count": (lambda u: replace(u, counts={**u.counts, "binary": -1}), "count of task 'binary' is -1"),
    "count above what was declared": (
        lambda u: replace(u, counts={**u.counts, "binary": 1000}),
        "count of task 'binary' is 1000, and it declared 7 labels",
    ),
    "count of thousands of digits": (
        lambda u: replace(u, counts={**u.counts, "binary": 10**5000}),
        "count of task 'binary' is a whole number of 16610 bits",
    ),
    "half a label": (lambda u: replace(u, counts={**u.counts, "binary": 0.5}), "count of task 'binary' is 0.5"),
    "weight above what was declared": (lambda u: replace(u, weight=22.0), "weight is 22.0, and it declared 21 labels"),
    "weight of thousands of digits": (lambda u: replace(u, weight=10**5000), "weight is a whole number of 16610 bits"),
    "weight of text": (lambda u: replace(u, weight="7"), "weight is '7'"),
    "metric": (lambda u: replace(u, metrics={"bound": float("nan")}), "metric 'bound' is nan"),
    "metric without end": (lambda u: replace(u, metrics={"bound": -float("inf")}), "metric 'bound' is -inf"),
    "metric of thousands of digits": (
        lambda u: replace(u, metrics={"bound": -(10**5000)}),
        "metric 'bound' is a whole number of 16610 bits",
    ),
    "large below zero": (lambda u: filled(u, -1e31), "array 'mixing.binary' is beyond 1e+30"),
    "large": (lambda u: filled(u, 1e31), "array 'mixing.binary' is beyond 1e+30"),
    "sparse": (
        lambda u: with_array(u, u.arrays[FIRST].to_sparse()),
        "array 'mixing.binary' is torch.sparse_coo on cpu",
    ),
    "no mapping": (lambda u: replace(u, arrays=[1]), "arrays are a list"),
    "no pair": (lambda u: replace(u, pooled={"noise.regression": (1.0,)}), "'noise.regression' is no pair of sum and"),
    "norm": (lambda u: scaled(u, 1e6), "its norm is over 100000 times the median"),
    "noise NaN": (lambda u: with_pooled(u, float("nan"), 3.0), "sum or count of 'noise.regression' is not finite"),
    "noise below zero": (lambda u: with_pooled(u, -1e-9, 3.0), "sum of 'noise.regression' is negative"),
    "noise count": (lambda u: with_pooled(u, 1.0, -0.5), "count of 'noise.regression' is negative"),
    "noise count NaN": (
        lambda u: with_pooled(u, 1.0, float("nan")),
        "sum or count of 'noise.regression' is not finite",
    ),
    "noise count above": (lambda u: with_pooled(u, 7.0, 7.5), "count of 'noise.regression' is above its labels"),
    "noise beyond": (lambda u: with_pooled(u, 1e31, 3.0), "sum or count of 'noise.regression' is beyond 1e+30"),
    "noise size": (lambda u: with_pooled(u, 1e12, 3.0), "mean of 'noise.regression' is over 100000 times the median"),
    "foreign type": (lambda u: {"arrays": u.arrays}, "sent a dict instead of a ClientUpdate"),
}


LONG = "x" * 10**6 + "\x1b[2J"


@pytest.mark.parametrize(
    "fault",
    [
        lambda u: with_array(u, torch.zeros(2), LONG),
        lambda u: replace(u, metrics={**u.metrics, LONG: 1.0}),
        lambda u: replace(u, weight=LONG),
        lambda u: (_ for _ in ()).throw(RuntimeError(LONG)),
    ],
)
def test_what_a_client_chose_is_cut_before_it_reaches_an_event(fault):
    spec, data = federation(4, whole=True)
    faulty = Faulty()
    object.__setattr__(faulty, "fault", fault)
    _, events = run_rounds(faulty, data, spec, rounds=2)
    (reason,) = events[1]["rejected"].values()
    assert len(reason) == 200
    assert reason.endswith("…")
    assert reason.isprintable()


class Plain(PFedMul):
    """A method whose updates have these arrays and no more; it objects to what is below zero, and `sum` is evidence."""

    def template(self, server):
        return ClientUpdate(server)

    def objection(self, server, update):
        if "broken" in server and bool((update.arrays["broken"] > 0).any()):
            raise ValueError("no factor")
        return "a value is below zero" if any(bool((v < 0).any()) for v in update.arrays.values()) else None

    def is_evidence(self, name):
        return name == "sum"


def looked_at(**updates):
    sent = {client: ({}, ClientUpdate({n: torch.tensor([v]) for n, v in u.items()})) for client, u in updates.items()}
    return validate_updates(Plain(), next(iter(sent.values()))[1].arrays, sent, {client: {"a": 1} for client in sent})


def test_a_method_may_object_to_what_only_it_understands():
    sound, rejected = looked_at(a={"x": 1.0}, b={"x": -1.0}, c={"x": float("nan")})
    assert list(sound) == ["a"]
    assert rejected == {"b": "a value is below zero", "c": "array 'x' is not finite"}
    _, rejected = looked_at(a={"broken": 0.0}, b={"broken": 1.0})
    assert rejected == {"b": "ValueError: no factor"}


def test_evidence_may_be_as_large_as_its_labels_make_it():
    assert not looked_at(a={"x": 1.0, "sum": 1e6}, b={"x": 1.0, "sum": 1.0}, c={"x": 1.0, "sum": 1.0})[1]
    assert list(looked_at(a={"x": 1e6, "sum": 1.0}, b={"x": 1.0, "sum": 1.0}, c={"x": 1.0, "sum": 1.0})[1]) == ["a"]


def test_a_sum_over_hardly_any_count_is_no_outlier():
    """The std of counts that are near zero is a sum over next to nothing: 1 here, and no million."""

    class Free(Plain):
        def template(self, server):
            return ClientUpdate({}, pooled={"std": (torch.zeros(()), torch.zeros(()))})

        def counted_tasks(self, server, name):
            return None

    counts = {"a": 0.0, "b": 3.0, "c": 3.0}
    sent = {
        client: ({}, ClientUpdate({}, pooled={"std": (torch.tensor(1.0), torch.tensor(count))}))
        for client, count in counts.items()
    }
    assert not validate_updates(Free(), {}, sent, {client: {"a": 1} for client in sent})[1]
    sent["a"] = ({}, ClientUpdate({}, pooled={"std": (torch.tensor(1e6), torch.tensor(0.0))}))
    _, rejected = validate_updates(Free(), {}, sent, {client: {"a": 1} for client in sent})
    assert rejected == {"a": "mean of 'std' is over 100000 times the median"}


def test_the_order_of_tasks_is_no_clients_choice():
    """`pfed-st` numbers the tasks by the order of the counts: a client that turns it round must not swap them for all."""
    spec, data = federation(3, whole=True)

    class Turning(PFedSt):
        def local_many(self, jobs):
            return [(s, replace(u, counts=dict(reversed(u.counts.items())))) for s, u in super().local_many(jobs)]

    turned, events = run_rounds(Turning(), data, spec, rounds=2)
    plain, _ = run_rounds(PFedSt(), data, spec, rounds=2)
    assert not events[-1]["rejected"]
    assert all(torch.equal(value, turned.server[name]) for name, value in plain.server.items())


class Spoilt(PFedMul):
    """What comes out of round 2 is no state to go on from."""

    spoil = staticmethod(lambda value: value)

    def aggregate(self, server, updates):
        after = super().aggregate(server, updates)
        corrupted = {"pooled/noise.regression": self.spoil()} if "begun" in server else {}
        return {**after, "begun": torch.ones(()), **corrupted}


def raising():
    raise torch.linalg.LinAlgError("not positive definite")


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda: torch.tensor(float("nan")), "'pooled/noise.regression' would no longer be finite"),
        (lambda: torch.tensor(-float("inf")), "'pooled/noise.regression' would no longer be finite"),
        (lambda: torch.tensor(-1e125, dtype=torch.float64), "'pooled/noise.regression' would be beyond 1e+30"),
        (lambda: torch.tensor(2**60), "'pooled/noise.regression' would be beyond 1e+30"),
        (raising, "_LinAlgError: not positive definite"),
    ],
)
def test_a_state_that_is_none_to_go_on_from_is_dropped_and_the_one_before_kept(spoil, text):
    spec, data = federation(3, whole=True)
    made = Spoilt()
    object.__setattr__(made, "spoil", spoil)
    federation_state, events = run_rounds(made, data, spec, rounds=2)
    before, _ = run_rounds(made, data, spec, rounds=1)
    assert [(event["used"], event.get("dropped")) for event in events] == [(True, None), (False, text)]
    assert federation_state.round == 2
    assert all(torch.equal(value, before.server[name]) for name, value in federation_state.server.items())
    assert all(
        torch.equal(v, before.clients[c][n]) for c, state in federation_state.clients.items() for n, v in state.items()
    )


class Faulty(PFedMul):
    """Client 1 breaks its update in round 2."""

    fault = staticmethod(lambda update: update)

    def local_many(self, jobs):
        outcomes = super().local_many(jobs)
        spoiled = [job.client == "client 1" and job.stream.round == 2 for job in jobs]
        return [self._spoil(o) if bad else o for bad, o in zip(spoiled, outcomes, strict=True)]

    def _spoil(self, outcome):
        try:
            return outcome[0], self.fault(outcome[1])
        except Exception as error:
            return error


def run_rounds(method, data, spec, *, left_out=False, rounds=3, **options):
    settings = Settings(rounds=rounds, **options)
    federation_state = FederationState(0, method.init(spec, START), {})
    events = []
    for r in range(1, rounds + 1):
        who = [name for name in data if not (left_out and r == 2 and name == "client 1")]
        federation_state, event = run_round(method, federation_state, data, settings, who)
        events.append(event)
    return federation_state, events


def explode(update):
    raise RuntimeError("disk full")


@pytest.mark.parametrize("mode", ["gradient", "average"])
@pytest.mark.parametrize("fault", [*FAULTS, "exception"])
def test_a_bad_update_is_rejected_by_name_and_the_round_goes_on_without_it(fault, mode):
    spec, data = federation(4, whole=True)
    change, text = FAULTS.get(fault, (explode, "RuntimeError: disk full"))
    faulty = Faulty(mode=mode)
    object.__setattr__(faulty, "fault", change)
    spoiled, events = run_rounds(faulty, data, spec)
    assert [list(event["rejected"]) for event in events] == [[], ["client 1"], []]
    assert text in events[1]["rejected"]["client 1"]
    clean, _ = run_rounds(PFedMul(mode=mode), data, spec, left_out=True)
    assert spoiled.server.keys() == clean.server.keys()
    for name, value in clean.server.items():
        torch.testing.assert_close(spoiled.server[name], value, rtol=0, atol=1e-12)
    for name, value in clean.clients["client 1"].items():  # it trained for nothing in round 2, and goes on from round 1
        torch.testing.assert_close(spoiled.clients["client 1"][name], value, rtol=0, atol=1e-12)


def test_without_a_quorum_everything_stays():
    spec, data = federation(4, whole=True)
    faulty = Faulty()
    object.__setattr__(faulty, "fault", explode)
    federation_state, events = run_rounds(faulty, data, spec, rounds=2, quorum=1.0)
    before, _ = run_rounds(PFedMul(), data, spec, rounds=1)
    assert [event["used"] for event in events] == [True, False]
    assert federation_state.round == 2
    assert all(torch.equal(value, before.server[name]) for name, value in federation_state.server.items())
    assert all(
        torch.equal(value, before.clients[client][name])
        for client, state in federation_state.clients.items()
        for name, value in state.items()
    )


def test_with_two_clients_the_larger_does_not_vouch_for_itself():
    sound, rejected = looked_at(good={"a": 1.0}, bad={"a": 1e6})
    assert list(sound) == ["good"]
    assert list(rejected) == ["bad"]


def test_clients_with_nothing_to_say_are_no_yardstick():
    sound, rejected = looked_at(a={"a": 0.0}, b={"a": 0.0}, c={"a": 0.0}, d={"a": 1.0})
    assert len(sound) == 4
    assert not rejected


def test_a_control_variate_that_was_not_used_is_not_kept():
    """SCAFFOLD: c = mean of the c_i holds only if a client whose update was rejected keeps its c_i of before."""

    class Dropping(Scaffold):
        def local(self, state, message, data, stream):
            after, update = super().local(state, message, data, stream)
            corrupted = data is victim and stream.round == 2
            return after, replace(update, weight=float("nan")) if corrupted else update

    spec, data = federation(3, kinds=("regression",), whole=True)
    victim, made = data["client 1"], Dropping(hidden=(4,))
    federation_state = FederationState(0, made.init(spec, START), {})
    before = {}
    for round in (1, 2, 3):
        before, (federation_state, event) = (
            federation_state.clients,
            run_round(made, federation_state, data, Settings(quorum=0.5, aggregation="mean")),
        )
        assert list(event["rejected"]) == (["client 1"] if round == 2 else [])
        controls = [strip_prefix(federation_state.clients[name], "control") for name in data]
        for name, shared in strip_prefix(federation_state.server, "control").items():
            torch.testing.assert_close(torch.stack([own[name] for own in controls]).mean(0), shared)
        if round == 2:
            assert federation_state.clients["client 1"] is before["client 1"]
