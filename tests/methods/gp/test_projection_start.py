"""Where projections start: the moments of scores and inputs, by hand; and what the server makes of them in round 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from federations import START
from polyfed import Federation, simulate
from polyfed.engine.validation import validate_updates
from polyfed.errors import ConfigError
from polyfed.gp import Prior, Rows
from polyfed.gp.likelihoods import Bernoulli, Gaussian, OneVsEach
from polyfed.methods import PFedMul
from polyfed.methods.gp.feature_learning import PROJECTION, SPREAD, directions

D, DIMS = 6, 3


def prior_of(outputs, **options):
    return Prior(kernels=["rbf", "rbf"], dims=DIMS, projected=D, outputs=outputs, noise={"pulse": 0.5}, **options)


def test_directions_by_hand():
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal((7, D)), rng.standard_normal((5, D))
    y, sick = rng.standard_normal(4), np.array([1.0, -1.0, 1.0])
    likelihoods = {"pulse": Gaussian(), "sick": Bernoulli()}
    seen = {"pulse": (torch.arange(4), torch.from_numpy(y)), "sick": (torch.arange(4, 7), torch.from_numpy(sick))}
    rows = Rows.of(torch.from_numpy(x), seen, likelihoods)
    others = Rows.of(torch.from_numpy(other), {"pulse": (torch.arange(5), torch.zeros(5))}, likelihoods)
    found = directions(prior_of({"pulse": 1, "sick": 1}), rows, others).numpy()
    centred = x - x.mean(0)
    by_hand = [centred[:4].T @ y / 0.5, centred[4:].T @ sick / 2]  # the scores are y/σ² and y/2
    for b in range(2):
        for j, moment in enumerate(by_hand):
            column = found[:, b * DIMS + j]
            assert column / np.linalg.norm(column) == pytest.approx(moment / np.linalg.norm(moment))
            assert np.std(other @ column * 4 / D) == pytest.approx(1.0)
        assert not found[:, b * DIMS + 2].any()  # there is no third output


def test_a_task_without_labels_or_inputs_to_measure_has_no_direction():
    likelihoods = {"pulse": Gaussian(), "sick": Bernoulli()}
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((4, D)))
    prior = prior_of({"pulse": 1, "sick": 1})
    some = Rows.of(x, {"pulse": (torch.arange(4), torch.arange(4.0, dtype=torch.float64))}, likelihoods)
    none = Rows.of(x[:0], {}, likelihoods)
    assert directions(prior, some, some)[:, 0].abs().min() > 0
    assert not directions(prior, some, some)[:, 1].any()
    for rows, others in ((none, some), (some, none), (none, none)):
        found = directions(prior, rows, others)
        assert found.shape == (D, 2 * DIMS)
        assert not found.any()


def test_more_classes_than_dimensions_are_shared_out_among_the_latents():
    likelihoods = {"pulse": Gaussian(), "stage": OneVsEach(4)}
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((20, D)))
    labels = torch.from_numpy(rng.integers(0, 4, 20).astype(float))
    rows = Rows.of(x, {"stage": (torch.arange(20), labels)}, likelihoods)
    found = directions(prior_of({"pulse": 1, "stage": 4}), rows, rows)
    given = [bool(column.any()) for column in found.T]
    assert given == [False, True, True, True, True, False]


@pytest.fixture(scope="module")
def federation():
    """One of forty inputs tells the pulse and whether somebody is sick."""
    rng = np.random.default_rng(0)
    clients = {}
    for name in "abcdef":
        x = rng.standard_normal((30, 40))
        labels = {"pulse": x[:, 7] + 0.1 * rng.standard_normal(30), "sick": (x[:, 7] > 0).astype(int)}
        clients[name] = (x, labels)
    return Federation.from_clients(clients, {"pulse": "regression", "sick": "binary"})


def projection_after(rounds, federation, **options):
    run = simulate("pfed-mul", federation, rounds=rounds, seed=0, projection=DIMS, **options)
    return run.federation_state.server[f"theta/{PROJECTION}"], run.federation_state.server


def test_round_1_finds_the_direction_and_changes_nothing_else(federation):
    before, server = projection_after(0, federation)
    after, later = projection_after(1, federation)
    assert "starting" in server
    assert "starting" not in later
    changed = (after - before) / SPREAD
    share = changed.square()[7] / changed.square().sum(0)
    assert share[0] > 0.6  # of the first output of the first latent; by chance it would be a fortieth
    assert share[1] > 0.6
    assert not changed[:, 2].any()
    same = {name for name, value in later.items() if torch.equal(value, server[name])}
    assert server.keys() - same == {"starting", f"theta/{PROJECTION}"}


def test_round_1_sends_directions_under_a_name_of_their_own_and_nothing_in_their_place(federation):
    made, prepared = PFedMul(projection=DIMS), federation.prepare(seed=0)
    server, data = made.init(prepared.spec, START), {name: parts.train for name, parts in prepared.clients.items()}
    done = {
        name: made.local(made.start(own, START), made.broadcast(server, name), own, START) for name, own in data.items()
    }
    first, declared = min(done), {name: own.counts() for name, own in data.items()}
    arrays = dict(done[first][1].arrays)
    direction = "direction/features.projection"
    assert direction in arrays
    assert PROJECTION not in arrays
    named_as_a_gradient = {**arrays, PROJECTION: arrays[direction]}
    del named_as_a_gradient[direction]
    for bad in (named_as_a_gradient, {**arrays, direction: arrays[direction] * 1e12}):
        sent = {**done, first: (done[first][0], replace(done[first][1], arrays=bad))}
        assert set(validate_updates(made, server, sent, declared)[1]) == {first}
    assert validate_updates(made, server, done, declared)[1] == {}


def test_a_random_start_and_one_that_is_given_are_left_alone(federation):
    for options in ({"projection_start": "random"}, {"initial": {PROJECTION: 0.5}}):
        _, server = projection_after(0, federation, **options)
        assert "starting" not in server


def test_few_rounds_learn_more_from_it(federation):
    scores = []
    for start in ("moments", "random"):
        run = simulate("pfed-mul", federation, rounds=6, seed=0, projection=DIMS, projection_start=start)
        history = run.history
        last = history[(history["round"] == 6) & (history["part"] == "test") & (history["model"] == "personal")]
        scores.append(last[last["metric"] == "rmse"]["value"].mean())
    assert scores[0] < 0.8 * scores[1]


@pytest.mark.parametrize("options", [{}, {"projection": 2, "mode": "average"}, {"projection": 2, "scheme": ["mixing"]}])
def test_where_no_projection_is_learned_by_its_gradient_there_is_nothing_to_start(options):
    with pytest.raises(ConfigError, match="projection_start is 'moments', and the server learns no projection"):
        PFedMul(projection_start="moments", **options)
    assert not PFedMul(**options)._feature_learning.seeks


def test_above_a_network_it_must_be_asked_for():
    network = {"projection": 2, "network": "torch.nn:Identity"}
    assert not PFedMul(**network)._feature_learning.seeks
    assert PFedMul(**network, projection_start="moments")._feature_learning.seeks
    assert PFedMul(projection=2)._feature_learning.seeks
