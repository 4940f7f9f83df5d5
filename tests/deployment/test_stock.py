"""The same with Flower's own SuperNodes, which start a process for each message: what a user of `--stock` relies on."""

from __future__ import annotations

import pytest

from deployed_rounds import assert_right, refused_in

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="looks into /proc")
STOCK = True


def test_the_same_numbers_as_in_one_process(machines):
    folder = machines.run("equal", rounds=2, timeout=300)
    assert refused_in(folder) == [{}, {}]
    assert "SuperNode ID" in machines.log("bern")
    assert_right(machines, folder)


def test_clients_that_raise_send_rubbish_or_exit(machines):
    machines.faults(bern_1="raise", basel_1="nan", thun_2="shape", bern_2="exit")
    folder = machines.run("faults", rounds=3, quorum=0.3, timeout=150)
    refused = refused_in(folder)
    assert [sorted(names) for names in refused[:2]] == [["basel", "bern"], ["bern", "thun"]]
    assert "is not finite" in refused[0]["basel"]
    assert "has shape (7,)" in refused[1]["thun"]
    assert "RuntimeError: deliberate" in machines.log("bern")
    assert_right(machines, folder)
