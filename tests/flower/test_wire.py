"""One record a message: what goes in comes out, and what nobody packed is rejected before it is used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs Flower: pip install 'polyfed[flower]'")

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from polyfed.flower import internals
from polyfed.flower.wire import content, opened

ARRAYS = {
    "arrays/W": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "weight": torch.tensor(3.5, dtype=torch.float64),
    "arrays/net": torch.linspace(-1, 1, 5),
    "labels/0/naïve": torch.tensor(7.0, dtype=torch.float64),
    "empty": torch.zeros(0, 4),
}


def message(what: RecordDict) -> Message:
    internals.be(1, run=1)
    return Message(what, dst_node_id=2, message_type="train")


def test_what_goes_in_comes_out():
    note, arrays = opened(message(content({"round": 3, "text": "Zürich"}, ARRAYS)))
    assert note == {"round": 3, "text": "Zürich"}
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (value.dtype, value.shape)
        assert torch.equal(arrays[name], value)


def test_views_that_share_memory_travel_as_arrays_of_their_own():
    whole = torch.arange(12.0).reshape(3, 4)
    _, arrays = opened(message(content({}, {"a": whole.T, "b": whole[1]})))
    assert torch.equal(arrays["a"], whole.T)
    assert torch.equal(arrays["b"], whole[1])


def test_flower_moves_three_objects_however_many_arrays_there_are():
    few = internals.get_all_nested_objects(message(content({}, {"a": torch.zeros(2)})))
    many = internals.get_all_nested_objects(message(content({}, {f"a{i}": torch.zeros(2) for i in range(100)})))
    assert len(few) == len(many) == 3  # the message, its content, the record


def test_a_note_holds_no_number_that_is_none():
    with pytest.raises(ValueError, match="JSON"):
        content({"score": float("nan")})


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ({}, "it holds no record of polyfed"),
        ({"note": ConfigRecord({"json": "{}"}), "arrays": ArrayRecord()}, "install the same on all machines"),
        ({"polyfed": ConfigRecord({"note": "{}"})}, "arrays"),
        ({"polyfed": ConfigRecord({"note": b"{}", "arrays": b""})}, "holds a bytes"),
        ({"polyfed": ConfigRecord({"note": "{}", "arrays": "text"})}, "and a str"),
        ({"polyfed": ConfigRecord({"note": "[]", "arrays": b""})}, "the note is a list"),
        ({"polyfed": ConfigRecord({"note": "[" * 100_000, "arrays": b""})}, "nested too deep"),
        ({"polyfed": ConfigRecord({"note": "{}", "arrays": b""})}, "its arrays cannot be read"),
        ({"polyfed": ConfigRecord({"note": "{}", "arrays": b"\xff" * 64})}, "its arrays cannot be read"),
    ],
)
def test_what_nobody_packed_is_rejected(records, sentence):
    with pytest.raises((ValueError, TypeError, KeyError), match=sentence):
        opened(message(RecordDict(records)))


def test_bytes_that_were_changed_on_the_way_are_arrays_or_an_error_and_nothing_else():
    record = content({}, ARRAYS).config_records["polyfed"]
    whole, rng, rejected = record["arrays"], np.random.default_rng(0), 0
    assert isinstance(whole, bytes)
    for _ in range(300):
        changed = bytearray(whole[: rng.integers(len(whole))] if rng.random() < 0.3 else whole)
        for place in rng.integers(0, max(len(changed), 1), size=min(3, len(changed))):
            changed[place] = rng.integers(256)
        try:
            opened(message(RecordDict({"polyfed": ConfigRecord({"note": "{}", "arrays": bytes(changed)})})))
        except (ValueError, TypeError, KeyError):
            rejected += 1
    assert rejected > 100
