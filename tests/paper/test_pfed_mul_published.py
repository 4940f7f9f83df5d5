"""pFed-Mul as the authors' code has it: each difference to the paper by itself, against dense algebra with explicit inverses.

The numbers in the names of the tests are those of docs/published-code.md.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import log, pi, sqrt, tanh
from pathlib import Path

import numpy as np
import pytest
import torch

import polyfed as pf
from federations import START, client, codecs_of, federation, my_networks, normed, run_rounds
from polyfed.data import ClientData, FederationSpec, LabelCodec, Task
from polyfed.data.datasets import load_dataset
from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, infer
from polyfed.methods import PFedMul, method
from polyfed.methods.checks import check_method
from polyfed.modelling.rows import rows_of
from polyfed.paper.pfed_mul_published import Objective, PFedMulPublished, adamw_step, mean_field, mini_batches
from polyfed.seeds import Stream

KINDS = ("regression", "binary")
PHI = [(1.3, 0.7), (0.6, 2.0)]
W = np.array([[0.8, 0.3], [-0.2, 0.9]])
SIGMA2 = 0.3
TRUTH = {
    **{f"kernels.{b}.log_amplitude": log(phi0) for b, (phi0, _) in enumerate(PHI)},
    **{f"kernels.{b}.log_phi1": log(phi1) for b, (_, phi1) in enumerate(PHI)},
    "mixing.regression": W[:1].tolist(),
    "mixing.binary": W[1:].tolist(),
    "noise.regression": log(SIGMA2),
}
LOCAL = Stream(0, "local", 1, "client 0")


def spec_of(data):
    return FederationSpec(
        tuple(codec.task for codec in data.codecs.values()), data.n_features, ("client 0",), data.codecs
    )


def both(n=7, seed=3):
    """One client with other inputs for each of its two tasks; as many labels of each."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (2 * n, 1))
    seen = {
        "regression": (np.arange(n), np.sin(x[:n, 0]) + 0.3 * rng.standard_normal(n)),
        "binary": (np.arange(n, 2 * n), np.where(rng.random(n) < 0.5, -1.0, 1.0)),
    }
    return ClientData(x, seen, codecs_of(KINDS))


def one_label(kind, y, x=0.0):
    return ClientData(np.array([[x]]), {kind: (np.arange(1), np.array([y]))}, codecs_of(KINDS))


def made(**options):
    return PFedMulPublished(initial=TRUTH, **options)


def prior_at(data, values=None):
    model = made().model(data)
    return model, model.prior.with_values({**model.initial_values(START), **(values or {})})


# ---- dense: all of it once more, with K⁻¹ -------------------------------------------------------------------------------


def kernel(a, b, task_a, task_b, phi=PHI, mixing=W):
    squares = ((a[:, None] - b[None]) ** 2).sum(-1)
    parts = [phi0 * np.exp(-0.5 * phi1 * squares) for phi0, phi1 in phi]
    return sum(np.outer(mixing[task_a, k], mixing[task_b, k]) * part for k, part in enumerate(parts))


