"""The paper's synthetic study over ten seeds: what is gained by modelling both tasks together, and how sure it may be."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import polyfed as pf
from polyfed.data.datasets import load_dataset
from polyfed.gp import ExactModel, infer
from polyfed.methods import PFedMul
from polyfed.methods.gp.model import prepared_rows
from polyfed.seeds import Stream

SEEDS = range(10)
TASKS = ("regression", "classification")
# The paper starts from the values that made the data; pFed-St has no second task to mix with.
KERNELS = {
    "kernels.0.log_amplitude": 0.0,
    "kernels.1.log_amplitude": log(2.0),
    "kernels.0.log_phi1": log(0.02),
    "kernels.1.log_phi1": log(0.01),
}
MIXING = {"mixing.regression": [[0.6, 0.4]], "mixing.classification": [[0.4, 0.6]], "noise.regression": log(0.1)}
PROTOCOL = {"rounds": 20, "mode": "average", "mf_steps": 2, "local_steps": 2, "learning_rate": 1e-3}


def against_the_truth(run, federation):
    """Task → (squared error, variance, coverage of the 95 % interval) of the latent functions, mean over the clients."""
    found = {task: [] for task in TASKS}
    for client, truth in federation.truth.items():
        predicted = run.client(client).predict(truth["x"])
        for task in TASKS:
            error, sd = predicted[task].latent_mean - truth[task], predicted[task].latent_std
            found[task].append([(error**2).mean(), (sd**2).mean(), (np.abs(error) < 1.96 * sd).mean()])
    return {task: np.mean(rows, axis=0) for task, rows in found.items()}


@pytest.mark.slow
def test_both_tasks_together_fit_better_are_surer_and_cover_what_they_promise():
    rows = {(method, task): [] for method in ("pfed-mul", "pfed-st") for task in TASKS}
    for seed in SEEDS:
        federation = load_dataset("synthetic", seed=seed).with_options(scaling="none")
        for method, initial in (("pfed-mul", KERNELS | MIXING), ("pfed-st", KERNELS)):
            run = pf.simulate(method, federation, seed=seed, evaluate_every=100, initial=initial, **PROTOCOL)
            for task, figures in against_the_truth(run, federation).items():
                rows[method, task].append(figures)
    for task in TASKS:
        together, alone = (np.mean(rows[method, task], axis=0) for method in ("pfed-mul", "pfed-st"))
        assert together[0] < alone[0]
        assert together[1] < alone[1]
        assert 0.92 <= together[2] <= 0.98
        if task == "classification":  # where the paper sees most of the gain
            assert together[0] < 0.5 * alone[0]


@pytest.mark.slow
@pytest.mark.parametrize("lost", TASKS)
def test_a_client_without_a_label_of_a_task_predicts_it_better_than_the_prior(lost):
    """All labels of one task are taken from one client; the others know how the tasks hang together."""
    errors = []
    for seed in SEEDS:
        federation = load_dataset("synthetic", seed=seed)
        study = federation.prepare(seed)
        parts = study.clients["client 1"]
        train = type(parts.train)(
            parts.train.x, {t: pair for t, pair in parts.train.labels.items() if t != lost}, parts.train.codecs
        )
        study.clients["client 1"] = type(parts)(train, parts.validation, parts.test)
        run = pf.simulate("pfed-mul", study, rounds=30, seed=seed, evaluate_every=100)
        truth = federation.truth["client 1"]
        predicted = run.client("client 1").predict(truth["x"])[lost].latent_mean
        prior_mean = study.spec.codecs[lost].shift
        errors.append([((guess - truth[lost]) ** 2).mean() for guess in (predicted, prior_mean)])
    ours, priors = np.transpose(errors)
    assert ours.mean() < 0.75 * priors.mean()
    assert (ours < priors).sum() >= 8


# ---- from a cold start -----------------------------------------------------------------------------------------------


def average_bound(study):
    """Θ as a flat vector → the mean of the clients' converged bounds and its gradient, all data in one place."""
    method = PFedMul()
    data = [parts.train for parts in study.clients.values()]
    model = method.model(data[0])
    first = model.initial_values(Stream(0, "start"))
    rows = [prepared_rows(mine, model.likelihoods) for mine in data]

    def flat(values):
        return np.concatenate([values[name].reshape(-1).numpy() for name in first])

    def evaluate(vector):
        pieces = torch.from_numpy(vector.copy()).split([value.numel() for value in first.values()])
        values = {name: piece.reshape(first[name].shape) for name, piece in zip(first, pieces, strict=True)}
        total, slope = 0.0, np.zeros_like(vector)
        for client in rows:
            prior = model.prior.with_values(values)
            gp = ExactModel(prior, client)
            bound = gp.bound(infer(gp, tolerance=1e-7).q)
            grads = torch.autograd.grad(bound, [prior.parameters[name] for name in first])
            total += bound.item() / len(rows)
            slope += np.concatenate([g.reshape(-1).numpy() for g in grads]) / len(rows)
        return -total, -slope

    return flat, flat(first), evaluate


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gradient_mode_reaches_the_optimum_of_the_average_bound(seed):
    study = load_dataset("synthetic", seed=seed).prepare(seed)
    flat, first, evaluate = average_bound(study)
    best = -minimize(evaluate, first, jac=True, method="L-BFGS-B", options={"maxiter": 150}).fun
    run = pf.simulate("pfed-mul", study, rounds=60, seed=seed, evaluate_every=100)
    server = {
        name.partition("/")[2]: value for name, value in run.federation_state.server.items() if "adam" not in name
    }
    assert -evaluate(flat(server))[0] > best - 1.0
    assert -evaluate(first)[0] < best - 5.0  # there was something to learn
