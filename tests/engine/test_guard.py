"""What the server refuses, and that the rest of the round is as if it had not been there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from federations import START, federation
from polyfed.engine.guard import check
from polyfed.engine.rounds import Progress, play_round
from polyfed.engine.settings import Settings
from polyfed.methods import ClientUpdate, PFedMul
from polyfed.methods.messages import part
from polyfed.methods.scaffold import Scaffold

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
    "metric": (lambda u: replace(u, metrics={"bound": float("nan")}), "metric 'bound' is nan"),
    "norm": (lambda u: scaled(u, 1e6), "its norm is over 100000 times the median"),
    "noise NaN": (lambda u: with_pooled(u, float("nan"), 3.0), "sum or count of 'noise.regression' is not finite"),
    "noise count": (lambda u: with_pooled(u, 1.0, -3.0), "count of 'noise.regression' is negative"),
    "noise size": (lambda u: with_pooled(u, 1e12, 3.0), "mean of 'noise.regression' is over 100000 times the median"),
    "foreign type": (lambda u: {"arrays": u.arrays}, "sent a dict instead of a ClientUpdate"),
}


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


def play(method, data, spec, *, left_out=False, rounds=3, **options):
    settings = Settings(rounds=rounds, **options)
    progress = Progress(0, method.init(spec, START), {})
    events = []
    for r in range(1, rounds + 1):
        who = [name for name in data if not (left_out and r == 2 and name == "client 1")]
        progress, event = play_round(method, progress, data, settings, who)
        events.append(event)
    return progress, events


def explode(update):
    raise RuntimeError("disk full")


@pytest.mark.parametrize("mode", ["gradient", "average"])
@pytest.mark.parametrize("fault", [*FAULTS, "exception"])
def test_a_bad_update_is_refused_by_name_and_the_round_goes_on_without_it(fault, mode):
    spec, data = federation(4, whole=True)
    change, text = FAULTS.get(fault, (explode, "RuntimeError: disk full"))
    faulty = Faulty(mode=mode)
    object.__setattr__(faulty, "fault", change)
    spoiled, events = play(faulty, data, spec)
    assert [list(event["refused"]) for event in events] == [[], ["client 1"], []]
    assert text in events[1]["refused"]["client 1"]
    clean, _ = play(PFedMul(mode=mode), data, spec, left_out=True)
    assert spoiled.server.keys() == clean.server.keys()
    for name, value in clean.server.items():
        torch.testing.assert_close(spoiled.server[name], value, rtol=0, atol=1e-12)
    for name, value in clean.clients["client 1"].items():  # it trained for nothing in round 2, and goes on from round 1
        torch.testing.assert_close(spoiled.clients["client 1"][name], value, rtol=0, atol=1e-12)


def test_without_a_quorum_everything_stays():
    spec, data = federation(4, whole=True)
    faulty = Faulty()
    object.__setattr__(faulty, "fault", explode)
    progress, events = play(faulty, data, spec, rounds=2, quorum=1.0)
    before, _ = play(PFedMul(), data, spec, rounds=1)
    assert [event["used"] for event in events] == [True, False]
    assert progress.round == 2
    assert all(torch.equal(value, before.server[name]) for name, value in progress.server.items())
    assert all(
        torch.equal(value, before.clients[client][name])
        for client, state in progress.clients.items()
        for name, value in state.items()
    )


def test_with_two_clients_the_larger_does_not_vouch_for_itself():
    update = ClientUpdate({"a": torch.ones(2).double()})
    sound, refused = check(update, {"good": ({}, update), "bad": ({}, scaled(update, 1e6))})
    assert list(sound) == ["good"]
    assert list(refused) == ["bad"]


def test_clients_with_nothing_to_say_are_no_yardstick():
    zero, one = (ClientUpdate({"a": torch.full((2,), value).double()}) for value in (0.0, 1.0))
    sound, refused = check(zero, {"a": ({}, zero), "b": ({}, zero), "c": ({}, zero), "d": ({}, one)})
    assert len(sound) == 4
    assert not refused


def test_a_control_variate_that_was_not_used_is_not_kept():
    """SCAFFOLD: c = mean of the c_i holds only if a client whose update was refused keeps its c_i of before."""

    class Dropping(Scaffold):
        def local(self, state, message, data, stream):
            after, update = super().local(state, message, data, stream)
            spoilt = data is victim and stream.round == 2
            return after, replace(update, weight=float("nan")) if spoilt else update

    spec, data = federation(3, kinds=("regression",), whole=True)
    victim, made = data["client 1"], Dropping(hidden=(4,))
    progress = Progress(0, made.init(spec, START), {})
    before = {}
    for round in (1, 2, 3):
        before, (progress, event) = progress.clients, play_round(made, progress, data, Settings(quorum=0.5))
        assert list(event["refused"]) == (["client 1"] if round == 2 else [])
        controls = [part(progress.clients[name], "control") for name in data]
        for name, shared in part(progress.server, "control").items():
            torch.testing.assert_close(torch.stack([own[name] for own in controls]).mean(0), shared)
        if round == 2:
            assert progress.clients["client 1"] is before["client 1"]