def dense(data, steps=2, phi=PHI, mixing=W, E_omega=None):
    """The terms of the objective for one mini-batch, by the formulas of the paper's appendix wherever they are used."""
    tasks = [KINDS.index(t) for t in KINDS for _ in data.labels.get(t, ((), ()))[1]]
    x = np.concatenate([data.x[data.labels[t][0]] for t in KINDS if t in data.labels])
    y = np.concatenate([data.labels[t][1] for t in KINDS if t in data.labels])
    reg = np.array(tasks) == 0
    K = kernel(x, x, tasks, tasks, phi, mixing) + 2e-3 * np.eye(len(x))
    m, S, omega = np.zeros(len(x)), np.eye(len(x)), np.zeros(len(x))
    for _ in range(steps):
        c = np.sqrt(m**2 + np.diag(S) + np.diag(K))
        omega = np.tanh(c / 2) / (2 * c) if E_omega is None else E_omega
        h = np.where(reg, 1 / SIGMA2, omega)
        S = np.linalg.inv(np.diag(h) + np.linalg.inv(K))
        m = S @ np.where(reg, y / SIGMA2, y / 2)
    square, prior_square = m**2 + np.diag(S), np.diag(K)
    errors = (y**2 - 2 * y * m + square)[reg]
    sigma2 = max(errors.mean(), 1e-2) if reg.any() else 1.0
    K_inv = np.linalg.inv(K)
    kl_f = 0.5 * (np.linalg.slogdet(K)[1] - np.linalg.slogdet(S)[1] - len(x) + np.trace(K_inv @ S) + m @ K_inv @ m)
    mixed = (
        np.log(np.cosh(np.sqrt(square) / 2) / np.cosh(np.sqrt(prior_square) / 2)) + omega * (prior_square - square) / 2
    )
    return {
        "kl_f": kl_f,
        "kl_omega": mixed[~reg].sum(),
        "regression": (-0.5 * np.log(2 * pi * sigma2) - errors / (2 * sigma2)).sum(),
        "classification": (y * m / 2 - omega * square / 2 - log(2))[~reg].sum(),
        "sigma2": sigma2,
        "omega": omega,
        "m": m,
        "v": np.diag(S),
    }


def published(data, kl_weight, regression_weight, steps=2):
    model, prior = prior_at(data)
    value, noise = Objective(kl_weight, regression_weight, steps)(prior, rows_of(data, model.likelihoods))
    return float(value.detach()), noise


# ---- inference and objective ---------------------------------------------------------------------------------------------


def test_1_the_prior_of_omega_has_the_second_moment_of_the_prior_in_training():
    """One label, one step: c² = Σ + K = 1 + K."""
    data = one_label("binary", 1.0)
    model, prior = prior_at(data)
    rows = rows_of(data, model.likelihoods)
    k = W[1, 0] ** 2 * PHI[0][0] + W[1, 1] ** 2 * PHI[1][0] + 2e-3
    c = sqrt(1 + k)
    value, _ = Objective(0.0, 0.0, 1)(prior, rows)
    h = tanh(c / 2) / (2 * c)
    v = 1 / (1 / k + h)
    m = v / 2
    assert float(value.detach()) == pytest.approx(-(m / 2 - h * (m**2 + v) / 2 - log(2)), abs=1e-12)


def test_1_and_none_in_the_first_pass_of_a_prediction():
    """One label, one step each time: c² = 1 at first, then 1 + E[f²] of the first time."""
    data = one_label("binary", 1.0)
    k = W[1, 0] ** 2 * PHI[0][0] + W[1, 1] ** 2 * PHI[1][0]
    h1 = tanh(0.5) / 2
    v1 = 1 / (1 / (k + 2e-3) + h1)
    m1 = v1 / 2
    c2 = sqrt(1 + m1**2 + v1)
    h2 = tanh(c2 / 2) / (2 * c2)
    v2 = 1 / (1 / v1 + h2)
    m2 = v2 * (m1 / v1 + 0.5)
    share = k / (k + 2e-3)  # k*ᵀ K⁻¹ of a test input that is the training input
    method = made(mf_steps=1)
    p = method.predictor(method.init(spec_of(data), START), None, data)(data.x)["binary"]
    assert p.latent_mean[0] == pytest.approx(share * m2, abs=1e-12)
    assert p.latent_std[0] ** 2 == pytest.approx(k + 2e-3 - share * k + share**2 * v2, abs=1e-12)


def test_2_the_kl_of_omega_mixes_three_moments_and_may_be_negative():
    found = []
    for data in [one_label("binary", 1.0), *(both(seed=seed) for seed in range(4))]:
        parts = dense(data)
        kl = published(data, 1.0, 0.0)[0] - published(data, 0.0, 0.0)[0]
        assert kl - parts["kl_f"] == pytest.approx(parts["kl_omega"], abs=1e-10)
        found.append(kl - parts["kl_f"])
    assert min(found) < 0  # so it is not a divergence at all


