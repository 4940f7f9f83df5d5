"""A linear prior mean, against a Gaussian process written down in numpy with that mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import nn

from polyfed.errors import ConfigError
from polyfed.gp import ClientBatch, ExactModel, PaperSparseModel, Prior, Rows, SparseModel, infer, predict_latents
from polyfed.gp.gap import gap_estimate
from polyfed.gp.likelihoods import Bernoulli, Gaussian, LogisticSoftmax, OneVsEach
from polyfed.gp.stochastic import StochasticOptions, as_gaussian, start, train
from problems import of_client

D, N = 5, 7
LIKELIHOODS = {"pulse": Gaussian(), "sick": Bernoulli(), "stage": OneVsEach(3)}
MANY = ("rbf",) * 5  # latents, so that no row's f follows from the others and K has an inverse
TIGHT = {"tolerance": 1e-13, "max_steps": 3000}


def make_prior(seed=0, likelihoods=LIKELIHOODS, kernels=("rbf", "rbf"), mean="linear", **options):
    outputs = {task: likelihood.n_outputs for task, likelihood in likelihoods.items()}
    noise = {"pulse": 0.2} if "pulse" in outputs else {}
    prior = Prior(kernels=kernels, outputs=outputs, noise=noise, mean=mean, **{"dims": D, **options})
    rng = np.random.default_rng(seed)
    drawn = {name: rng.normal(0, 0.6, tuple(value.shape)) for name, value in prior.state().items()}
    return prior.load({name: torch.from_numpy(value) for name, value in drawn.items()})


def make_rows(seed, n=N, tasks=tuple(LIKELIHOODS)):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, D)))
    y = {"pulse": rng.standard_normal(n), "sick": rng.choice([-1.0, 1.0], n), "stage": rng.integers(0, 3, n) + 0.0}
    at = {"pulse": np.arange(n), "sick": np.arange(0, n, 2), "stage": np.arange(1, n)}
    seen = {task: (torch.from_numpy(at[task]), torch.from_numpy(y[task][at[task]])) for task in tasks}
    return Rows.of(x, seen, LIKELIHOODS)


def mean_by_hand(state, x):
    """μ of all outputs at each input."""
    return x @ state["features.mean"] * 4 / len(state["features.mean"]) + state["features.mean_bias"]


def covariance_by_hand(state, x, x2):
    """k of all pairs of outputs at all pairs of inputs, (n, T, n2, T)."""
    W, k = np.concatenate([v for name, v in state.items() if name.startswith("mixing.")]), 0.0
    for b in range(W.shape[1]):
        d2 = ((x[:, None] - x2[None]) ** 2).sum(-1) * np.exp(state[f"kernels.{b}.log_phi1"])[0]
        k_b = np.exp(state[f"kernels.{b}.log_amplitude"]) * np.exp(-d2 / 2)
        k = k + np.einsum("nm,i,j->nimj", k_b, W[:, b], W[:, b])
    return k


def by_hand(state, rows, x_new):
    """The bound, q(f) of all rows and the mean of all outputs at new inputs, with f itself and not what it is less μ.

    Logistic rows: log σ(yf) ≥ yf/2 − log 2cosh(ξ/2) − h (f² − ξ²)/2, h = tanh(ξ/2) / 2ξ, with the best ξ² = E[f²].
    """
    x, at, A = rows.x.numpy(), rows.at.numpy(), rows.A.numpy()
    mu = np.array([A[j] @ mean_by_hand(state, x[i]) for j, i in enumerate(at)])
    k = covariance_by_hand(state, x, x)[at][:, :, at]
    K = np.einsum("jt,jtks,ks->jk", A, k, A)
    sigma2 = np.exp(state["noise.pulse"])
    r, y = np.full(len(at), 0.5), np.zeros(len(at))  # of one-vs-each: its own class wins
    logistic = np.ones(len(at), dtype=bool)
    for block in rows.blocks:
        where = block.rows.numpy()
        if block.task == "pulse":
            y[where[:, 0]], logistic[where[:, 0]] = block.y.numpy(), False
        if block.task == "sick":
            r[where[:, 0]] = block.y.numpy() / 2
    r[~logistic] = y[~logistic] / sigma2
    xi, K_inv = np.ones(len(at)), np.linalg.inv(K)
    for _ in range(200):
        h = np.where(logistic, np.tanh(xi / 2) / (2 * xi), 1 / sigma2)
        Sigma = np.linalg.inv(K_inv + np.diag(h))
        m = Sigma @ (K_inv @ mu + r)
        xi = np.sqrt(m**2 + np.diag(Sigma))
    constant = np.where(
        logistic,
        -np.log(2 * np.cosh(xi / 2)) + h * xi**2 / 2,
        -np.log(2 * np.pi * sigma2) / 2 - y**2 / (2 * sigma2),
    )
    log_det = np.linalg.slogdet(np.eye(len(at)) + K * h)[1]
    bound = constant.sum() + (m @ (K_inv @ mu + r) - mu @ K_inv @ mu - log_det) / 2
    to_new = np.einsum("nijt,jt->nij", covariance_by_hand(state, x_new, x)[:, :, at], A)
    return bound, m, np.diag(Sigma), mean_by_hand(state, x_new) + to_new @ K_inv @ (m - mu)


def numbers(prior):
    return {name: value.numpy() for name, value in prior.state().items()}


def test_bound_posterior_and_predictions_are_those_by_hand():
    prior, rows, new = make_prior(kernels=MANY), make_rows(1), np.random.default_rng(2).standard_normal((4, D))
    model = ExactModel(prior, rows)
    q = infer(model, **TIGHT).q
    bound, m, v, at_new = by_hand(numbers(prior), rows, new)
    assert model.rows.mu is not None
    np.testing.assert_allclose(model.bound(q).item(), bound, atol=1e-6)
    np.testing.assert_allclose((q.m + model.rows.mu).detach().numpy(), m, atol=1e-6)
    np.testing.assert_allclose(q.v.numpy(), v, atol=1e-6)
    latents = predict_latents(model, q, torch.from_numpy(new))
    found = torch.cat([latents.of(task)[0] for task in LIKELIHOODS], -1)
    np.testing.assert_allclose(found.numpy(), at_new, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_is_that_of_the_bound_by_hand(sparse):
    prior, rows = make_prior(kernels=MANY), make_rows(3, 5)
    model = SparseModel(prior, rows, rows.x) if sparse else ExactModel(prior, rows)
    q = infer(model, **TIGHT).q
    names = ["features.mean", "features.mean_bias", "mixing.stage"]
    gradients = torch.autograd.grad(model.bound(q), [prior.parameters[name] for name in names])
    for name, gradient in zip(names, gradients, strict=True):
        for place in np.ndindex(gradient.shape):
            bounds = []
            for step in (1e-4, -1e-4):
                state = {key: value.copy() for key, value in numbers(prior).items()}
                state[name][place] += step
                bounds.append(by_hand(state, rows, rows.x.numpy()[:1])[0])
            np.testing.assert_allclose(gradient[place].item(), (bounds[0] - bounds[1]) / 2e-4, atol=2e-5, rtol=1e-4)


def test_regression_is_the_textbooks_with_the_mean_taken_off():
    prior = make_prior(likelihoods={"pulse": Gaussian()}, kernels=["rbf"])
    rng, state = np.random.default_rng(4), numbers(prior)
    x, y, new = rng.standard_normal((20, D)), rng.standard_normal(20), rng.standard_normal((6, D))
    rows = Rows.of(torch.from_numpy(x), {"pulse": (torch.arange(20), torch.from_numpy(y))}, {"pulse": Gaussian()})
    model = ExactModel(prior, rows)
    q = infer(model).q
    mean, cov = predict_latents(model, q, torch.from_numpy(new)).of("pulse")
    scale = np.exp(state["kernels.0.log_amplitude"]) * state["mixing.pulse"].item() ** 2
    kernel = ConstantKernel(scale) * RBF(np.exp(-state["kernels.0.log_phi1"][0] / 2))
    textbook = GaussianProcessRegressor(kernel, alpha=np.exp(state["noise.pulse"]), optimizer=None)
    textbook.fit(x, y - mean_by_hand(state, x)[:, 0])
    expected, std = textbook.predict(new, return_std=True)
    np.testing.assert_allclose(mean[:, 0].numpy(), expected + mean_by_hand(state, new)[:, 0], atol=1e-9)
    np.testing.assert_allclose(cov[:, 0, 0].numpy(), std**2, atol=1e-9)
    np.testing.assert_allclose(model.bound(q).item(), textbook.log_marginal_likelihood_value_, atol=1e-9)


def test_one_label_under_the_tighter_bound_is_the_best_gaussian():
    """max over (m, v) of E log σ(y f) − KL(N(m, v) ‖ N(μ, k)), by quadrature."""
    likelihoods = {"sick": Bernoulli(bound="gaussian")}
    prior = make_prior(likelihoods=likelihoods, kernels=["rbf"])
    x = torch.from_numpy(np.random.default_rng(5).standard_normal((1, D)))
    rows = Rows.of(x, {"sick": (torch.tensor([0]), torch.tensor([-1.0], dtype=torch.float64))}, likelihoods)
    model, state = ExactModel(prior, rows), numbers(prior)
    q = infer(model, **TIGHT).q
    mu = mean_by_hand(state, x.numpy())[0, 0]
    k = np.exp(state["kernels.0.log_amplitude"]) * state["mixing.sick"].item() ** 2
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def minus_elbo(at):
        m, v = at[0], np.exp(at[1])
        fit = weights @ -np.logaddexp(0, m + np.sqrt(v) * nodes) / weights.sum()
        return -fit + 0.5 * (v / k + (m - mu) ** 2 / k - 1 - np.log(v / k))

    best = minimize(minus_elbo, [mu, np.log(k)], tol=1e-12)
    np.testing.assert_allclose(model.bound(q).item(), -best.fun, atol=1e-6)
    mean, cov = predict_latents(model, q, x).of("sick")
    np.testing.assert_allclose([mean.item(), cov.item()], [best.x[0], np.exp(best.x[1])], atol=1e-4)


def test_two_classes_are_one_binary_task():
    prior = make_prior(likelihoods={"stage": OneVsEach(2)})
    binary = make_prior(likelihoods={"sick": Bernoulli()})
    state = prior.state()
    binary.load({name: value for name, value in state.items() if name.startswith("kernels.")})
    binary.load({n: state[n].diff(dim=-1) for n in ("features.mean", "features.mean_bias")})
    binary.load({"mixing.sick": state["mixing.stage"].diff(dim=0)})
    x, y = make_rows(6).x, torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    at, bounds, means = torch.arange(len(y)), [], []
    for one, task, of, labels in ((prior, "stage", OneVsEach(2), y), (binary, "sick", Bernoulli(), 2 * y - 1)):
        model = ExactModel(one, Rows.of(x, {task: (at, labels)}, {task: of}))
        q = infer(model, **TIGHT).q
        bounds.append(model.bound(q).item())
        means.append(predict_latents(model, q, x + 0.3).of(task)[0])
    np.testing.assert_allclose(*bounds, atol=1e-8)
    torch.testing.assert_close(means[0].diff(dim=-1), means[1], atol=1e-6, rtol=0)


def test_of_a_softmax_the_mean_is_learned_too():
    likelihoods = {"stage": LogisticSoftmax(3, temperature=0.7)}
    prior = make_prior(likelihoods=likelihoods)
    x, y = make_rows(7).x, torch.tensor([0.0, 2.0, 1.0, 0.0, 1.0, 2.0, 2.0], dtype=torch.float64)
    rows = Rows.of(x, {"stage": (torch.arange(len(y)), y)}, likelihoods)

    def bound(c):
        moved = prior.with_values({**prior.state(), "features.mean_bias": c})
        model = ExactModel(moved, rows)
        return model.bound(infer(model, **TIGHT).q), moved

    c = prior.state()["features.mean_bias"]
    value, moved = bound(c)
    (gradient,) = torch.autograd.grad(value, [moved.parameters["features.mean_bias"]])
    steps = 1e-4 * torch.eye(3, dtype=torch.float64)
    slopes = torch.stack([(bound(c + step)[0] - bound(c - step)[0]).detach() / 2e-4 for step in steps])
    torch.testing.assert_close(gradient, slopes, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"projected": D, "dims": 2}], ids=str)
def test_a_batch_is_a_loop(options):
    clients = [make_rows(1), make_rows(2, 8), make_rows(3, tasks=["sick"]), make_rows(4, tasks=[]), make_rows(5, 12)]
    priors = [make_prior(seed, **options) for seed in range(len(clients))]
    step = ClientBatch(clients).step(Prior.stack(priors), **TIGHT, groups=("features", "noise"))
    for i, (rows, prior) in enumerate(zip(clients, priors, strict=True)):
        model, client = ExactModel(prior, rows), of_client(step, i)
        q = infer(model, **TIGHT).q
        value = model.bound(q)
        np.testing.assert_allclose(client.bound, value.item(), atol=1e-8)
        wanted = list(prior.group("features"))
        gradients = torch.autograd.grad(value, [prior.parameters[n] for n in wanted], materialize_grads=True)
        for name, gradient in zip(wanted, gradients, strict=True):
            torch.testing.assert_close(client.gradient[name], gradient, atol=1e-6, rtol=1e-6)
        blocks = {block.task: block for block in rows.blocks}
        if "pulse" in blocks:  # Σ ((y − E[f])² + Var f)
            m = q.m + mean_by_hand(prior.state(), rows.x)[rows.at, 0]
            at = blocks["pulse"].rows[:, 0]
            total = ((blocks["pulse"].y - m[at]).square() + q.v[at]).sum().item()
            np.testing.assert_allclose(client.noise["pulse"], (total, len(at)), rtol=1e-6)


@pytest.mark.parametrize("of", [SparseModel, PaperSparseModel])
def test_inducing_inputs_at_all_inputs_are_exact(of):
    # the paper's model is the exact one where every output has a latent of its own
    likelihoods = {"pulse": Gaussian(), "sick": Bernoulli()}
    prior = make_prior(likelihoods=likelihoods)
    prior.load({f"mixing.{t}": row[None] for t, row in zip(likelihoods, torch.eye(2).double(), strict=True)})
    whole = make_rows(8)
    seen = {block.task: (whole.at[block.rows[:, 0]], block.y) for block in whole.blocks if block.task != "stage"}
    rows = Rows.of(whole.x, seen, likelihoods)
    found = []
    for model in (ExactModel(prior, rows), of(prior, rows, rows.x)):
        q = infer(model, **TIGHT).q
        latents = predict_latents(model, q, rows.x)
        found.append((model.bound(q).detach(), *(latents.of(task)[0] for task in likelihoods)))
    for exact, sparse in zip(*found, strict=True):
        torch.testing.assert_close(exact, sparse, atol=1e-4, rtol=0)


def test_minibatches_end_where_inference_does():
    prior, rows = make_prior(), make_rows(9)
    model = SparseModel(prior, rows, rows.x[:4])
    q = infer(model, **TIGHT).q
    state = train(model, start(model), StochasticOptions(batch_size=1000, decay=0.0), steps=300)
    torch.testing.assert_close(as_gaussian(model, state).m, q.m, atol=1e-6, rtol=0)
    part = train(
        model, state, StochasticOptions(batch_size=5, delay=1e6), steps=20
    )  # some rows at a time, hardly a step
    torch.testing.assert_close(as_gaussian(model, part).m, q.m, atol=1e-3, rtol=0)


def test_the_gap_to_the_exact_bound_is_estimated_with_the_mean():
    likelihoods = {"pulse": Gaussian()}
    prior, x = make_prior(likelihoods=likelihoods), make_rows(10, 30).x
    rows = Rows.of(x, {"pulse": (torch.arange(30), x[:, 0].sin())}, likelihoods)
    model = SparseModel(prior, rows, x[:6])
    sparse, exact = infer(model), infer(ExactModel(prior, rows))
    torch.testing.assert_close(gap_estimate(model, sparse.q).item(), exact.bound - sparse.bound, atol=1e-6, rtol=0)


def test_the_mean_sees_the_inputs_and_no_projection_of_them():
    """With no kernel to speak of, what is predicted is the mean."""
    prior = make_prior(projected=D, dims=2)
    prior.load({f"kernels.{b}.log_amplitude": torch.tensor(-40.0).double() for b in (0, 1)})
    model, new = ExactModel(prior, make_rows(11)), make_rows(12).x
    latents = predict_latents(model, infer(model).q, new)
    found = torch.cat([latents.of(task)[0] for task in LIKELIHOODS], -1)
    torch.testing.assert_close(found, mean_by_hand(prior.state(), new), atol=1e-10, rtol=0)


class Counting(nn.Module):
    """A network that counts the inputs that go through it."""

    def __init__(self, width):
        super().__init__()
        self.layer, self.labels = nn.Linear(D, width).double(), 0

    def forward(self, x):
        self.labels += len(x)
        return self.layer(x).tanh()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_network_runs_once_and_is_learned_through_the_mean(sparse, apart):
    net = Counting(6 if apart else 3)
    prior = make_prior(projected=3, dims=2, features=net, apart=apart)
    rows = make_rows(13)
    assert prior.parameters["features.mean"].shape == (6 if apart else 3, 5)

    def bound(weight):
        moved = prior.with_values({**prior.state(), "features.layer.weight": weight})
        model = SparseModel(moved, rows, rows.x[:4]) if sparse else ExactModel(moved, rows)
        return model, infer(model, **TIGHT).q, moved

    at = prior.state()["features.layer.weight"]
    model, q, moved = bound(at)
    (gradient,) = torch.autograd.grad(model.bound(q), [moved.parameters["features.layer.weight"]])
    assert net.labels == N + (4 if sparse else 0)  # the inducing inputs go by themselves
    predict_latents(model, q, rows.x[:2])
    assert net.labels == N + (4 if sparse else 0) + 2
    step = torch.zeros_like(at)
    step[1, 2] = 1e-5
    bounds = [one.bound(q).detach() for one, q, _ in (bound(at + step), bound(at - step))]
    torch.testing.assert_close(gradient[1, 2], (bounds[0] - bounds[1]) / 2e-5, atol=1e-5, rtol=1e-4)


def test_without_a_mean_there_is_no_parameter_and_no_other_number():
    zero, linear, rows = make_prior(mean="zero"), make_prior(), make_rows(14)
    added = set(linear.state()) - set(zero.state())
    assert added == {"features.mean", "features.mean_bias"}
    linear.load({**zero.state(), **{name: torch.zeros_like(linear.state()[name]) for name in added}})
    assert ExactModel(zero, rows).rows is rows
    found = []
    for prior in (zero, linear):
        model = ExactModel(prior, rows)
        q = infer(model, tolerance=1e-9).q
        latents = predict_latents(model, q, rows.x)
        found.append([model.bound(q).detach(), q.m, q.v, *(latents.of(task)[0] for task in LIKELIHOODS)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_a_mean_alone_changes_no_distance():
    assert make_prior().sees_inputs
    rows = make_rows(15)
    known = ExactModel(make_prior(), rows).distances
    assert ExactModel(make_prior(seed=1), rows, known).distances is known


def test_a_step_of_an_entry_moves_the_mean_as_far_however_wide_the_input():
    for width in (10, 1000):
        prior = Prior(kernels=["rbf"], dims=width, outputs={"pulse": 1}, noise={"pulse": 0.1}, mean="linear")
        x = torch.from_numpy(np.random.default_rng(16).choice([-1.0, 1.0], (1, width)))  # inputs of spread one
        prior.load({"features.mean": 0.1 * x.mT})  # the entries agree
        mu = prior.mu(x)
        assert mu is not None
        assert mu.item() == pytest.approx(0.4)


def test_what_is_no_mean_and_names_that_are_taken():
    with pytest.raises(
        ConfigError, match=r"^mean 'liner' is unknown; did you mean 'linear'\? known are 'zero', 'linear'\.$"
    ):
        make_prior(mean="liner")
    net = nn.Linear(D, D)
    net.mean = nn.Parameter(torch.zeros(1))
    with pytest.raises(ConfigError, match="the network calls a parameter 'mean'"):
        make_prior(features=net)
