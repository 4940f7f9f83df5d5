"""Functions that clients share, against the same model in one place: one dense covariance over the rows of all clients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from polyfed.gp import ClientBatch, Evidence, ExactModel, Knowledge, Prior, Rows, infer, predict_latents
from polyfed.gp.knowledge import symmetric, triangle, width_of
from polyfed.gp.likelihoods import Bernoulli, Gaussian, NegativeBinomial, OneVsEach, StudentT
from polyfed.gp.linalg import NotPositiveDefinite
from polyfed.gp.whitened import JITTER, normal_points

D, M = 2, 9
MIXED = {"pulse": Gaussian(), "sick": Bernoulli()}
MANY = {**MIXED, "stage": OneVsEach(3), "visits": NegativeBinomial(), "dose": StudentT()}
GROUPS = ("kernels", "mixing", "noise")
KERNELS = ("rbf", "matern52", "rbf", "laplace")  # of which the first two are shared


def make_prior(likelihoods, kernels=KERNELS, seed=0, per_dimension=False):
    outputs = {task: likelihood.n_outputs for task, likelihood in likelihoods.items()}
    noise = {task: lik.initial_noise for task, lik in likelihoods.items() if lik.initial_noise is not None}
    prior = Prior(kernels=kernels, dims=D, outputs=outputs, noise=noise, per_dimension=per_dimension)
    generator = torch.Generator().manual_seed(seed)
    values = {
        name: value + 0.5 * torch.randn(value.shape, dtype=torch.float64, generator=generator)
        for name, value in prior.state().items()
    }
    return prior.load(values)


def make_rows(n, seed, likelihoods):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, dtype=torch.float64, generator=generator)
    f = x.sum(1).sin() + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    y = {"pulse": f, "dose": f, "sick": f.sign(), "stage": (f > -0.3) * 1.0 + (f > 0.3), "visits": f.exp().round()}
    tasks = list(likelihoods)
    seen = {task: torch.arange(min(i, n), n, 2) for i, task in enumerate(tasks)}  # some inputs have several rows
    return Rows.of(x, {task: (at, y[task][at].double()) for task, at in seen.items()}, likelihoods)


def federated(prior, clients, *, n_shared, Z, rounds, damping=1.0, groups=(), max_steps=2):
    """Rounds as clients and a server would have them; the last step, and the evidence of each client before it."""
    batch, n = ClientBatch(clients), len(clients)
    width = width_of(prior, n_shared, len(Z))
    none = Evidence.none(width)
    own = Evidence(none.triangle.expand(n, -1), none.shift.expand(n, -1))
    step, before = None, own
    for _ in range(rounds):
        total = Evidence(own.triangle.sum(0), own.shift.sum(0))
        others = Evidence(total.triangle - own.triangle, total.shift - own.shift)
        step = batch.step(
            prior,
            start=step,
            tolerance=0.0,
            max_steps=max_steps,
            groups=groups,
            knowledge=lambda group, e=others: Knowledge(Z, n_shared, Evidence(e.triangle[group], e.shift[group])),
        )
        before, own = own, own + (step.evidence - own) * damping
    return SimpleNamespace(step=step, own=own, before=before, others=others, total=total)


def pieces(prior, rows, n_shared, Z):
    """K and Φ of one client, written out."""
    a, x = rows.A @ prior.W, rows.x[rows.at]
    K = sum(a[:, None, b] * a[None, :, b] * prior.latent_covariance(b, x, x) for b in range(prior.n_latents))
    Phi = []
    for b in range(n_shared):
        Kzz = prior.latent_covariance(b, Z, Z) + JITTER * prior.amplitude(b) * torch.eye(len(Z), dtype=torch.float64)
        whitened = torch.linalg.inv(torch.linalg.cholesky(Kzz)) @ prior.latent_covariance(b, Z, x)
        Phi.append(a[:, b, None] * whitened.mT)
    return K, torch.cat(Phi, 1)


def log_z(K, r, h):
    """log ∫ N(f | 0, K) exp(rᵀf − ½ fᵀHf) df for K that may be singular, the mean and the covariance of f."""
    eye = torch.eye(len(h), dtype=torch.float64)
    covariance = torch.linalg.solve(eye + K * h, K)
    return 0.5 * r @ covariance @ r - 0.5 * torch.linalg.slogdet(eye + K * h)[1], covariance @ r, covariance


def central(prior, clients, *, n_shared, Z, steps=600):
    """The joint bound with its graph, and the marginals of all rows."""
    Ks, Phis = zip(*(pieces(prior, rows, n_shared, Z) for rows in clients), strict=True)
    Phi = torch.cat(Phis)
    C = torch.block_diag(*(K - P @ P.mT for K, P in zip(Ks, Phis, strict=True)))
    K, sizes = C + Phi @ Phi.mT, [len(rows) for rows in clients]
    m, v = torch.zeros(len(K), dtype=torch.float64), K.detach().diagonal()
    for _ in range(steps):
        pairs = zip(clients, m.split(sizes), v.split(sizes), strict=True)
        sites = [rows.sites(prior, *marginals) for rows, *marginals in pairs]
        h, r = (torch.cat(part) for part in zip(*sites, strict=True))
        _, m, covariance = log_z(K.detach(), r, h)
        v = covariance.diagonal()
    pairs = zip(clients, m.split(sizes), v.split(sizes), strict=True)
    local = sum(rows.local_bound(prior, *marginals) for rows, *marginals in pairs)
    value = log_z(K, r, h)[0] + local - (r @ m - 0.5 * (h * (m.square() + v)).sum())
    return value, m, v


def partition(evidence):
    """log ∫ N(u | 0, I) exp(ηᵀu − ½ uᵀΛu) du."""
    precision = torch.eye(evidence.shift.shape[-1], dtype=torch.float64) + evidence.precision
    mean = torch.linalg.solve(precision, evidence.shift[..., None])[..., 0]
    return 0.5 * (evidence.shift * mean).sum(-1) - 0.5 * torch.linalg.slogdet(precision)[1]


def joint_bound(fed):
    """Of what clients found: each counts what its labels add to what the others know."""
    after = fed.others + fed.step.evidence
    alone = fed.step.bound - partition(after) + partition(fed.others)
    total = Evidence(fed.own.triangle.sum(0), fed.own.shift.sum(0))
    return alone.sum() + partition(total)


# ---- oracle 1: the same model in one place ---------------------------------------------------------------------------


@pytest.mark.parametrize("per_dimension", [False, True])
@pytest.mark.parametrize("likelihoods", [MIXED, MANY], ids=["two tasks", "five tasks"])
def test_posterior_bound_and_gradient_are_those_of_one_place(likelihoods, per_dimension):
    prior, Z = make_prior(likelihoods, per_dimension=per_dimension), normal_points(M, D)
    clients = [make_rows(n, seed, likelihoods) for seed, n in enumerate((7, 12, 9, 15))]
    bound, m, v = central(prior, clients, n_shared=2, Z=Z)
    names = list(prior.group(*GROUPS))
    wanted = torch.autograd.grad(bound, [prior.parameters[name] for name in names])
    fed = federated(prior, clients, n_shared=2, Z=Z, rounds=40, groups=GROUPS)
    found = [torch.cat(parts) for parts in zip(*(fed.step.marginals_of(i) for i in range(4)), strict=True)]
    torch.testing.assert_close(found[0], m, rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1], v, rtol=0, atol=1e-10)
    torch.testing.assert_close(joint_bound(fed), bound.detach(), rtol=0, atol=1e-10)
    for name, gradient in zip(names, wanted, strict=True):
        torch.testing.assert_close(fed.step.gradient[name].sum(0), gradient, rtol=1e-9, atol=1e-9, msg=name)


def test_the_gradient_is_that_of_the_expected_evidence_of_u():
    """F_c of the specification, with the belief of u held fixed, against the gradient of the client's ordinary bound."""
    prior, Z = make_prior(MIXED), normal_points(M, D)
    rows, others = make_rows(11, 5, MIXED), make_rows(9, 6, MIXED)
    fed = federated(prior, [rows, others], n_shared=2, Z=Z, rounds=30)
    known = Knowledge(Z, 2, fed.own[1])
    model = ExactModel(prior, rows, knowledge=known)
    q = infer(model, tolerance=0.0, max_steps=500).q
    names = list(prior.group(*GROUPS))
    leaves = [prior.parameters[name] for name in names]
    found = torch.autograd.grad(model.bound(q), leaves, retain_graph=True)
    mine = model.evidence(q)
    eye = torch.eye(2 * M, dtype=torch.float64)
    S = torch.linalg.inv(eye + fed.own[1].precision + mine.precision)
    mu = S @ (fed.own[1].shift + mine.shift)
    K, Phi = pieces(prior, rows, 2, Z)
    m, v = model.rows.as_f((q.m, q.v))
    h, r = rows.sites(prior, m, v)
    C = K - Phi @ Phi.mT
    logz, m0, _ = log_z(C, r, h)
    G = torch.linalg.inv(torch.diag(1 / h) + C)
    local = rows.local_bound(prior, m, v)
    F = logz + Phi.mT @ (r - h * m0) @ mu - 0.5 * (Phi.mT @ G @ Phi * (S + torch.outer(mu, mu))).sum() + local
    for name, one, other in zip(names, found, torch.autograd.grad(F, leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=name)


def test_evidence_is_that_of_its_definition():
    """Λ = Φᵀ(H⁻¹ + C)⁻¹Φ and η = Φᵀ(H⁻¹ + C)⁻¹H⁻¹r, whatever is known beforehand."""
    prior, Z = make_prior(MIXED), normal_points(M, D)
    rows = make_rows(10, 3, MIXED)
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2 * M, 4, dtype=torch.float64, generator=generator)
    known = Knowledge(Z, 2, Evidence(triangle(half @ half.mT), half[:, 0]))
    with torch.no_grad():
        model = ExactModel(prior, rows, knowledge=known)
        q = infer(model, max_steps=3).q
        h, r = q.h, q.r + q.h * model.informed.mean
        K, Phi = pieces(prior, rows, 2, Z)
        G = torch.linalg.inv(torch.diag(1 / h) + K - Phi @ Phi.mT)
    found = model.evidence(q)
    torch.testing.assert_close(found.precision, Phi.mT @ G @ Phi, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.shift, Phi.mT @ G @ (r / h), rtol=0, atol=1e-10)


