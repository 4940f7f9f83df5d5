"""Projections: each latent sees its own linear view of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyfed.gp import ClientBatch, ExactModel, Prior, Rows, SparseModel, infer, predict_latents
from polyfed.gp.likelihoods import Bernoulli, Gaussian
from polyfed.gp.projection import scaled_sums

D, WIDTH, B = 5, 2, 2
LIKELIHOODS = {"pulse": Gaussian(), "sick": Bernoulli()}


def make_prior(seed=0, **options):
    prior = Prior(
        kernels=["rbf", "matern52"],
        dims=WIDTH,
        projected=D,
        outputs={"pulse": 1, "sick": 1},
        noise={"pulse": 0.2},
        **options,
    )
    rng = np.random.default_rng(seed)
    return prior.load({name: torch.from_numpy(rng.normal(0, 0.6, tuple(v.shape))) for name, v in prior.state().items()})


def make_rows(seed, n=9):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, D)))
    seen = {
        "pulse": (torch.arange(n), torch.from_numpy(rng.standard_normal(n))),
        "sick": (torch.arange(0, n, 2), torch.from_numpy(np.where(rng.random((n + 1) // 2) < 0.5, -1.0, 1.0))),
    }
    return Rows.of(x, seen, LIKELIHOODS)


def by_hand(prior, rows):
    """K from its definition, latent by latent, with numpy."""
    values = {name: value.numpy() for name, value in prior.state().items()}
    x, at = rows.x.numpy(), rows.at.numpy()
    W = np.concatenate([values["mixing.pulse"], values["mixing.sick"]])
    a = rows.A.numpy() @ W
    K = np.zeros((len(at), len(at)))
    for b in range(B):
        z = x @ values["features.projection"][:, b * WIDTH : (b + 1) * WIDTH] * 4 / D
        d2 = ((z[:, None] - z[None]) ** 2).sum(-1) * np.exp(values[f"kernels.{b}.log_phi1"])[0]
        s = np.exp(-d2 / 2) if b == 0 else (1 + np.sqrt(5 * d2) + 5 * d2 / 3) * np.exp(-np.sqrt(5 * d2))
        K += np.exp(values[f"kernels.{b}.log_amplitude"]) * np.outer(a[:, b], a[:, b]) * s[at][:, at]
    return K


def test_the_covariance_is_that_of_each_latents_own_view():
    prior, rows = make_prior(), make_rows(1)
    np.testing.assert_allclose(ExactModel(prior, rows).K.detach().numpy(), by_hand(prior, rows), atol=1e-12)
    with torch.no_grad():
        np.testing.assert_allclose(ExactModel(prior, rows).K.numpy(), by_hand(prior, rows), atol=1e-12)


def test_a_projection_to_the_inputs_themselves_changes_nothing():
    plain = Prior(kernels=["rbf"], dims=D, outputs={"pulse": 1, "sick": 1}, noise={"pulse": 0.2})
    same = Prior(kernels=["rbf"], dims=D, projected=D, outputs={"pulse": 1, "sick": 1}, noise={"pulse": 0.2})
    same.load({**plain.state(), "features.projection": torch.eye(D, dtype=torch.float64) * D / 4})
    rows, new = make_rows(2), torch.from_numpy(np.random.default_rng(3).standard_normal((4, D)))
    found = []
    for prior in (plain, same):
        model = ExactModel(prior, rows)
        q = infer(model, tolerance=1e-10, max_steps=300).q
        found.append((model.bound(q).detach(), predict_latents(model, q, new)))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-9, rtol=0)
    torch.testing.assert_close(found[0][1].mean, found[1][1].mean, atol=1e-8, rtol=0)
    torch.testing.assert_close(found[0][1].cov, found[1][1].cov, atol=1e-8, rtol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_is_that_of_finite_differences(sparse):
    prior, rows = make_prior(), make_rows(4)

    def bound(projection):
        moved = prior.with_values({**prior.state(), "features.projection": projection})
        model = SparseModel(moved, rows, rows.x[:6]) if sparse else ExactModel(moved, rows)
        q = infer(model, tolerance=1e-13, max_steps=2000).q
        return model.bound(q), moved

    at = prior.state()["features.projection"]
    value, moved = bound(at)
    (gradient,) = torch.autograd.grad(value, [moved.parameters["features.projection"]])
    for i, j in ((0, 0), (1, 3), (4, 2)):
        step = torch.zeros_like(at)
        step[i, j] = 1e-5
        slope = (bound(at + step)[0] - bound(at - step)[0]) / 2e-5
        torch.testing.assert_close(gradient[i, j], slope.detach(), atol=2e-6, rtol=1e-5)


def test_a_batch_is_a_loop():
    clients, priors = (
        [make_rows(seed, n) for seed, n in ((1, 9), (2, 9), (3, 14))],
        [make_prior(seed) for seed in range(3)],
    )
    step = ClientBatch(clients).step(Prior.stack(priors), tolerance=1e-12, max_steps=500, groups=("features", "mixing"))
    for i, (rows, prior) in enumerate(zip(clients, priors, strict=True)):
        alone = prior.with_values(prior.state())
        model = ExactModel(alone, rows)
        q = infer(model, tolerance=1e-12, max_steps=500).q
        value = model.bound(q)
        torch.testing.assert_close(step.bound[i], value.detach(), atol=1e-9, rtol=0)
        wanted = ["features.projection", "mixing.sick"]
        for name, grad in zip(wanted, torch.autograd.grad(value, [alone.parameters[n] for n in wanted]), strict=True):
            torch.testing.assert_close(step.gradient[name][i], grad, atol=1e-8, rtol=1e-8)


def test_inducing_inputs_at_all_inputs_are_exact():
    prior, rows = make_prior(), make_rows(5)
    models = ExactModel(prior, rows), SparseModel(prior, rows, rows.x)
    bounds = [model.bound(infer(model, tolerance=1e-10, max_steps=500).q).detach() for model in models]
    torch.testing.assert_close(bounds[0], bounds[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize(("batch_x", "batch_V"), [((), ()), ((3,), (3,)), ((3,), ()), ((), (3,))])
def test_scaled_sums_and_their_derivative(batch_x, batch_V):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((*batch_x, 4, D))).requires_grad_()
    V = torch.from_numpy(rng.standard_normal((*batch_V, D, WIDTH))).requires_grad_()
    torch.testing.assert_close(scaled_sums(x, V), x @ V * (4.0 / D))
    assert torch.autograd.gradcheck(scaled_sums, (x, V))