@pytest.mark.parametrize(("kl_weight", "regression_weight"), [(0.1, 0.5), (0.05, 0.05), (1.0, 1.0)])
def test_3_the_terms_are_weighted(kl_weight, regression_weight):
    parts = dense(both())
    expected = kl_weight * (parts["kl_f"] + parts["kl_omega"]) - regression_weight * parts["regression"]
    value, _ = published(both(), kl_weight, regression_weight)
    assert value == pytest.approx(expected - parts["classification"], abs=1e-10)
    options = PFedMulPublished()
    assert (options.kl_weight, options.regression_weight) == (0.1, 0.5)


def test_4_the_gradient_goes_through_m_and_sigma_but_not_through_omega():
    """Against finite differences of the dense objective with E[ω] held fixed."""
    data = both()
    model, prior = prior_at(data)
    value, _ = Objective(0.1, 0.5, 2)(prior, rows_of(data, model.likelihoods))
    names = ["kernels.0.log_amplitude", "kernels.1.log_phi1", "mixing.regression", "mixing.binary"]
    found = torch.autograd.grad(value, [prior.parameters[name] for name in names])
    at = dense(data)

    def objective(phi=PHI, mixing=W, E_omega=at["omega"]):
        # σ² is held fixed too: it was found without a graph.
        parts = dense(data, phi=phi, mixing=mixing, E_omega=E_omega)
        y, n = data.labels["regression"][1], 7
        errors = (y**2 - 2 * y * parts["m"][:n] + parts["m"][:n] ** 2 + parts["v"][:n]).sum()
        regression = -0.5 * n * log(2 * pi * at["sigma2"]) - errors / (2 * at["sigma2"])
        return 0.1 * (parts["kl_f"] + parts["kl_omega"]) - 0.5 * regression - parts["classification"]

    def slope(change, eps=1e-5):
        return (objective(**change(eps)) - objective(**change(-eps))) / (2 * eps)

    def mixing(i, b):
        return lambda eps: {"mixing": W + eps * np.eye(2)[i][:, None] * np.eye(2)[b]}

    amplitude = slope(lambda eps: {"phi": [(PHI[0][0] * np.exp(eps), PHI[0][1]), PHI[1]]})
    length = slope(lambda eps: {"phi": [PHI[0], (PHI[1][0], PHI[1][1] * np.exp(eps))]})
    assert found[0].item() == pytest.approx(amplitude, rel=1e-6)
    assert found[1].item() == pytest.approx(length, rel=1e-6)
    for i in (0, 1):
        np.testing.assert_allclose(found[2 + i][0], [slope(mixing(i, b)) for b in (0, 1)], rtol=1e-6)
    moving = slope(lambda eps: {"phi": [(PHI[0][0] * np.exp(eps), PHI[0][1]), PHI[1]], "E_omega": None})
    assert abs(moving / amplitude - 1) > 1e-3  # with E[ω] moving along, it would be another gradient


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_5_so_many_steps_from_a_standard_normal(steps):
    data = both()
    model, prior = prior_at(data)
    rows = rows_of(data, model.likelihoods)
    K = ExactModel(prior, rows).K.detach() + 2e-3 * torch.eye(14)
    q = mean_field(prior, rows, K, K.diagonal(), steps, None)
    expected = dense(data, steps=steps)
    np.testing.assert_allclose(q.m, expected["m"], atol=1e-12)
    np.testing.assert_allclose(q.v, expected["v"], atol=1e-12)
    assert PFedMulPublished().mf_steps == 2


def test_5_nothing_is_remembered_from_round_to_round():
    spec, data = federation(2, kinds=KINDS)
    _, states, _ = run_rounds(made(scheme="K"), spec, data, rounds=3)
    assert {name.partition(".")[0] for name in states["client 0"]} == {"personal/mixing", "personal/noise"}