# ---- oracle 2: nothing personal, Z at all inputs --------------------------------------------------------------------


def test_without_personal_latents_and_with_points_at_all_inputs_it_is_one_model_of_all_rows():
    prior = make_prior(MIXED, kernels=("rbf", "matern32"))
    clients = [make_rows(n, seed, MIXED) for seed, n in enumerate((6, 8, 5))]
    Z = torch.cat([rows.x for rows in clients])
    fed = federated(prior, clients, n_shared=2, Z=Z, rounds=40, groups=GROUPS)
    bound, m, v = pooled(prior, clients)
    found = [torch.cat(parts) for parts in zip(*(fed.step.marginals_of(i) for i in range(3)), strict=True)]
    torch.testing.assert_close(found[0], m, rtol=0, atol=1e-6)  # k(Z, Z) has a jitter of 1e-8
    torch.testing.assert_close(found[1], v, rtol=0, atol=1e-6)
    torch.testing.assert_close(joint_bound(fed), bound, rtol=0, atol=1e-6)


def pooled(prior, clients):
    """All rows in one ordinary model: its bound and its marginals."""
    sizes = torch.tensor([0, *(len(rows.x) for rows in clients)]).cumsum(0)
    seen = {}
    for start, rows in zip(sizes.tolist(), clients, strict=False):
        for block in rows.blocks:
            at, y = seen.setdefault(block.task, ([], []))
            at.append(rows.at[block.rows[:, 0]] + start)
            y.append(block.y)
    x, pairs = torch.cat([rows.x for rows in clients]), {t: tuple(map(torch.cat, pair)) for t, pair in seen.items()}
    model = ExactModel(prior, Rows.of(x, pairs, MIXED))
    found = infer(model, tolerance=0.0, max_steps=600)
    order = []  # rows of the first client, of the second ...: each has those of its first task first
    counts = {block.task: 0 for block in model.rows.blocks}
    first = {block.task: int(block.rows.min()) for block in model.rows.blocks}
    for rows in clients:
        for block in rows.blocks:
            begin = first[block.task] + counts[block.task]
            order += range(begin, begin + len(block.y))
            counts[block.task] += len(block.y)
    return torch.tensor(found.bound, dtype=torch.float64), found.q.m[order], found.q.v[order]


