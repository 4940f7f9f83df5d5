"""Rules of aggregation against other libraries and hand computation, and what they leave alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean

from federations import START, federation, run_rounds
from polyfed.engine.pipeline import PARTS, prepared
from polyfed.engine.robust import clipped, krum, median, trimmed
from polyfed.engine.rounds import FederationState, run_round
from polyfed.engine.settings import Settings
from polyfed.methods import ClientUpdate, FedAvg, PFedMul, PFedVEM
from polyfed.methods.neural.base import Neural

ROWS = torch.from_numpy(
    np.random.default_rng(0).normal(size=(9, 5)) * np.array([[1], [1], [1], [2], [3], [1], [50], [1], [9]])
)


def test_clipping_keeps_directions_and_shortens_what_is_over_twice_the_median():
    norms = np.linalg.norm(ROWS.numpy(), axis=1)
    limit = 2 * np.median(norms)
    found = clipped(ROWS).numpy()
    assert 0 < (norms > limit).sum() < 5
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.minimum(norms, limit))
    np.testing.assert_allclose(found / np.minimum(norms, limit)[:, None], ROWS.numpy() / norms[:, None])


def test_of_two_clients_the_larger_is_held_to_the_smaller():
    assert clipped(torch.tensor([[1.0], [-100.0]])).tolist() == [[1.0], [-2.0]]


@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_median_and_trimmed_mean_are_those_of_numpy_and_scipy(n):
    rows = ROWS[:n]
    np.testing.assert_allclose(median(rows)[0], np.median(rows, axis=0))
    for share in (0.0, 0.2, 0.45):
        np.testing.assert_allclose(trimmed(rows, share)[0], trim_mean(rows.numpy(), share, axis=0))


@pytest.mark.parametrize("n", [3, 5, 9])
def test_krum_is_the_row_with_the_nearest_neighbours(n):
    rows, f = ROWS[:n].numpy(), int(0.2 * n)
    scores = []
    for i in range(n):
        distances = sorted(((rows[i] - rows[j]) ** 2).sum() for j in range(n) if j != i)
        scores.append(sum(distances[: max(n - f - 2, 1)]))
    np.testing.assert_array_equal(krum(ROWS[:n], 0.2)[0], rows[int(np.argmin(scores))])


class Sums(PFedMul):
    """Updates with a change, evidence, a whole number and a statistic."""

    def template(self, server):
        nothing = torch.zeros((), dtype=torch.float64)
        arrays = {"change": torch.zeros(2), "evidence": torch.zeros(2), "steps": torch.zeros((), dtype=torch.int64)}
        return ClientUpdate(arrays, {"noise.a": (nothing, nothing)}, counts={"a": 0})

    def is_evidence(self, name):
        return name == "evidence"


def sums(*changes, ratios=None):
    ratios = ratios or [1.0] * len(changes)
    return {
        f"client {i}": ClientUpdate(
            {
                "change": torch.tensor([change, 0.0]),
                "evidence": torch.tensor([1e9 * change, 0.0]),
                "steps": torch.tensor(10**6 * int(change)),
            },
            {"noise.a": (torch.tensor(10 * ratio, dtype=torch.float64), torch.tensor(10.0, dtype=torch.float64))},
            10.0,
            {"a": 10},
        )
        for i, (change, ratio) in enumerate(zip(changes, ratios, strict=True))
    }


def changes(updates):
    return [float(update.arrays["change"][0]) for update in updates.values()]


def test_rules_change_changes_and_leave_evidence_and_whole_numbers_as_they_are():
    sent = sums(1.0, 2.0, 3.0, 0.0, -1000.0)
    found = {rule: prepared(Sums(), {}, sent, rule, 0.25, START) for rule in PARTS}
    assert changes(found["mean"]) == [1.0, 2.0, 3.0, 0.0, -1000.0]
    assert changes(found["clip"]) == [1.0, 2.0, 3.0, 0.0, -4.0]  # the median of those who say something is 2
    assert changes(found["median"]) == [1.5, 1.5, 1.5, 0.0, 1.5]  # who has nothing to say stays silent
    assert changes(found["trimmed"]) == [1.5, 1.5, 1.5, 0.0, 1.5]
    assert changes(found["krum"]) == [1.0, 1.0, 1.0, 0.0, 1.0]
    for updates in found.values():
        for client, update in updates.items():
            for name in ("evidence", "steps"):
                assert update.arrays[name] is sent[client].arrays[name]


def test_the_mean_leaves_every_update_as_it_is():
    sent = sums(1.0, -1e9, ratios=[1.0, 1e9])
    found = prepared(Sums(), {}, sent, "mean", 0.2, START)
    assert all(found[client] is update for client, update in sent.items())


@pytest.mark.parametrize("rule", [rule for rule in PARTS if rule != "mean"])
def test_no_ratio_of_a_statistic_is_above_three_times_the_median(rule):
    sent = sums(1.0, 1.0, 1.0, 1.0, 1.0, ratios=[0.5, 1.0, 1.1, 0.0, 1e4])
    found = prepared(Sums(), {}, sent, rule, 0.2, START)
    totals = [float(update.pooled["noise.a"][0]) for update in found.values()]
    assert totals == pytest.approx([5.0, 10.0, 11.0, 0.0, 30.0])  # the median of those above zero is 1
    assert all(float(update.pooled["noise.a"][1]) == 10 for update in found.values())


def test_a_count_that_is_no_number_of_labels_is_held_to_what_is_usual_per_label():
    class Free(Sums):
        def counted_tasks(self, server, name):
            return None

    sent = sums(1.0, 1.0, 1.0)
    huge = tuple(torch.tensor(value, dtype=torch.float64) for value in (1e12, 1e12))
    sent["client 2"] = replace(sent["client 2"], pooled={"noise.a": huge})
    found = prepared(Free(), {}, sent, "clip", 0.2, START)
    assert [float(x) for x in found["client 2"].pooled["noise.a"]] == pytest.approx([30.0, 30.0])
    assert found["client 0"] is sent["client 0"]


def test_who_has_no_label_is_no_measure_of_what_is_usual_per_label():
    class Free(Sums):
        def counted_tasks(self, server, name):
            return None

    sent = sums(1.0, 1.0, 1.0, 1.0, 1.0)
    for i in (2, 3, 4):
        huge = tuple(torch.tensor(value, dtype=torch.float64) for value in (10.0, 1e6))
        sent[f"client {i}"] = replace(sent[f"client {i}"], pooled={"noise.a": huge}, counts={"a": 0 if i > 2 else 10})
    found = prepared(Free(), {}, sent, "clip", 0.2, START)
    assert [float(update.pooled["noise.a"][1]) for update in found.values()] == [10.0, 10.0, 30.0, 0.0, 0.0]


@pytest.mark.parametrize("factor", [-1000.0, 1000.0])
def test_one_client_moves_the_server_no_further_than_its_shortened_update(factor):
    """FedAvg with one task, and what its server should do by numpy: the mean of updates of at most twice the median."""
    spec, data = federation(7, kinds=("regression",), whole=True)
    options = {"hidden": (4,), "weighting": "uniform"}

    class Poisoned(FedAvg):
        def local(self, state, message, data, stream):
            state, update = super().local(state, message, data, stream)
            if stream.client == "client 3":
                update = replace(update, arrays={n: factor * v for n, v in update.arrays.items()})
            return state, update

    made = Poisoned(**options)
    start = FederationState(0, made.init(spec, START), {})
    after, event = run_round(made, start, data, Settings())
    assert not event["rejected"]
    _, _, honest = run_rounds(FedAvg(**options), spec, data, rounds=1)
    for name in made.template(start.server).arrays:
        sent = np.stack([(factor if c == "client 3" else 1.0) * u.arrays[name].numpy() for c, u in honest.items()])
        norms = np.linalg.norm(sent.reshape(7, -1), axis=1)
        share = np.minimum(1.0, 2 * np.median(norms) / norms)
        moved = after.server[f"theta/{name}"] - start.server[f"theta/{name}"]
        np.testing.assert_allclose(moved, np.mean(sent * share.reshape(-1, *[1] * (sent.ndim - 1)), axis=0), rtol=1e-6)


def test_a_client_that_is_sure_of_itself_does_not_choose_the_head():
    """pFedVEM weighs heads by precision: one that claims to be a million times as sure counts three times, not for all."""
    made, zero = PFedVEM(hidden=()), torch.zeros((), dtype=torch.float64)
    spec, data = federation(4, kinds=("regression",), whole=True)
    server = made.init(spec, START)
    updates = {}
    for i, client in enumerate(data):
        plain = made.template(server)
        head = {"head.0.weight": torch.full_like(plain.arrays["head.0.weight"], 3.0 if i == 3 else 1.0)}
        pooled = {**plain.pooled, "precision/0": (zero + (1e6 if i == 3 else 1.0), zero + 1)}
        counts = {"regression": 8}
        updates[client] = ClientUpdate({**plain.arrays, **head}, pooled, 8.0, counts, plain.metrics)

    def moved(rule):
        after = made.aggregate(server, prepared(made, server, updates, rule, 0.2, START))
        return float((after["theta/head.0.weight"] - server["theta/head.0.weight"]).mean())

    assert moved("mean") == pytest.approx(3.0, abs=1e-5)
    assert moved("clip") == pytest.approx((3 * 1.0 + 3 * 2.0) / 6)  # weight 3 and length 2, after clipping


def test_networks_know_whose_labels_a_noise_counts():
    spec, _ = federation(2, kinds=("regression", "count"))
    made = FedAvg(hidden=())
    assert isinstance(made, Neural)
    server = made.init(spec, START)
    assert made.counted_tasks(server, "regression") == ["regression"]
    assert made.counted_tasks(server, "count") is None
