"""Typed states go to flat dictionaries and back, whatever tasks are called."""

from __future__ import annotations

import doctest

import torch

from polyfed.methods import typed_state
from polyfed.methods.gp.states import Broadcast, Moments, Sent, Server
from polyfed.methods.gp.wide import weight_states

ONE = torch.ones(1, dtype=torch.float64)


def test_the_examples():
    assert doctest.testmod(typed_state).failed == 0


def test_nothing_is_lost_and_nothing_is_added():
    names = ["theta/mixing.blood/pressure", "pooled/noise.theta/x", "adam/first.mixing.blood/pressure", "adam/steps"]
    names += ["evidence/triangle", "evidence/shift", "shared/Z", "starting", "adam/pairs.s", "adam/pairs.y"]
    flat = dict.fromkeys(names, ONE)
    server = Server.from_arrays(flat | {"of another method": ONE})
    assert server.to_arrays() == flat
    assert server.theta == {"mixing.blood/pressure": ONE}
    assert server.optimiser.first == {"mixing.blood/pressure": ONE}
    assert server.curving is None


def test_plain_names_are_those_that_no_other_field_has():
    arrays = {"mixing.blood/pressure": ONE, "held_out/features.projection": ONE, "curvature": ONE}
    sent = Sent.from_arrays(arrays)
    assert (list(sent.gradient), list(sent.held_out)) == (["mixing.blood/pressure"], ["features.projection"])
    assert [Sent.field_of(name) for name in arrays] == ["gradient", "held_out", "curvature"]
    assert Broadcast.from_arrays({"noise.pulse": ONE, "strength/noise.pulse": ONE}).theta == {"noise.pulse": ONE}


def test_no_two_fields_share_a_key():
    for made in (Server, Broadcast, Sent, Moments, weight_states.Server, weight_states.Sent):
        keys = [one.metadata["key"] for one in typed_state.fields(made)]
        assert len(set(keys)) == len(keys)
