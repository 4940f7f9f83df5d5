"""Shared and personal weights, against the same model in one place: one dense Gaussian over all weights, or over all rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from polyfed.gp import Evidence, Prior, Rows, infer, predict_latents
from polyfed.gp.dense import DenseModel
from polyfed.gp.likelihoods import Bernoulli, Gaussian
from polyfed.gp.weight_model import WeightModel
from polyfed.gp.weight_space import LEAST, Coregionalisation, Weights, learned, renewed, wider

LIKELIHOODS = {"pulse": Gaussian(), "sick": Bernoulli()}
SIZES, T = (3, 1, 2), 2
PERSONAL = (3, 1)


def drawn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_B(n, seed, scale=1.0):
    half = drawn(n, T, T, seed=seed)
    return scale * (half @ half.mT + 0.1 * torch.eye(T, dtype=torch.float64))


def features(x):
    """Three inputs, a constant, and two curved ones."""
    return torch.cat([x, torch.ones_like(x[:, :1]), torch.sin(x[:, :2])], 1)


def make_rows(n, seed, likelihoods=LIKELIHOODS):
    x = drawn(n, 3, seed=seed)
    f = x.sum(1) + 0.3 * drawn(n, seed=seed + 100)
    y = {"pulse": f, "sick": f.sign()}
    seen = {task: torch.arange(i, n, 2 if i else 1) for i, task in enumerate(likelihoods)}  # some inputs have both
    return Rows.of(x, {task: (at, y[task][at]) for task, at in seen.items()}, likelihoods)


def make_prior(likelihoods=LIKELIHOODS):
    return Prior(kernels=["linear"], dims=1, outputs=dict.fromkeys(likelihoods, 1), noise={"pulse": 0.2})


def dense_prior(B, sizes):
    """Covariance of u, output by output."""
    per_feature = B.repeat_interleave(torch.tensor(sizes), 0)
    m = sum(sizes)
    S = torch.zeros(T, m, T, m, dtype=torch.float64)
    for j in range(m):
        S[:, j, :, j] = per_feature[j]
    return S.reshape(T * m, T * m)


def design(rows, n_features):
    phi = features(rows.x)[rows.at][:, :n_features]
    return (rows.A[:, :, None] * phi[:, None, :]).flatten(1)


def evidence_of(Psi, h, r):
    return Evidence.of(Psi.mT @ (h[:, None] * Psi), Psi.mT @ r)


def gaussian_problem(seed=0, n=30):
    """Rows with Gaussian sites: evidence, and the posterior of u in plain algebra."""
    rows = make_rows(n, seed)
    Psi, B = design(rows, sum(SIZES)), some_B(3, seed + 5)
    h, r = 0.5 + drawn(len(rows), seed=seed + 6).square(), drawn(len(rows), seed=seed + 7)
    evidence = evidence_of(Psi, h, r)
    S = torch.linalg.inv(torch.linalg.inv(dense_prior(B, SIZES)) + Psi.mT @ (h[:, None] * Psi))
    return Coregionalisation(SIZES, B), evidence, S, S @ (Psi.mT @ r), (Psi, h, r)


def test_what_is_known_is_the_posterior_of_all_weights_in_one_place():
    prior, evidence, S, mean, _ = gaussian_problem()
    weights = Weights(prior, evidence)
    torch.testing.assert_close(weights.V.reshape(-1), mean, rtol=1e-9, atol=1e-10)
    rows = make_rows(9, seed=40)
    phi, Psi = features(rows.x)[rows.at], design(rows, sum(SIZES))
    white = weights.white(phi, rows.A)
    half = weights.half(white)
    torch.testing.assert_close(white @ weights.mean, Psi @ mean, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(half.mT @ half, Psi @ S @ Psi.mT, rtol=1e-9, atol=1e-10)


def mean_moments(second, sizes):
    """Of weights with these second moments: the mean of E[v_j v_jᵀ] over each group, and what keeps it invertible."""
    m = sum(sizes)
    each = torch.stack([second.reshape(T, m, T, m)[:, j, :, j] for j in range(m)])
    return torch.stack([part.mean(0) for part in each.split(sizes)]) + LEAST * torch.eye(T, dtype=torch.float64)


def test_a_step_of_em_is_the_mean_of_second_moments_in_one_place():
    prior, evidence, S, mean, _ = gaussian_problem()
    wanted = mean_moments(S + torch.outer(mean, mean), SIZES)
    torch.testing.assert_close(learned(prior, evidence, 1).B, wanted, rtol=1e-9, atol=1e-10)


def test_em_ends_where_the_marginal_likelihood_has_no_slope():
    """By the gradient of the likelihood of all rows at once, which knows nothing of weights."""
    prior, evidence, _, _, (Psi, h, r) = gaussian_problem(n=80)

    def log_likelihood(B):
        per_feature = B.repeat_interleave(torch.tensor(SIZES), 0)
        X = Psi.reshape(len(Psi), T, -1)
        K = torch.einsum("ntj,jtu,kuj->nk", X, per_feature, X)
        y = torch.distributions.MultivariateNormal(torch.zeros(len(Psi)).double(), K + torch.diag(1 / h))
        return y.log_prob(r / h)

    values, at = [], prior
    for _ in range(12):
        values.append(float(log_likelihood(at.B)))
        at = learned(at, evidence, 60)
    assert all(b >= a - 1e-6 for a, b in pairwise(values))
    B = at.B.clone().requires_grad_()
    (slope,) = torch.autograd.grad(log_likelihood(B), B)
    (first,) = torch.autograd.grad(log_likelihood(start := prior.B.clone().requires_grad_()), start)
    # Where B has become singular the slope may point outwards; along B itself it must vanish.
    assert float((at.B @ slope @ at.B).abs().max()) < 1e-2 * float((prior.B @ first @ prior.B).abs().max())


def federated(clients, B, personal, rounds, likelihoods=LIKELIHOODS, max_steps=3):
    """Rounds as clients and a server have them; what each client has at the end."""
    prior, shared = make_prior(likelihoods), Coregionalisation(SIZES, B)
    own = [Evidence.none(T * sum(SIZES)) for _ in clients]
    marginals = [None] * len(clients)
    problems = []
    for _ in range(rounds):
        total = Evidence(sum(e.triangle for e in own), sum(e.shift for e in own))
        problems, before = [], list(own)
        for i, rows in enumerate(clients):
            weights = Weights(shared, total - before[i])
            problem = WeightModel(
                prior, rows, features(rows.x), weights, Coregionalisation(PERSONAL, personal), features
            )
            start = None if marginals[i] is None else problem.rows.as_f(marginals[i], back=True)
            q = infer(problem, start=start, tolerance=0.0, max_steps=max_steps).q
            own[i], marginals[i] = problem.evidence(q), problem.rows.as_f((q.m, q.v))
            problems.append((problem, q))
    return problems, own, marginals


def in_one_place(clients, B, personal, likelihoods=LIKELIHOODS):
    """All rows of all clients under one dense covariance."""
    shared = torch.cat([design(rows, sum(SIZES)) for rows in clients])
    own = [design(rows, sum(PERSONAL)) for rows in clients]
    of_clients = [Psi @ dense_prior(personal, PERSONAL) @ Psi.mT for Psi in own]
    K = shared @ dense_prior(B, SIZES) @ shared.mT + torch.block_diag(*of_clients)
    n_rows, blocks = 0, []
    for rows in clients:
        blocks += [replace(block, rows=block.rows + n_rows) for block in rows.blocks]
        n_rows += len(rows)
    together = Rows(
        torch.zeros(n_rows, 1).double(), torch.arange(n_rows), torch.cat([r.A for r in clients]), tuple(blocks)
    )
    model = DenseModel(make_prior(likelihoods), together, K)
    q = infer(model, tolerance=0.0, max_steps=2000).q
    with (
        torch.no_grad()
    ):  # it ends where the bound is flat to the last digit, and sites are known to half the digits there
        for _ in range(12):
            q = model.solve(*model.rows.sites(model.prior, q.m, q.v))
    return model, q, of_clients


@pytest.fixture(scope="module")
def clients():
    return [make_rows(n, seed) for n, seed in ((9, 1), (14, 2), (6, 3), (11, 4))]


def test_rounds_end_at_the_posterior_of_the_same_model_in_one_place(clients):
    B, personal = some_B(3, 8, 0.5), some_B(2, 9, 0.05)
    problems, own, marginals = federated(clients, B, personal, rounds=60)
    _, q, of_clients = in_one_place(clients, B, personal)
    torch.testing.assert_close(torch.cat([m for m, _ in marginals]), q.m, rtol=0, atol=1e-9)
    torch.testing.assert_close(torch.cat([v for _, v in marginals]), q.v, rtol=0, atol=1e-9)
    # The sums are those of the dense posterior's sites, whatever the way there.
    place, total = 0, Evidence.none(T * sum(SIZES))
    for rows, K in zip(clients, of_clients, strict=True):
        part = slice(place, place + len(rows))
        Psi, G = design(rows, sum(SIZES)), torch.linalg.inv(torch.diag(1 / q.h[part]) + K)
        total = total + Evidence.of(Psi.mT @ G @ Psi, Psi.mT @ G @ (q.r[part] / q.h[part]))
        place += len(rows)
    found = sum(own[1:], own[0])
    torch.testing.assert_close(found.triangle, total.triangle, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.shift, total.shift, rtol=1e-9, atol=1e-9)
    # Predictions of a client: the dense posterior of a row that nobody has labelled.
    problem, mine = problems[1]
    x = drawn(4, 3, seed=77)
    latents = predict_latents(problem, mine, x)
    rows, before = clients[1], len(clients[0])
    shared = torch.cat([design(r, sum(SIZES)) for r in clients]) @ dense_prior(B, SIZES)
    for t, task in enumerate(LIKELIHOODS):
        unit = torch.zeros(4, T).double().index_fill(1, torch.tensor([t]), 1.0)
        at = (unit[:, :, None] * features(x)[:, None, :]).flatten(1)
        at_own = (unit[:, :, None] * features(x)[:, None, : sum(PERSONAL)]).flatten(1)
        k = shared @ at.mT
        k[before : before + len(rows)] += design(rows, sum(PERSONAL)) @ dense_prior(personal, PERSONAL) @ at_own.mT
        prior = (at @ dense_prior(B, SIZES) @ at.mT + at_own @ dense_prior(personal, PERSONAL) @ at_own.mT).diagonal()
        mean, cov = latents.of(task)
        torch.testing.assert_close(mean[:, 0], k.mT @ q.alpha, rtol=0, atol=1e-9)
        explained = torch.linalg.solve_triangular(q.L, q.h.sqrt()[:, None] * k, upper=False).square().sum(0)
        torch.testing.assert_close(cov[:, 0, 0], prior - explained, rtol=0, atol=1e-9)


def test_what_inputs_have_beside_the_features_is_as_unknown_as_a_priori(clients):
    """By a model in one place with two features more, which are zero at all rows and not at a new input."""
    B, personal = some_B(3, 8, 0.5), some_B(2, 9, 0.05)
    problems, _, _ = federated(clients, B, personal, rounds=2)
    problem, q = problems[1]
    x, further = drawn(4, 3, seed=77), drawn(4, 2, seed=78)
    plain = predict_latents(problem, q, x)
    problem.unseen = lambda at: further.square().sum(-1)
    beside = predict_latents(problem, q, x)
    # Rows are 1 ⊗ their further features: independent of all labels, so that variances add up.
    for t, task in enumerate(LIKELIHOODS):
        Psi = torch.einsum("nf,s->nsf", further, torch.eye(T, dtype=torch.float64)[t]).flatten(1)
        added = Psi @ (dense_prior(B[:1], (2,)) + dense_prior(personal[:1], (2,))) @ Psi.mT
        torch.testing.assert_close(beside.of(task)[0], plain.of(task)[0], rtol=0, atol=0)
        wanted = plain.of(task)[1][:, 0, 0] + added.diagonal()
        torch.testing.assert_close(beside.of(task)[1][:, 0, 0], wanted, rtol=1e-9, atol=1e-12)


def test_gaussian_rows_alone_need_one_round():
    likelihoods = {"pulse": Gaussian()}
    rows = [make_rows(n, seed, LIKELIHOODS) for n, seed in ((8, 1), (7, 2))]
    plain = [Rows(r.x, r.at[: r.n_fixed], r.A[: r.n_fixed], (r.blocks[0],), r.n_fixed) for r in rows]
    assert list(likelihoods) == [block.task for block in plain[0].blocks]
    B, personal = some_B(3, 1), some_B(2, 2, 0.1)
    _, once, _ = federated(plain, B, personal, rounds=1)
    _, more, _ = federated(plain, B, personal, rounds=3)
    for a, b in zip(once, more, strict=True):
        torch.testing.assert_close(a.triangle, b.triangle, rtol=0, atol=1e-10)
        torch.testing.assert_close(a.shift, b.shift, rtol=0, atol=1e-10)


def test_moments_of_the_personal_part_are_those_of_the_dense_posterior(clients):
    B, personal = some_B(3, 8, 0.5), some_B(2, 9, 0.3)
    problem, q = federated(clients, B, personal, rounds=2)[0][2]
    rows = clients[2]
    prior, Psi = dense_prior(personal, PERSONAL), design(rows, sum(PERSONAL))
    M = torch.linalg.inv(torch.diag(1 / q.h) + problem.K)
    mean, S = prior @ Psi.mT @ q.alpha, prior - prior @ Psi.mT @ M @ Psi @ prior
    second = (S + torch.outer(mean, mean)).reshape(T, sum(PERSONAL), T, sum(PERSONAL))
    wanted = torch.stack([sum(second[:, j, :, j] for j in part) for part in (range(3), range(3, 4))])
    torch.testing.assert_close(problem.moments(q), wanted, rtol=1e-9, atol=1e-10)
    again = renewed(Coregionalisation(PERSONAL, personal), 2 * wanted, clients=2)
    torch.testing.assert_close(again.B, mean_moments(second, PERSONAL), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rounds", [2, 40])
def test_em_over_rounds_is_em_in_one_place(clients, rounds):
    """Both coregionalisations, step by step: all rows at once under one Gaussian over the shared and all personal weights."""
    if rounds == 2:  # rows whose sites do not move: evidence is right after one round, and in the next all know it
        clients = [Rows(r.x, r.at[: r.n_fixed], r.A[: r.n_fixed], r.blocks[:1], r.n_fixed) for r in clients]
    B, personal = some_B(3, 8, 0.5), some_B(2, 9, 0.3)
    theirs, theirs_personal = B, personal
    P, own = T * sum(SIZES), T * sum(PERSONAL)
    shared = torch.cat([design(rows, sum(SIZES)) for rows in clients])
    Psi = torch.cat([shared, torch.block_diag(*[design(rows, sum(PERSONAL)) for rows in clients])], 1)
    for _ in range(4):
        problems, evidence, _ = federated(clients, B, personal, rounds=rounds)
        found = torch.stack([problem.moments(q) for problem, q in problems])
        B = learned(Coregionalisation(SIZES, B), sum(evidence[1:], evidence[0]), 1).B
        personal = renewed(Coregionalisation(PERSONAL, personal), found.sum(0), len(clients)).B

        _, q, _ = in_one_place(clients, theirs, theirs_personal)
        blocks = [dense_prior(theirs, SIZES)] + [dense_prior(theirs_personal, PERSONAL)] * len(clients)
        prior = torch.block_diag(*blocks)
        S = torch.linalg.inv(torch.linalg.inv(prior) + Psi.mT @ (q.h[:, None] * Psi))
        mean = S @ Psi.mT @ q.r
        second = S + torch.outer(mean, mean)
        of_clients = [slice(P + i * own, P + (i + 1) * own) for i in range(len(clients))]
        theirs = mean_moments(second[:P, :P], SIZES)
        theirs_personal = mean_moments(sum(second[some, some] for some in of_clients) / len(clients), PERSONAL)
        torch.testing.assert_close(B, theirs, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(personal, theirs_personal, rtol=1e-9, atol=1e-9)


def test_a_group_without_features_keeps_what_it_had():
    prior = Coregionalisation((2, 0), some_B(2, 3))
    after = renewed(prior, torch.zeros(2, T, T).double())
    assert torch.equal(after.B[1], prior.B[1])
    assert float(after.B[0].abs().max()) < 1e-7


def test_evidence_says_the_same_where_there_are_further_features():
    prior, evidence, _, mean, _ = gaussian_problem()
    more = wider(evidence, T, sum(SIZES) + 4)
    B = torch.cat([prior.B, some_B(1, 3)])
    V = Weights(Coregionalisation((*SIZES, 4), B), more).V
    torch.testing.assert_close(V[:, : sum(SIZES)].reshape(-1), mean, rtol=1e-9, atol=1e-10)
    assert float(V[:, sum(SIZES) :].abs().max()) == 0.0
    assert wider(evidence, T, sum(SIZES)) is evidence