# ---- mini-batches --------------------------------------------------------------------------------------------------------


def test_6_mini_batches_end_with_the_shortest_task():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((150, 2)), rng.standard_normal(150)
    seen = {"regression": (np.arange(50), y[:50]), "binary": (np.arange(50, 150), y[50:])}
    data = ClientData(x, seen, codecs_of(KINDS))
    batches = list(mini_batches(data, 32, np.random.default_rng(1)))
    assert [batch.counts() for batch in batches] == [{"regression": 32, "binary": 32}, {"regression": 18, "binary": 32}]
    for task, n in (("regression", 50), ("binary", 64)):  # none twice; 36 labels of the longer task are left out
        pairs = {(*batch.x[i], label) for batch in batches for i, label in zip(*batch.labels[task], strict=True)}
        assert len(pairs) == n
        assert pairs <= {(*x[i], label) for i, label in zip(*seen[task], strict=True)}
    again = list(mini_batches(data, 32, np.random.default_rng(2)))
    assert not np.array_equal(again[0].x, batches[0].x)


def test_6_a_mini_batch_is_not_scaled_up():
    """What a round reports is minus the sum of the objective over the mini-batches of its last pass, as they are."""
    data = both(n=6)
    tiny = made(batch=3, local_steps=1, learning_rate=1e-12)
    _, _, updates = run_rounds(tiny, spec_of(data), {"client 0": data}, rounds=1)
    batches = list(mini_batches(data, 3, LOCAL.numpy()))
    assert len(batches) == 2
    first = dense(batches[0])
    total = 0.1 * (first["kl_f"] + first["kl_omega"]) - 0.5 * first["regression"] - first["classification"]
    model, prior = prior_at(data, {"noise.regression": torch.tensor(log(first["sigma2"]), dtype=torch.float64)})
    value, _ = Objective(0.1, 0.5, 2)(prior, rows_of(batches[1], model.likelihoods))
    assert updates["client 0"].metrics["bound"] == pytest.approx(-(total + float(value.detach())), rel=1e-9)


# ---- the step ------------------------------------------------------------------------------------------------------------


def test_9_noise_comes_from_the_mini_batch_and_serves_its_objective():
    data = both()
    expected = dense(data)
    _, noise = published(data, 0.1, 0.5)
    assert float(noise["regression"]) == pytest.approx(expected["sigma2"], rel=1e-12)
    value, _ = published(data, 0.0, 1.0)
    assert value == pytest.approx(-expected["regression"] - expected["classification"], rel=1e-10)
    zero = ClientData(data.x, {"regression": (np.arange(14), np.zeros(14))}, data.codecs)
    server, _, _ = run_rounds(made(), spec_of(zero), {"client 0": zero}, rounds=30)
    assert np.exp(float(server["pooled/noise.regression"])) == pytest.approx(1e-2, rel=1e-12)


def test_9_the_server_averages_the_noise_of_those_who_have_the_task():
    data = {"a": both(4, seed=1), "b": both(9, seed=2), "c": one_label("binary", 1.0)}
    server, _, updates = run_rounds(made(learning_rate=1e-12, local_steps=1), spec_of(data["a"]), data, rounds=1)
    expected = np.mean([dense(data[name])["sigma2"] for name in ("a", "b")])
    assert np.exp(float(server["pooled/noise.regression"])) == pytest.approx(expected, rel=1e-9)
    assert updates["c"].pooled["noise.regression"] == (0, 0)


RATES = {"features": 0.01, "kernels": 0.01, "mixing": 0.02, "noise": 1.0}


