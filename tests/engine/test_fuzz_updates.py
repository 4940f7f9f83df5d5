"""Whatever clients send, through the guard, the rules and `aggregate` of every method: no raw error, and no bad state."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import torch
from hypothesis import given
from hypothesis import strategies as st

from federations import START, federation
from fuzzing import fuzz
from polyfed.engine import pipeline
from polyfed.engine.form import LARGEST
from polyfed.engine.rounds import FederationState, conclude, run_round
from polyfed.engine.settings import Settings
from polyfed.methods import ClientUpdate, known_methods, method
from polyfed.methods.rivals.base import Rival
from polyfed.seeds import Stream

METHODS = known_methods()

NETS = {"hidden": (3,), "local_epochs": 1}
FAMILIES = {
    "pfed-mul": {},
    "pfed-mul average": {"mode": "average", "weighting": "samples"},
    "pfed-mul features": {"projection": 2, "mean": "linear"},
    "pfed-st": {},
    "fedavg": NETS,
    "fedper": NETS,
    "scaffold": NETS,
    "pfedme": {**NETS, "local_steps": 2, "inner_steps": 1},
    "fedpac": NETS,
    "pfedgp": {**NETS, "n_chains": 2, "n_sweeps": 1},
    "pfedvem": {**NETS, "head_steps": 2},
    "pfed-mul-published": {"local_steps": 1},
}
PARTS = ("arrays", "pooled", "weight", "counts", "metrics")
for name, kind in METHODS.items():
    if name not in ("local", "pooled") and not issubclass(kind, Rival):  # nothing of these is shared, or one client's
        FAMILIES.setdefault(name, {})


def setup_module():
    """Before hypothesis looks: what honest clients do is no part of a case."""
    for family in FAMILIES:
        prepared(family)


@cache
def prepared(family):
    """A method, what it knows after a round, what honest clients send in the next, and what they declared."""
    name, options = family.partition(" ")[0], FAMILIES[family]
    spec, data = federation(5, kinds=METHODS[name].kinds or ("regression", "binary", "count"))
    made = method(name, **options)
    federation_state = FederationState(0, made.init(spec, START), {})
    settings = Settings(aggregation="mean")
    federation_state, _ = run_round(made, federation_state, data, settings)
    sent = {}
    for client, mine in data.items():
        message = made.broadcast(federation_state.server, client)
        sent[client] = made.local(federation_state.clients[client], message, mine, Stream(0, "local", 2, client))
    return made, federation_state, sent, {client: mine.counts() for client, mine in data.items()}


FLOATS = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        0.0,
        -0.0,
        1e-320,
        1.0,
        -1.0,
        1e5,
        -1e5,
        9e29,
        -9e29,
        1e31,
        1e154,
        -1e308,
    ]
)
NUMBERS = st.one_of(FLOATS, st.integers(-3, 10**9), st.sampled_from([10**5000, -(10**5000), 2**63, True]))
NAMES = st.sampled_from(["", "x" * 10**6, "\0", "\x1b[2J", "mixing.binary", "0/noise", "²", "\ud800"])
OBJECTS = st.sampled_from([None, "three", [], (), {}, 3j, torch.zeros(1), b"\0", object()])


def filled(value, number):
    return torch.full_like(value, number if value.is_floating_point() else 2**62)


def array(value):
    """Something in the place of an array."""
    return st.one_of(
        FLOATS.map(lambda number: filled(value, number)),
        st.floats(-1e6, 1e6).map(lambda factor: (factor * value).to(value.dtype)),
        st.sampled_from([value[None], value.to(torch.float16), value.to(torch.complex128), value.flatten()[:0]]),
        st.just(value.clone().requires_grad_() if value.is_floating_point() else value),
        OBJECTS,
    )


def pair(values):
    total, count = values
    both = st.tuples(FLOATS.map(lambda n: filled(total, n)), FLOATS.map(lambda n: filled(count, n)))
    small = st.tuples(st.floats(0, 50), st.floats(0, 50)).map(lambda p: (filled(total, p[0]), filled(count, p[1])))
    return st.one_of(both, small, st.tuples(array(total), array(count)), st.just((total,)), OBJECTS)


def number(value):
    return st.one_of(NUMBERS, OBJECTS)


@st.composite
def changed(draw, entries, kind):
    """A dictionary with one entry changed, taken away or added, or something else altogether."""
    what = draw(st.sampled_from(["value", "value", "value", "less", "more", "other"]))
    if what == "other":
        return draw(OBJECTS)
    after = dict(entries)
    if what == "more" or not after:
        after[draw(NAMES)] = next(iter(entries.values()), 1.0)
        return after
    name = draw(st.sampled_from(sorted(after)))
    after.pop(name) if what == "less" else after.update({name: draw(kind(after[name]))})
    return after


@st.composite
def attacks(draw):
    """A family, a rule, and outcomes of which one or two are not what a client should send."""
    family = draw(st.sampled_from(sorted(FAMILIES)))
    _, _, sent, _ = prepared(family)
    outcomes = dict(sent)
    bad = draw(st.lists(st.sampled_from(sorted(sent)), min_size=1, max_size=2, unique=True))
    for client in bad:
        state, update = outcomes[client]
        if draw(st.integers(0, 19)) == 0:
            outcomes[client] = draw(st.sampled_from([(state, None), (state, {}), ValueError("\x1b" * 10**6)]))
            continue
        for part in draw(st.lists(st.sampled_from(PARTS), min_size=1, unique=True)):
            kind = {"arrays": array, "pooled": pair}.get(part, number)
            now = getattr(update, part)
            update = replace(update, **{part: draw(number(now) if part == "weight" else changed(now, kind))})
        if draw(st.booleans()) and isinstance(update.counts, dict):
            update = replace(update, counts=dict(reversed(update.counts.items())))
        outcomes[client] = state, update
    return family, draw(st.sampled_from(list(pipeline.PARTS))), outcomes, bad


@fuzz(800)
@given(attacks())
def test_no_update_breaks_a_round_or_the_state(attack):
    family, rule, outcomes, bad = attack
    made, federation_state, _, declared = prepared(family)
    settings = Settings(aggregation=rule)
    after, event = conclude(made, federation_state, outcomes, settings, declared=declared, bytes_down=0)
    assert set(event["rejected"]) <= set(bad)  # the others go on
    assert len(json.dumps(event, allow_nan=False)) < 10_000
    assert after.server.keys() >= federation_state.server.keys()
    for name, value in after.server.items():
        assert value.shape == federation_state.server.get(name, value).shape
        assert not value.requires_grad
        assert bool((value.abs().double() <= LARGEST).all()), name
    assert event["used"] or after.server is federation_state.server


def test_what_honest_clients_send_is_used_under_every_rule():
    for family in FAMILIES:
        made, federation_state, sent, declared = prepared(family)
        for rule in pipeline.PARTS:
            after, event = conclude(
                made, federation_state, sent, Settings(aggregation=rule), declared=declared, bytes_down=0
            )
            assert event["used"], (family, rule, event)
            assert not event["rejected"], (family, rule, event["rejected"])
            assert all(isinstance(update, ClientUpdate) for _, update in sent.values())
            assert any(not torch.equal(value, after.server[name]) for name, value in federation_state.server.items())
