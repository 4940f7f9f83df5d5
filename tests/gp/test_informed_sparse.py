"""Large clients that are told of shared functions, against the exact model: with inducing inputs at all rows it is the same."""

from __future__ import annotations

import pytest
import torch

from polyfed.gp import Evidence, ExactModel, InformedSparseModel, Knowledge, Prior, Rows, infer, predict_latents
from polyfed.gp.knowledge import triangle, width_of
from polyfed.gp.likelihoods import Bernoulli, Gaussian
from polyfed.gp.stochastic import StochasticOptions, as_gaussian, start, train
from polyfed.gp.whitened import normal_points

D, M = 2, 6
LIKELIHOODS = {"pulse": Gaussian(), "sick": Bernoulli()}
GROUPS = ("kernels", "mixing", "noise")
AT = torch.linspace(-2, 2, 2 * 5, dtype=torch.float64).reshape(5, 2)


def setting(kernels=("matern32", "affine", "laplace"), n=12, seed=0):
    prior = Prior(kernels=kernels, dims=D, outputs={"pulse": 1, "sick": 1}, noise={"pulse": 0.2}, per_dimension=True)
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    prior.load({name: value + 0.4 * drawn(*value.shape) for name, value in prior.state().items()})
    x = drawn(n, D)
    f = x.sum(1).sin()
    seen = {"pulse": (torch.arange(n), f), "sick": (torch.arange(0, n, 2), f[::2].sign())}
    Z = normal_points(M, D)
    half = drawn(width_of(prior, 2, M), 5)
    known = Knowledge(Z, 2, Evidence(triangle(half @ half.mT), half[:, 0]))
    return prior, Rows.of(x, seen, LIKELIHOODS), known


def test_with_inducing_inputs_at_all_rows_it_is_the_exact_model():
    prior, rows, known = setting()
    exact, sparse = ExactModel(prior, rows, knowledge=known), InformedSparseModel(prior, rows, rows.x, known)
    one, other = (infer(model, tolerance=0.0, max_steps=300) for model in (exact, sparse))
    assert other.bound == pytest.approx(one.bound, abs=1e-5)  # kernels of Z and x have a jitter of 1e-8
    torch.testing.assert_close(other.q.m, one.q.m, rtol=0, atol=1e-5)
    torch.testing.assert_close(other.q.v, one.q.v, rtol=0, atol=1e-5)
    said, wanted = sparse.evidence(other.q), exact.evidence(one.q)
    torch.testing.assert_close(said.triangle, wanted.triangle, rtol=0, atol=1e-4)
    torch.testing.assert_close(said.shift, wanted.shift, rtol=0, atol=1e-4)
    found, expected = (predict_latents(m, p.q, AT) for m, p in ((sparse, other), (exact, one)))
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.cov, expected.cov, rtol=0, atol=1e-4)
    leaves = list(prior.group(*GROUPS).values())
    gradients = (torch.autograd.grad(m.bound(p.q), leaves) for m, p in ((sparse, other), (exact, one)))
    for name, mine, theirs in zip(prior.group(*GROUPS), *gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4, msg=name)


def test_with_few_inducing_inputs_the_bound_is_below_and_the_evidence_less():
    prior, rows, known = setting(n=40)
    exact, sparse = ExactModel(prior, rows, knowledge=known), InformedSparseModel(prior, rows, rows.x[:3], known)
    one, other = (infer(model, tolerance=1e-9, max_steps=300) for model in (exact, sparse))
    assert other.bound < one.bound
    precision = sparse.evidence(other.q).precision
    assert float(torch.linalg.eigvalsh(precision)[0]) > -1e-9
    mean, cov = predict_latents(sparse, other.q, AT).of("pulse")
    assert bool(torch.isfinite(mean).all())
    assert bool((cov[:, 0, 0] > 0).all())


def test_chunks_change_nothing(monkeypatch):
    prior, rows, known = setting(n=30)
    leaves = list(prior.group(*GROUPS).values())
    found = []
    for chunk in (4096, 7):
        monkeypatch.setattr("polyfed.gp.sparse.CHUNK", chunk)
        model = InformedSparseModel(prior, rows, rows.x[:5], known)
        q = infer(model, max_steps=4).q
        found.append((model.evidence(q), torch.autograd.grad(model.bound(q), leaves)))
    torch.testing.assert_close(found[1][0].triangle, found[0][0].triangle, rtol=0, atol=1e-10)
    for mine, theirs in zip(found[1][1], found[0][1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-8)


def test_minibatches_know_what_is_told():
    """All data in one batch and full steps: the steps of inference."""
    prior, rows, known = setting(n=30)
    model = InformedSparseModel(prior, rows, rows.x[:5], known)
    options = StochasticOptions(batch_size=10_000, decay=0.0)
    state = train(model, start(model), options, steps=60)
    found, wanted = as_gaussian(model, state), infer(model, tolerance=1e-12, max_steps=300)
    torch.testing.assert_close(found.m, wanted.q.m, rtol=0, atol=1e-6)
    assert float(model.bound(found).detach()) == pytest.approx(wanted.bound, abs=1e-6)