@pytest.mark.parametrize("gradient", [1e-8, 1e-3, 3.0, -500.0])
def test_11_a_step_is_the_sign_of_the_gradient_whatever_its_size(gradient):
    """... of φ itself, but for AdamW's ε = 1e-8; the decay comes before."""
    two, half = (torch.tensor([value], dtype=torch.float64) for value in (2.0, 0.5))
    values = {"kernels.0.log_phi1": two.log(), "mixing.a": half}
    after = adamw_step(values, {"kernels.0.log_phi1": two * gradient, "mixing.a": 0 * half + gradient}, RATES, 1e-2)
    sign = gradient / (abs(gradient) + 1e-8)
    assert after["kernels.0.log_phi1"].exp().item() == pytest.approx(2.0 * (1 - 1e-4) - 0.01 * sign, abs=1e-12)
    assert after["mixing.a"].item() == pytest.approx(0.5 * (1 - 2e-4) - 0.02 * sign, abs=1e-12)


def test_11_every_mini_batch_has_a_new_optimiser():
    """Four steps of the same size, in one direction or the other: an optimiser that remembers would vary them."""
    data = both(n=6)
    method = made(batch=3, local_steps=2, learning_rate=1e-4)
    server = method.init(spec_of(data), START)
    _, update = method.local({}, method.broadcast(server, "client 0"), data, LOCAL)
    for name in ("mixing.regression", "mixing.binary"):
        steps = update.arrays[name] / 1e-4
        np.testing.assert_allclose(steps, 2 * (steps / 2).round(), atol=0.05)  # the rest is decay: 4 · 1e-2 · W


def test_10_phi_and_w_decay_and_phi_is_cut_off():
    values = {
        "kernels.0.log_amplitude": torch.tensor(log(3.0), dtype=torch.float64),
        "kernels.0.log_phi1": torch.tensor([log(0.004)], dtype=torch.float64),
        "mixing.a": torch.tensor([[0.5, -2.0]], dtype=torch.float64),
    }
    still = adamw_step(values, {name: torch.zeros_like(value) for name, value in values.items()}, RATES, 1e-2)
    assert still["kernels.0.log_amplitude"].exp().item() == pytest.approx(3.0 * (1 - 1e-4), rel=1e-12)
    np.testing.assert_allclose(still["mixing.a"], [[0.5 * (1 - 2e-4), -2.0 * (1 - 2e-4)]], rtol=1e-12)
    down = adamw_step(values, {name: torch.ones_like(value) for name, value in values.items()}, RATES, 1e-2)
    assert down["kernels.0.log_phi1"].exp().item() == pytest.approx(1e-5, rel=1e-12)
    assert PFedMulPublished().weight_decay == 1e-2


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", 3.0), ("samples", 3.5)])
def test_10_the_server_averages_phi_and_not_its_logarithm(weighting, expected):
    """Of 2 and 4, from clients with one label and with three."""
    method = made(weighting=weighting)
    server = method.init(spec_of(both()), START)
    empty = method.template(server)
    name = "kernels.0.log_phi1"

    def update(phi, weight):
        arrays = {n: torch.zeros_like(v) for n, v in empty.arrays.items()} | {name: log(phi) - server[f"theta/{name}"]}
        return replace(empty, arrays=arrays, weight=weight)

    after = method.aggregate(server, {"a": update(2.0, 1.0), "b": update(4.0, 3.0)})
    assert after[f"theta/{name}"].exp().item() == pytest.approx(expected, rel=1e-12)
    assert all(torch.equal(value, server[n]) for n, value in after.items() if "mixing" in n)


# ---- predictions ---------------------------------------------------------------------------------------------------------


