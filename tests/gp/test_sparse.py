"""The sparse posterior: the exact one where Z is all inputs, below it elsewhere, and the same whatever the chunks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from polyfed.gp import Posterior, infer, predict_latents, sparse
from polyfed.gp.inducing import METHODS, choose_inducing
from polyfed.gp.latent_sparse import SparseModel
from polyfed.gp.sparse import InducingModel, PaperSparseModel
from problems import KINDS, Problem, assert_same, build, law, normal, problems, run

MIXED = list(KINDS)


def converge(model, start: tuple[Tensor, Tensor] | None = None) -> Posterior:
    return infer(model, start=start, tolerance=1e-12, max_steps=500)


def sparse_model(problem: Problem, M: int | None = None, method: str = "greedy") -> SparseModel:
    rows = problem.rows()
    Z = problem.x if M is None else choose_inducing(problem.prior, rows, M, method=method)
    return SparseModel(problem.prior, rows, Z)


def gradients(model, posterior: Posterior) -> dict[str, Tensor]:
    parameters = model.prior.parameters
    return dict(zip(parameters, torch.autograd.grad(model.bound(posterior.q), list(parameters.values())), strict=True))


# ---- Z = all inputs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("kernels", [("rbf", "matern52"), ("laplace", "linear", "cauchy")])
def test_with_all_inputs_it_is_the_exact_posterior(kernels, bound):
    problem = build(MIXED, seed=1, kernels=kernels, bound=bound)
    exact, model = problem.model(), sparse_model(problem)
    a, b = converge(exact), converge(model)
    torch.testing.assert_close(b.q.m, a.q.m, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(b.q.v, a.q.v, rtol=1e-6, atol=1e-6)
    assert b.bound == pytest.approx(a.bound, abs=1e-6)
    assert b.q.certificate.item() == pytest.approx(0.0, abs=1e-6)
    new = normal(np.random.default_rng(0), 6, 2)
    assert_same(predict_latents(model, b.q, new), predict_latents(exact, a.q, new), 1e-6)
    expected = gradients(exact, a)
    for name, gradient in gradients(model, b).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1e4])
def test_with_all_inputs_the_bound_holds_for_any_noise(noise):
    problem = build(["gaussian", "gaussian"], seed=2, kernels=["laplace", "laplace"])
    logs = {name: torch.full_like(v, np.log(noise)) for name, v in problem.prior.group("noise").items()}
    problem.prior.load(logs)
    exact, model = infer(problem.model()), sparse_model(problem)
    # The jitter of k(Z, Z) is noise too, 1e-8 of the amplitude: beside it σ² must be large to agree to more digits.
    assert infer(model).bound == pytest.approx(exact.bound, rel=max(1e-6, 1e-7 / noise))


# ---- fewer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(), M=st.integers(1, 6))
@law(25)
def test_the_bound_is_never_above_the_exact_one(method, problem, M):
    model = sparse_model(problem, M, method)
    posterior = converge(model)
    # Some likelihoods have several optima; from the sparse posterior the exact one can only go up.
    exact = converge(problem.model(), posterior.marginals)
    assert posterior.bound <= exact.bound + 1e-7 * (1.0 + abs(exact.bound))


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_rises_with_nested_inducing_inputs(seed):
    problem = build(["gaussian", "bernoulli", "one-vs-each"], seed=seed, sizes=12)
    bounds = [converge(sparse_model(problem, M)).bound for M in (1, 2, 4, 8, 12)]
    assert all(b >= a - 1e-7 for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("model_class", [SparseModel, PaperSparseModel])
@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
def test_the_bound_never_falls_over_steps(model_class, bound):
    problem = build(MIXED, seed=3, bound=bound)
    bounds = infer(model_class(problem.prior, problem.rows(), problem.x[:4])).bounds
    assert len(bounds) > 2
    assert all(b >= a - 1e-9 * (1.0 + abs(a)) for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    ("model_class", "kinds", "options"),
    [
        (SparseModel, ["gaussian", "bernoulli", "student-t"], {}),
        (SparseModel, ["one-vs-each", "negative-binomial"], {"per_dimension": True}),
        (SparseModel, ["logistic-softmax", "binomial"], {"kernels": ["linear", "matern32"]}),
        (SparseModel, ["gaussian", "bernoulli"], {"bound": "gaussian", "features": True}),
        (PaperSparseModel, ["gaussian", "bernoulli"], {}),
    ],
)
def test_the_gradient_is_that_of_the_bound_inferred_anew(model_class, kinds, options):
    if options.get("features"):
        torch.manual_seed(0)
        options = options | {"features": nn.Sequential(nn.Linear(2, 2), nn.Tanh()).double(), "features_dims": 2}
    problem = build(kinds, seed=4, sizes=8, **options)
    rows, step = problem.rows(), 1e-4

    def model() -> InducingModel:
        return model_class(problem.prior, rows, problem.x[:4])

    here = model()
    posterior = converge(here)
    for name, gradient in gradients(here, posterior).items():
        numbers, slopes = problem.prior.parameters[name].detach().view(-1), gradient.view(-1)
        value = numbers[0].item()
        bounds = []
        for side in (-1.0, 1.0):
            numbers[0] = value + side * step
            bounds.append(converge(model(), posterior.marginals).bound)
        numbers[0] = value
        slope = (bounds[1] - bounds[0]) / (2.0 * step)
        assert slopes[0].item() == pytest.approx(slope, rel=1e-5, abs=1e-5), name


def test_far_from_the_inducing_inputs_predictions_are_as_wide_as_the_prior():
    problem = build(["gaussian", "bernoulli"], seed=5, sizes=9)
    model = sparse_model(problem, 3)
    q = converge(model).q
    new = torch.cat([problem.x, torch.full((1, 2), 50.0, dtype=torch.float64)])
    with torch.no_grad():
        cov = predict_latents(model, q, new).cov
        prior = torch.stack([problem.prior.latent_variance(b, new) for b in range(2)], -1)
        left = torch.stack([model._project(b, new, model.roots, model.z_Z)[1] for b in range(2)], -1)
    variance = cov.diagonal(dim1=-2, dim2=-1)
    assert bool((variance >= left).all())
    torch.testing.assert_close(variance[-1], prior[-1], rtol=1e-6, atol=1e-9)


def test_rows_are_predicted_as_they_were_inferred():
    problem = build(MIXED, seed=6)
    model = sparse_model(problem, 3)
    q = converge(model).q
    latents = predict_latents(model, q, problem.x)
    a = (model.rows.A @ problem.prior.W).detach()
    at = model.rows.at
    torch.testing.assert_close((a * latents.mean[at]).sum(-1), q.m)
    torch.testing.assert_close(torch.einsum("jb,jbc,jc->j", a, latents.cov[at], a), q.v)


# ---- chunks and memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", [SparseModel, PaperSparseModel])
def test_chunks_change_nothing(model_class, monkeypatch):
    problem = build(MIXED, seed=7)

    def outcome() -> tuple[Posterior, dict[str, Tensor]]:
        model = model_class(problem.prior, problem.rows(), problem.x[:4])
        posterior = run(model)
        return posterior, gradients(model, posterior)

    whole, whole_gradients = outcome()
    monkeypatch.setattr(sparse, "CHUNK", 3)
    parts, parts_gradients = outcome()
    tight = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(parts.q.m, whole.q.m, **tight)
    torch.testing.assert_close(parts.q.v, whole.q.v, **tight)
    torch.testing.assert_close(parts.history, whole.history, **tight)
    for name, gradient in parts_gradients.items():
        torch.testing.assert_close(gradient, whole_gradients[name], rtol=1e-8, atol=1e-8, msg=name)


def test_what_the_gradient_keeps_is_far_less_than_all_features(monkeypatch):
    monkeypatch.setattr(sparse, "CHUNK", 10)
    kept = {}
    for n in (50, 150):
        model = sparse_model(build(["gaussian"], seed=8, sizes=n), 6)
        q = model.solve(*model.rows.sites(model.prior, *model.prior_marginals()))
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, into=sizes: into.append(t.numel()) or t, lambda t: t):
            model.bound(q)
        kept[n] = sum(sizes)
    assert model.size == 12
    assert kept[150] - kept[50] <= 100 * 3  # some numbers for each row (its label among them), not twelve and more


def test_features_are_asked_for_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(sparse, "CHUNK", 10)
    model = sparse_model(build(["gaussian", "one-vs-each"], seed=9, sizes=30), 4)
    asked, project = [], model._project
    monkeypatch.setattr(model, "_project", lambda b, z, *more: asked.append(len(z)) or project(b, z, *more))
    model.bound(infer(model, max_steps=2).q).backward()
    assert max(asked) == 10


# ---- odd cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", [SparseModel, PaperSparseModel])
def test_an_inducing_input_given_twice_counts_once(model_class):
    problem = build(["gaussian", "bernoulli"], seed=10)
    Z = problem.x[:3]
    once, twice = (infer(model_class(problem.prior, problem.rows(), z)) for z in (Z, torch.cat([Z, Z])))
    assert twice.bound == pytest.approx(once.bound, abs=1e-5)
    torch.testing.assert_close(twice.q.m, once.q.m, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_more_inducing_inputs_than_distinct_inputs_are_all_inputs(method):
    problem = build(["gaussian", "bernoulli"], seed=11)
    twice = problem.seeing({task: (at.repeat(2), y.repeat(2)) for task, (at, y) in problem.observations.items()})
    model = sparse_model(twice, 1000, method)
    assert len(model.Z) <= len(problem.x)
    assert infer(model).bound == pytest.approx(infer(twice.model()).bound, abs=1e-5)


@pytest.mark.parametrize("model_class", [SparseModel, PaperSparseModel])
def test_without_rows_the_posterior_is_the_prior(model_class):
    problem = build(["gaussian", "one-vs-each"], seed=12, sizes=4).seeing({})
    model = model_class(problem.prior, problem.rows(), problem.x)
    posterior = infer(model)
    assert posterior.converged
    assert posterior.bound == 0.0
    assert bool((model.predict(posterior.q, problem.x).mean == 0.0).all())


def test_without_inducing_inputs_nothing_is_learned():
    problem = build(["gaussian", "bernoulli"], seed=13)
    model = SparseModel(problem.prior, problem.rows(), problem.x[:0])
    q = infer(model).q
    assert bool((q.m == 0.0).all())
    torch.testing.assert_close(q.v, problem.model().prior_marginals()[1])


@pytest.mark.parametrize("method", METHODS)
def test_one_row(method):
    problem = build(["bernoulli"], seed=14, sizes=1)
    model = sparse_model(problem, 5, method)
    assert infer(model).bound == pytest.approx(infer(problem.model()).bound, abs=1e-6)
