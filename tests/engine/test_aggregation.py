"""Who breaks a round is found and rejected by name; a round that nobody in particular breaks is dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from federations import START, federation
from polyfed.engine import aggregation
from polyfed.engine.pipeline import PARTS
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.methods import PFedMul

MARK = 0.123456789  # what the algebra of this method cannot stand


class Fragile(PFedMul):
    """Some clients send a number that passes every check, and at which the algebra of the server breaks."""

    breakers: tuple[str, ...] = ()
    raises = True

    def local_many(self, jobs):
        outcomes = super().local_many(jobs)
        return [self._marked(job.client, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]

    def _marked(self, client, outcome):
        state, update = outcome
        if client not in self.breakers:
            return outcome
        return state, replace(update, metrics={**update.metrics, "bound": MARK})

    def aggregate(self, server, updates):
        if any(update.metrics["bound"] == MARK for update in updates.values()):
            if self.raises:
                raise torch.linalg.LinAlgError("not positive definite")
            after = super().aggregate(server, updates)
            return {name: value * float("nan") for name, value in after.items()}
        return super().aggregate(server, updates)


def fragile(*breakers, raises=True):
    made = Fragile()
    object.__setattr__(made, "breakers", breakers)
    object.__setattr__(made, "raises", raises)
    return made


def run_rounds(method, n_clients, rounds=3, left_out=(), **options):
    spec, data = federation(n_clients, whole=True)
    federation_state, events = FederationState(0, method.init(spec, START), {}), []
    for _ in range(rounds):
        who = [client for client in data if client not in left_out]
        federation_state, event = run_round(method, federation_state, data, Settings(**options), who)
        events.append(event)
    return federation_state, events


@pytest.mark.parametrize("breakers", [("client 3",), ("client 0",), ("client 1", "client 4"), ("client 0", "client 5")])
@pytest.mark.parametrize("rule", list(PARTS))
def test_who_breaks_every_round_is_rejected_and_the_others_learn_without_it(breakers, rule):
    attacked, events = run_rounds(fragile(*breakers), 6, aggregation=rule)
    clean, _ = run_rounds(PFedMul(), 6, left_out=breakers, aggregation=rule)
    reason = "with its update the round breaks: _LinAlgError: not positive definite"
    for event in events:
        assert event["rejected"] == dict.fromkeys(breakers, reason)
        assert event["used"]
        assert "dropped" not in event
        assert set(event["metrics"]) == set(event["sampled"]) - set(breakers)
    assert all(torch.equal(value, attacked.server[name]) for name, value in clean.server.items())
    assert set(attacked.clients) == set(clean.clients)  # who was rejected keeps the state it had


def test_a_state_that_is_not_finite_has_its_culprit_too():
    _, events = run_rounds(fragile("client 2", raises=False), 5, rounds=1)
    (reason,) = events[0]["rejected"].values()
    assert list(events[0]["rejected"]) == ["client 2"]
    assert reason.startswith("with its update the round breaks: ")
    assert reason.endswith("would no longer be finite")


def test_without_a_quorum_of_others_the_round_is_dropped_and_nobody_blamed():
    federation_state, events = run_rounds(fragile("client 0", "client 1"), 4, rounds=1, quorum=0.75)
    assert (events[0]["used"], events[0]["rejected"]) == (False, {})
    assert events[0]["dropped"] == "_LinAlgError: not positive definite"
    assert not federation_state.clients


def test_many_culprits_are_not_looked_for_one_by_one(monkeypatch):
    monkeypatch.setattr(aggregation, "MOST_CULPRITS", 1)
    _, events = run_rounds(fragile("client 0", "client 1"), 6, rounds=1)
    assert events[0]["dropped"] == "_LinAlgError: not positive definite"


def test_a_culprit_among_many_costs_few_aggregations(monkeypatch):
    tried = []
    prepared = aggregation.prepared
    monkeypatch.setattr(aggregation, "prepared", lambda *given: tried.append(1) or prepared(*given))
    _, events = run_rounds(fragile("client 7"), 32, rounds=1)
    assert list(events[0]["rejected"]) == ["client 7"]
    assert len(tried) == 1 + 5 + 1  # all, five halvings of 32, and those that are left
