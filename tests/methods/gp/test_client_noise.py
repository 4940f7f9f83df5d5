"""Noise levels of their own in a federation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from federations import START, codecs_of, federation, one_round, run_rounds
from polyfed.data import ClientData, FederationSpec
from polyfed.errors import ConfigError
from polyfed.gp import noise_pool
from polyfed.methods import PFedMul, method

NOISE = "noise.regression"
LEVELS = {"calm": 0.05, "usual": 0.3, "busy": 1.0, "also usual": 0.3, "rare": 1.0}


def noisy(n=80, seed=0):
    """The same function everywhere, and noise as of LEVELS; of the last client there are three labels."""
    rng, codecs, data = np.random.default_rng(seed), codecs_of(("regression",)), {}
    for name, level in LEVELS.items():
        x = rng.uniform(-2, 2, (n, 1))
        at = np.arange(3 if name == "rare" else n)
        data[name] = ClientData(
            x, {"regression": (at, (np.sin(2 * x[:, 0]) + level * rng.standard_normal(n))[at])}, codecs
        )
    return FederationSpec(tuple(c.task for c in codecs.values()), 1, tuple(data), codecs), data


@pytest.fixture(scope="module", params=["pfed-mul", "pfed-hier"])
def learned(request):
    spec, data = noisy()
    made = method(request.param, client_noise=True, learning_rate=0.2)
    return made, data, *run_rounds(made, spec, data, rounds=25)


def test_each_client_finds_its_own(learned):
    _, _, server, states, _ = learned
    own = {name: states[name][f"personal/{NOISE}"].exp().sqrt().item() for name in states}
    for name in ("calm", "usual", "busy", "also usual"):
        assert own[name] == pytest.approx(LEVELS[name], rel=0.25)
    common = server[f"pooled/{NOISE}"].exp().sqrt().item()
    assert 0.05 < common < 1.0
    assert abs(np.log(own["rare"] / common)) < abs(np.log(1.0 / common)) + 0.7  # three labels say little


def test_own_noise_is_the_one_that_its_sums_ask_for(learned):
    """The client's value is (S + ν s²)/(n + ν) of what it sent and of what it had been told."""
    made, data, server, states, _ = learned
    states = dict(states)  # they move on
    _, updates = one_round(made, server, states, data)
    for name, update in updates.items():
        reported = server[f"pooled/{NOISE}"], server[f"strength/{NOISE}"]
        wanted = noise_pool.own_log_noise(*update.pooled[NOISE], *reported)
        assert states[name][f"personal/{NOISE}"].item() == pytest.approx(wanted.item(), abs=1e-12)


def test_predictions_have_it(learned):
    made, data, server, states, _ = learned
    std = {}
    for name in ("calm", "busy"):
        read = made.predictor(server, states[name], data[name])(np.array([[0.0]]))["regression"]
        std[name] = read.std[0]
    assert std["calm"] < 0.15
    assert 0.7 < std["busy"] < 1.4


def test_a_client_that_joins_finds_it_too(learned):
    made, data, server, _, _ = learned
    for name in ("calm", "busy"):
        joined = made.join(server, data[name], START)
        assert joined[f"personal/{NOISE}"].exp().sqrt().item() == pytest.approx(LEVELS[name], rel=0.3)
    nothing = replace(data["calm"], labels={})
    assert f"personal/{NOISE}" not in made.join(server, nothing, START)  # the common level, then
    assert (
        made.predictor(server, made.join(server, nothing, START), nothing)(np.array([[0.0]]))["regression"].std[0] > 0
    )


def test_better_than_one_level_for_all():
    """Log density of fresh labels, at twelve labels each."""
    spec, data = noisy(n=12, seed=1)
    _, fresh = noisy(n=80, seed=1)
    found = {}
    for own in (False, True):
        made = PFedMul(client_noise=own, learning_rate=0.2)
        server, states, _ = run_rounds(made, spec, data, rounds=25)
        scores = []
        for name in ("calm", "usual", "busy"):
            x, (at, y) = fresh[name].x, fresh[name].labels["regression"]
            read = made.predictor(server, states[name], data[name])(x)["regression"].take(at)
            scores.append(read.log_density(y).mean())
        found[own] = np.mean(scores)
    assert found[True] > found[False] + 0.1


def test_a_part_of_the_clients_moves_the_server_a_part_of_the_way():
    spec, data = noisy(n=20)
    made = PFedMul(client_noise=True)
    states = {name: made.start(mine, START) for name, mine in data.items()}
    server = made.init(spec, START)
    after, updates = one_round(made, server, states, data, ["calm", "busy"])
    pairs = [updates[name].pooled[NOISE] for name in ("busy", "calm")]
    total, count = (torch.stack([pair[i] for pair in pairs]) for i in (0, 1))
    before = server[f"pooled/{NOISE}"], server[f"strength/{NOISE}"]
    best = noise_pool.pooled(total, count, *before, weight=2 / 5)
    for label, old, new in zip(("pooled", "strength"), before, best, strict=True):
        assert after[f"{label}/{NOISE}"].item() == pytest.approx((old + 0.4 * (new - old)).item(), abs=1e-12)


def test_what_leaves_is_what_left_before():
    spec, data = federation(3)
    _, _, plain = run_rounds(PFedMul(), spec, data, rounds=2)
    _, states, own = run_rounds(PFedMul(client_noise=True), spec, data, rounds=2)
    for name in data:
        assert own[name].arrays.keys() == plain[name].arrays.keys()
        assert own[name].pooled.keys() == plain[name].pooled.keys()
    assert "personal/noise.count" not in states["client 0"]  # a dispersion has no closed form: one for all, as before


def test_with_quasi_newton_the_rest_of_theta_moves():
    spec, data = noisy(n=15)
    made = PFedMul(client_noise=True, optimiser="quasi-newton", theta_prior="weak", learning_rate=0.3)
    server, states, _ = run_rounds(made, spec, data, rounds=12)
    own = {name: states[name][f"personal/{NOISE}"].item() for name in states}
    assert own["calm"] < own["usual"] < own["busy"]
    assert torch.isfinite(server["theta/mixing.regression"]).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "average"}, "client_noise is set, and mode is 'average'"),
        ({"scheme": "W"}, "client_noise is set, and the noise is not shared"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(ConfigError) as error:
        PFedMul(client_noise=True, **options)
    assert text in str(error.value)