def test_7_every_label_counts_twice():
    """Regression: the posterior of a data set in which each label stands twice, which is that of half the noise."""
    data = both()
    data = ClientData(data.x, {"regression": data.labels["regression"]}, data.codecs)
    method = made()
    new = np.linspace(-2, 2, 5)[:, None]
    p = method.predictor(method.init(spec_of(data), START), None, data)(new)
    x, y = data.x[:7], data.labels["regression"][1]
    A = kernel(x, x, [0] * 7, [0] * 7) + 2e-3 * np.eye(7)
    twice = np.kron(np.eye(7), np.ones((2, 1)))  # each f is seen by two labels
    B_inv = np.linalg.inv(twice @ A @ twice.T + SIGMA2 * np.eye(14))
    for i, task in enumerate(KINDS):
        cross = kernel(new, x, [i] * 5, [0] * 7) @ twice.T
        prior = np.diag(kernel(new, new, [i] * 5, [i] * 5)) + 2e-3
        np.testing.assert_allclose(p[task].latent_mean, cross @ B_inv @ np.repeat(y, 2), atol=1e-10)
        np.testing.assert_allclose(p[task].latent_std ** 2, prior - np.diag(cross @ B_inv @ cross.T), atol=1e-10)


def test_7_predictions_are_surer_than_they_should_be():
    data = both(20)
    new = np.linspace(-2, 2, 20)[:, None]
    sure, right = (
        m.predictor(m.init(spec_of(data), START), None, data)(new)
        for m in (made(), PFedMul(initial=TRUTH, mode="average"))
    )
    for task in KINDS:
        ratio = (sure[task].latent_std / right[task].latent_std) ** 2
        assert 0.4 < ratio.mean() < 0.85


def test_8_jitter():
    """Beside one label of little noise, where it shows; and on the variance where nothing is known."""
    data = one_label("regression", 2.0)
    method = PFedMulPublished(initial=TRUTH | {"noise.regression": log(1e-2)})
    p = method.predictor(method.init(spec_of(data), START), None, data)(np.array([[0.0], [100.0]]))["regression"]
    k = W[0, 0] ** 2 * PHI[0][0] + W[0, 1] ** 2 * PHI[1][0]
    assert p.latent_mean[0] == pytest.approx(2.0 * k / (k + 2e-3 + 5e-3), abs=1e-12)
    assert p.latent_std[1] ** 2 == pytest.approx(k + 2e-3, abs=1e-12)


# ---- as a method ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"scheme": "K"}, {"projection": 2, "scheme": "N"}])
def test_it_keeps_to_the_contract_with_any_scheme(options):
    check_method(PFedMulPublished(batch=4, join_steps=2, **options))


def test_features_are_learned_at_a_tenth_of_the_rate():
    spec, data = federation(1, kinds=KINDS)
    method = PFedMulPublished(projection=2, learning_rate=1e-3, local_steps=1)
    _, _, updates = run_rounds(method, spec, data, rounds=1)
    steps = updates["client 0"].arrays["features.projection"]
    assert 0.9e-4 < steps.abs().median() < 1.1e-4
    partly = PFedMulPublished(projection=2, learning_rate={"features": 0.01}, local_steps=1)
    _, _, updates = run_rounds(partly, spec, data, rounds=1)
    assert 0.9e-2 < updates["client 0"].arrays["features.projection"].abs().median() < 1.1e-2
    assert updates["client 0"].arrays["mixing.binary"].abs().max() < 1.1e-3


def test_a_network_is_learned_in_its_own_precision(monkeypatch):
    my_networks(monkeypatch, normed=normed)
    spec, data = federation(1, kinds=KINDS)
    server, _, updates = run_rounds(PFedMulPublished(network="my_networks:normed", local_steps=1), spec, data, rounds=1)
    moved = updates["client 0"].arrays["features.0.weight"]
    assert moved.dtype == server["theta/features.0.weight"].dtype == torch.float32
    assert 0 < moved.abs().max() < 1.1e-4


def test_a_newcomer_learns_what_is_personal_and_no_more():
    spec, data = federation(2, kinds=KINDS, whole=True)
    method = made(scheme="K", learning_rate=0.01)
    server, _, _ = run_rounds(method, spec, data, rounds=1)
    state = method.join(server, client(np.random.default_rng(4), 10, kinds=KINDS), Stream(0, "join"))
    assert set(state) == {"personal/mixing.regression", "personal/mixing.binary", "personal/noise.regression"}
    assert (state["personal/mixing.binary"] - server["initial/mixing.binary"]).abs().max() > 0.05


