"""States of a batch are what they would be one by one, and go on as one where the same clients come again."""

import doctest
import pickle

import pytest
import torch

from federations import START, federation, run_rounds
from polyfed.methods import Job, PFedHier, PFedMul
from polyfed.methods.gp import states as states_of_methods
from polyfed.methods.gp.states import BatchedState, Broadcast, ClientColumns, States
from polyfed.methods.messages import from_bytes, to_bytes
from polyfed.seeds import Stream


def test_the_examples():
    assert doctest.testmod(states_of_methods).failed == 0


def test_a_state_of_a_batch_is_a_dictionary_to_whoever_looks():
    spec, data = federation(3)
    _, states, _ = run_rounds(PFedMul(scheme=["kernels"]), spec, data, rounds=2)
    for state in states.values():
        assert isinstance(state, BatchedState)
        plain = dict(state)
        assert {"personal/mixing.binary", "warm/m", "warm/v"} <= plain.keys()
        assert len(state) == len(plain)
        assert (state | {"more": plain["warm/m"]}).keys() == ({"more": plain["warm/m"]} | state).keys()
        for again in (from_bytes(to_bytes(state)), pickle.loads(pickle.dumps(state))):
            assert type(again) is dict
            assert again.keys() == plain.keys()
            assert all(torch.equal(again[name], plain[name]) for name in plain)


@pytest.mark.parametrize("options", [{}, {"scheme": ["kernels"], "mode": "average"}])
def test_stacked_and_stored_states_go_on_alike(options):
    """All clients in their order (nothing is taken apart), in another order, and from a file: the same next round."""
    spec, data = federation(4)
    method = PFedMul(**options)
    server, states, _ = run_rounds(method, spec, data, rounds=2)

    def round_of(names, own):
        jobs = [Job(n, own[n], method.broadcast(server, n), data[n], Stream(0, "local", 3, n)) for n in names]
        return dict(zip(names, method.local_many(jobs), strict=True))

    stored = {name: from_bytes(to_bytes(state)) for name, state in states.items()}
    expected = round_of(list(data), stored)
    for names in (list(data), list(reversed(data)), list(data)[1:3]):
        for name, (state, update) in round_of(names, states).items():
            for found, wanted in ((state, expected[name][0]), (update.arrays, expected[name][1].arrays)):
                assert found.keys() == wanted.keys()
                for key in wanted:
                    torch.testing.assert_close(found[key], wanted[key], rtol=0, atol=1e-11, equal_nan=True)


def test_evidence_stays_stacked_as_long_as_clients_come_together():
    spec, data = federation(4)
    method = PFedHier(n_points=6)
    _, states, _ = run_rounds(method, spec, data, rounds=2)
    names, batches = list(data), {id(state.batch) for state in states.values()}
    assert len(batches) == 1
    assert states[names[0]].batch.columns.evidence is not None
    server, own, _ = run_rounds(method, spec, data, rounds=1)
    jobs = [Job(n, own[n], method.broadcast(server, n), data[n], Stream(0, "local", 2, n)) for n in names[:2]]
    after = [state for state, _ in method.local_many(jobs)]  # two of four: the others keep what they have
    for state in after:
        assert state.batch.columns.evidence is None
        triangle = state["own/triangle"]
        assert triangle.untyped_storage().nbytes() == 8 * triangle.numel()
    fresh = method.start(data[names[3]], START)
    message = Broadcast.stacked([method.broadcast(server, "")] * 3)
    found = States([*after, fresh]).stacked(ClientColumns.unsaid(message, [])).evidence.shift
    nothing = torch.zeros_like(after[0]["own/shift"])
    assert torch.equal(found, torch.stack([after[0]["own/shift"], after[1]["own/shift"], nothing]))


def test_states_that_are_not_of_one_batch_are_stacked():
    spec, data = federation(3)
    method = PFedMul(scheme=["kernels"])
    _, states, _ = run_rounds(method, spec, data, rounds=1)
    mixed = [states["client 0"], method.start(data["client 1"], START), states["client 2"]]
    found = States(mixed).stacked().personal
    assert torch.equal(found["mixing.binary"], torch.stack([one["personal/mixing.binary"] for one in mixed]))
    start = States(mixed).warm
    assert start[1] is None
    assert torch.equal(start[2][0], mixed[2]["warm/m"])