# ---- oracle 3: one client -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_points", [1, 20])
def test_one_client_has_an_ordinary_model_whatever_the_points(n_points):
    prior, rows = make_prior(MANY), make_rows(14, 1, MANY)
    plain = ExactModel(prior, rows)
    posterior = infer(plain, tolerance=0.0, max_steps=600)
    Z = normal_points(n_points, D)
    fed = federated(prior, [rows], n_shared=2, Z=Z, rounds=20, groups=GROUPS)
    assert float(fed.step.bound[0]) == pytest.approx(posterior.bound, abs=1e-9)
    m, v = fed.step.marginals_of(0)
    torch.testing.assert_close(m, posterior.q.m, rtol=0, atol=1e-8)
    torch.testing.assert_close(v, posterior.q.v, rtol=0, atol=1e-8)
    x = torch.linspace(-2, 2, 2 * 7, dtype=torch.float64).reshape(7, 2)
    informed = ExactModel(prior, rows, knowledge=Knowledge(Z, 2, Evidence.none(2 * n_points)))
    one = predict_latents(plain, posterior.q, x)
    other = predict_latents(informed, informed.solve(posterior.q.h, posterior.q.r), x)
    torch.testing.assert_close(other.mean, one.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(other.cov, one.cov, rtol=0, atol=1e-9)


# ---- oracle 4: Gaussian rows alone ----------------------------------------------------------------------------------


def test_with_gaussian_rows_alone_nothing_moves_after_one_round():
    likelihoods = {"pulse": Gaussian()}
    prior, Z = make_prior(likelihoods), normal_points(M, D)
    clients = [make_rows(n, seed, likelihoods) for seed, n in enumerate((7, 12, 9))]
    one = federated(prior, clients, n_shared=2, Z=Z, rounds=1)
    three = federated(prior, clients, n_shared=2, Z=Z, rounds=3)
    torch.testing.assert_close(three.own.triangle, one.own.triangle, rtol=0, atol=1e-10)
    torch.testing.assert_close(three.own.shift, one.own.shift, rtol=0, atol=1e-10)


# ---- prediction -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labelled", [True, False], ids=["a client", "a client without labels"])
def test_predictions_are_those_of_one_place(labelled):
    """Against a dense Gaussian over the rows of all clients and the outputs at new inputs of one of them."""
    likelihoods = {"pulse": Gaussian()}
    prior, Z = make_prior(likelihoods), normal_points(M, D)
    clients = [make_rows(n, seed, likelihoods) for seed, n in enumerate((7, 12, 9))]
    fed = federated(prior, clients, n_shared=2, Z=Z, rounds=1)
    total = Evidence(fed.own.triangle.sum(0), fed.own.shift.sum(0))
    rows = clients[0] if labelled else Rows.of(clients[0].x, {}, likelihoods)
    x = torch.linspace(-2, 2, 2 * 5, dtype=torch.float64).reshape(5, 2)
    with torch.no_grad():
        model = ExactModel(prior, rows, knowledge=Knowledge(Z, 2, total - fed.own[0] if labelled else total))
        mean, cov = predict_latents(model, infer(model).q, x).of("pulse")
        new = Rows.of(x, {"pulse": (torch.arange(5), torch.zeros(5, dtype=torch.float64))}, likelihoods)
        # The new inputs belong to the client: within it the covariance is exact, beyond it goes through the points.
        both = [_joined(clients[0], new)] if labelled else [new, clients[0]]
        parts = [pieces(prior, one, 2, Z) for one in [*both, *clients[1:]]]
        Phi = torch.cat([P for _, P in parts])
        K = torch.block_diag(*(K - P @ P.mT for K, P in parts)) + Phi @ Phi.mT
        y = torch.cat([rows.blocks[0].y for rows in clients])
        n_all, at = len(K), slice(len(clients[0]), len(clients[0]) + 5) if labelled else slice(0, 5)
        rest = [i for i in range(n_all) if i not in range(n_all)[at]]
        noisy = K[rest][:, rest] + prior.noise_of("pulse") * torch.eye(len(rest), dtype=torch.float64)
        weights = torch.linalg.solve(noisy, K[rest][:, at])
    torch.testing.assert_close(mean[:, 0], weights.mT @ y, rtol=0, atol=1e-9)
    torch.testing.assert_close(cov[:, 0, 0], (K[at, at] - weights.mT @ K[rest][:, at]).diagonal(), rtol=0, atol=1e-9)


def _joined(rows, new):
    """The rows of one client, and after them others of the same task."""
    y = torch.cat([rows.blocks[0].y, new.blocks[0].y])
    x = torch.cat([rows.x[rows.at], new.x])
    return Rows.of(x, {"pulse": (torch.arange(len(x)), y)}, {"pulse": Gaussian()})


# ---- batches, damping, triangles ------------------------------------------------------------------------------------


def test_who_shares_a_batch_changes_nothing():
    prior, Z = make_prior(MANY, per_dimension=True), normal_points(M, D)
    clients = [make_rows(n, seed, MANY) for seed, n in enumerate((14, 15, 3, 14))]
    clients.append(Rows.of(clients[0].x, {}, MANY))
    known = Knowledge(Z, 2, Evidence.none(2 * M))

    def of_all(group):
        return Knowledge.stack([known] * len(group))

    options = {"tolerance": 0.0, "max_steps": 5, "groups": GROUPS, "knowledge": of_all}
    together = ClientBatch(clients).step(prior, **options)
    for i, rows in enumerate(clients):
        alone = ClientBatch([rows]).step(prior, **options)
        torch.testing.assert_close(together.evidence[i].triangle, alone.evidence.triangle[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(together.evidence[i].shift, alone.evidence.shift[0], rtol=0, atol=1e-10)
        for name, gradient in alone.gradient.items():
            torch.testing.assert_close(together.gradient[name][i], gradient[0], rtol=1e-9, atol=1e-9, msg=name)
    assert not together.evidence[4].triangle.any()  # no rows, no evidence


@pytest.mark.parametrize("damping", [0.5, 1.0])
def test_many_clients_with_classes_far_apart_settle(damping):
    likelihoods = {"sick": Bernoulli(bound="gaussian")}
    prior, Z = make_prior(likelihoods, kernels=("rbf", "rbf")), normal_points(M, D)
    with torch.no_grad():
        prior.parameters["mixing.sick"].mul_(0).add_(5.0)
    clients = []
    for seed in range(40):
        x = torch.randn(6, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        y = torch.where(x[:, 0] > 0, 1.0, -1.0).double()
        clients.append(Rows.of(x, {"sick": (torch.arange(6), y)}, likelihoods))
    found = [federated(prior, clients, n_shared=1, Z=Z, rounds=n, damping=damping) for n in (80, 81)]
    change = found[1].own.shift - found[0].own.shift
    assert float(change.abs().max()) < 1e-6 * float(found[0].own.shift.abs().max())
    assert bool(torch.isfinite(found[1].own.triangle).all())


def test_a_triangle_is_one_half_of_a_matrix_and_makes_the_whole():
    A = torch.arange(9.0).reshape(3, 3)
    whole = A + A.mT
    assert triangle(whole).tolist() == [0.0, 4.0, 8.0, 8.0, 12.0, 16.0]
    assert torch.equal(symmetric(triangle(whole), 3), whole)
    assert torch.equal(symmetric(torch.stack([triangle(whole)] * 2), 3)[1], whole)


def test_knowledge_that_is_no_distribution_is_an_error():
    known = Knowledge(
        normal_points(2, 1), 1, Evidence(torch.tensor([-2.0, 0.0, 0.0]).double(), torch.zeros(2).double())
    )
    with pytest.raises(NotPositiveDefinite, match="shared functions has no positive definite precision"):
        _ = known.L