def test_a_run_from_the_outside_is_the_same_again_and_another_with_another_seed(tmp_path):
    federation = load_dataset("synthetic", n_clients=2)
    a, b, c = (pf.simulate("pfed-mul-published", federation, rounds=2, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(value, b.federation_state.server[name]) for name, value in a.federation_state.server.items())
    assert any(
        not torch.equal(value, c.federation_state.server[name]) for name, value in a.federation_state.server.items()
    )
    a.save(tmp_path / "run")
    again = pf.load(tmp_path / "run").resume(3)
    assert all(
        torch.equal(value, again.federation_state.server[name])
        for name, value in a.resume(3).federation_state.server.items()
    )
    assert np.isfinite(
        a.join("new", {"regression": ([[1.0], [2.0]], [0.1, 0.2])}).predict([[1.5]])["classification"].proba
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"mode": "gradient"},
            "mode is 'gradient', and the published code averages; leave it out, or choose the method",
        ),
        (
            {"inducing": 10},
            "inducing is 10, and the published code has no such option; leave it out, or choose the method",
        ),
        ({"inducing_method": "uniform"}, "inducing_method is 'uniform', and the published code has no such option"),
        ({"bound": "gaussian"}, "bound is 'gaussian', and the published code has no such option"),
        ({"proximal": 0.1}, "proximal is 0.1, and the published code has no such option"),
        ({"tolerance": 1e-3}, "tolerance is 0.001, and the published code has no such option"),
        ({"kl_weight": -1}, "kl_weight is -1; give a number from 0 up."),
        ({"regression_weight": "half"}, "regression_weight is 'half'; give a number from 0 up."),
        ({"batch": 0}, "batch is 0; give a whole number from 1 up."),
        ({"learning_rate": {"kernel": 0.1}}, "learning_rate names 'kernel'; did you mean 'kernels'?"),
    ],
)
def test_options_that_are_rejected(options, text):
    with pytest.raises(ConfigError) as error:
        method("pfed-mul-published", **options)
    assert text in str(error.value)


@pytest.mark.parametrize("kind", ["multiclass", "count", "robust", "proportion"])
def test_kinds_of_tasks_that_are_rejected(kind):
    spec, data = federation(1, kinds=("regression", kind))
    sentence = (
        f"method 'pfed-mul-published': task '{kind}' is of kind '{kind}', and the published code has regression and"
        " binary tasks alone; leave the task out, or choose the method 'pfed-mul'."
    )
    for rejected in (lambda m: m.init(spec, START), lambda m: m.start(data["client 0"], START)):
        with pytest.raises(ConfigError) as error:
            rejected(PFedMulPublished())
        assert str(error.value) == sentence


def test_a_power_of_a_likelihood_is_rejected():
    codecs = {"a": LabelCodec(Task("a", power=0.5), None, 0.0, 1.0)}
    with pytest.raises(ConfigError, match=r"task 'a' has power 0\.5, and the published code has none; set kl_weight"):
        PFedMulPublished().init(FederationSpec((codecs["a"].task,), 1, ("c",), codecs), START)


def test_the_example_of_the_page_runs(capsys):
    page = Path(__file__).resolve().parents[2] / "docs" / "published-code.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    exec(code, {})
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_two_steps_are_not_where_inference_ends():
    """What is kept of the published code is not what pFed-Mul does: the E-step there goes on until nothing moves."""
    data = both(20)
    model, prior = prior_at(data)
    rows = rows_of(data, model.likelihoods)
    gp = ExactModel(prior, rows)
    q = mean_field(prior, rows, gp.K.detach(), torch.zeros(40, dtype=torch.float64), 2, None)
    assert (q.m - infer(gp, tolerance=1e-12).q.m).abs().max() > 1e-4
