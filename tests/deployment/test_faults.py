"""A server and three nodes as processes, and what happens when they misbehave or die: with warm nodes and with stock ones.

Where a test says `machines.stock`, the two differ in what a node says of it, and not in what the server makes of it.
"""

from __future__ import annotations

import pytest
from bench.deployed import rounds_of

from deployed_rounds import assert_right, rejected_in
from flower_runs import NAMES

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="looks into /proc")


def test_the_same_numbers_as_in_one_process(machines):
    folder = machines.run("equal", rounds=2, timeout=300)
    assert rejected_in(folder) == [{}, {}]
    said = machines.log("bern")
    assert "fewer than 1 training labels here" in said
    assert "(lowered in node.toml; 10 and 5 are usual)" in said
    assert machines.stock or said.count("train: answered") == 2
    assert_right(machines, folder)


def test_clients_that_raise_send_rubbish_or_exit(machines):
    machines.faults(bern_1="raise", basel_1="nan", thun_2="shape", bern_2="exit")
    folder = machines.run("faults", rounds=3, quorum=0.3, timeout=150)
    rejected = rejected_in(folder)
    assert [sorted(names) for names in rejected[:2]] == [["basel", "bern"], ["bern", "thun"]]
    assert "is not finite" in rejected[0]["basel"]
    assert "has shape (7,)" in rejected[1]["thun"]
    assert "RuntimeError: deliberate" in machines.log("bern")  # the whole story stays there
    if not machines.stock:
        assert "deliberate" not in rejected[0]["bern"]
        assert "ended with code 3" in rejected[1]["bern"]
        assert rejected[2] == {}
    log = (folder / "run.log").read_text()
    assert all(f"rejected {client}" in log for client in NAMES)
    assert_right(machines, folder)


def test_a_client_that_hangs_costs_one_timeout(machines):
    limit = 60 if machines.stock else 30  # a new worker of the node loads torch meanwhile
    machines.faults(bern_1="hang")
    folder = machines.run("hang", rounds=4, timeout=limit)
    first, second, third, _ = rejected_in(folder)
    assert first == {"bern": f"NoAnswer: none within {limit} s"}
    assert second == {"bern": "NoAnswer: it did not answer before and is asked again later"}
    if machines.stock:  # nobody ends the work, so the node is lost until it is started again
        assert third == first
        assert_right(machines, folder, nodes=("basel", "thun"))
        before = machines.arrivals("bern")
        machines.kill("bern")
        machines.node("bern")
        machines.wait(lambda: machines.arrivals("bern") > before, "bern to be online")
        return
    assert third == {}
    assert f"the work was not done within {limit + 5} s, and was ended" in machines.log("bern")
    assert_right(machines, folder)


def test_a_node_is_killed_and_comes_back_with_its_state(machines):
    before = machines.arrivals("bern")
    with machines.running("node", rounds=4, quorum=1.0, timeout=100, wait=300) as folder:  # nobody goes on without bern
        machines.kill("bern")
        machines.go_on()
        machines.node("bern")
    assert machines.arrivals("bern") == before + 1
    rounds = rounds_of(folder)
    assert "bern" in rounds[1]["rejected"]
    assert rounds[0]["used"]
    assert rounds[-1]["used"]
    assert_right(machines, folder)


def test_old_messages_that_are_sent_again_do_not_count(machines):
    """With their signatures, which Flower takes for five minutes, by somebody who is inside of TLS."""
    machines.network.repeat, before = ("/push-messages", "/push-object"), machines.network.n_repeated
    folder = machines.run("replayed", rounds=3, timeout=100)
    assert machines.network.n_repeated - before >= 6
    assert rejected_in(folder) == [{}, {}, {}]
    assert_right(machines, folder)


def test_rounds_go_on_over_a_network_that_delays_and_cuts(machines):
    machines.network.delay, machines.network.cut_every = 0.05, 23
    folder = machines.run("network", rounds=6, quorum=0.6, timeout=100 if machines.stock else 20)
    assert machines.network.n_cut >= 3
    rounds = rounds_of(folder)
    assert len(rounds) == 6
    assert all(event["used"] for event in rounds)
    lost = [set(event["rejected"]) for event in rounds]
    assert all(names <= {"thun"} for names in lost)  # a message that was handed out and cut off is not handed out again
    assert any(not names for names in lost)
    assert_right(machines, folder, nodes=("basel", "bern"))


def test_a_node_of_another_version_is_named_and_the_others_go_on(machines):
    machines.faults(bern_0="version")
    folder = machines.run("version", rounds=1, quorum=0.5, timeout=200)
    start = (folder / "events.jsonl").read_text().splitlines()[0]
    assert "this client 99; install the same version of polyfed on both" in start
    assert sorted(rounds_of(folder)[0]["sampled"]) == ["basel", "thun"]
