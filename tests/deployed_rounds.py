"""Whatever happened, the oracle is the same: the rounds in this process, with those clients in each round whose updates the
server says it used. Personal parameters stay on the nodes (scheme K), so a node that lost its state would show."""

from __future__ import annotations

from bench.deployed import rounds_of

import polyfed as pf
from flower_runs import NAMES, assert_same_predictions, assert_same_server, new_rows, replayed, run_of_node


def rejected_in(folder):
    return [event["rejected"] for event in rounds_of(folder)]


def assert_right(machines, folder, nodes=NAMES):
    """The server's Θ, and every node's own predictions, are what the same rounds in this process give."""
    run = pf.load(folder)
    reference = replayed(machines.tables, rounds_of(folder), seed=run.settings.seed)
    assert_same_server(reference.federation_state.server, run.federation_state.server)
    for name in nodes:
        own = run_of_node(machines.folder / "nodes" / name / "state", folder, name)
        assert_same_predictions(own, reference, name, new_rows())
