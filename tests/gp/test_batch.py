"""Many clients at once give what a loop over them gives, whoever shares a bucket."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.gp import ExactModel, Prior, Rows, infer
from polyfed.gp.batch import PADDING, ClientBatch, buckets
from polyfed.gp.linalg import NotPositiveDefinite
from problems import KINDS, build, labels, normal, of_client

GROUPS = ("kernels", "mixing", "noise")


def federation(sizes, *, kinds=KINDS, bound="polya-gamma", seed=0, **options):
    """One prior, and clients of these sizes; every client lacks some tasks, and one of size 0 lacks all."""
    problem = build(kinds, seed=seed, bound=bound, **options)
    rng = np.random.default_rng(seed)
    clients = []
    for c, size in enumerate(sizes):
        x = normal(rng, max(size, 1), problem.x.shape[1])
        has = [task for i, task in enumerate(problem.likelihoods) if (i + c) % 3]
        seen = {
            task: (torch.from_numpy(rng.permutation(len(x))[:size]), labels(problem.likelihoods[task], size, rng))
            for task in has
        }
        clients.append(Rows.of(x, seen, problem.likelihoods))
    return problem.prior, clients


def client_steps(prior, clients, **options):
    """The steps of a batch, one by one."""
    step = ClientBatch(clients).step(prior, **options)
    return [of_client(step, i) for i in range(len(clients))]


def alone(prior, rows, *, start=None, max_steps=4, tolerance=0.0):
    model = ExactModel(prior, rows)
    posterior = infer(model, start=start, max_steps=max_steps, tolerance=tolerance)
    wanted = prior.group(*GROUPS)
    grads = torch.autograd.grad(model.bound(posterior.q), list(wanted.values()), allow_unused=True)
    gradient = {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(wanted.items(), grads, strict=True)}
    return posterior, gradient, rows.noise_statistics(prior, posterior.q.m, posterior.q.v)


def assert_equal(step, expected, atol=1e-10):
    posterior, gradient, noise = expected
    assert step.bound == pytest.approx(posterior.bound, abs=atol)
    torch.testing.assert_close(step.marginals[0], posterior.q.m, rtol=0, atol=atol)
    torch.testing.assert_close(step.marginals[1], posterior.q.v, rtol=0, atol=atol)
    assert step.gradient.keys() == gradient.keys()
    for name, value in gradient.items():
        torch.testing.assert_close(step.gradient[name], value, rtol=0, atol=atol)
    assert step.noise.keys() == noise.keys()
    for task, (total, count) in noise.items():
        assert step.noise[task] == (pytest.approx(total.item(), abs=atol), count.item())


@pytest.mark.parametrize("bound", ["polya-gamma", "gaussian"])
@pytest.mark.parametrize("options", [{}, {"per_dimension": True}, {"kernels": ("laplace", "linear", "cauchy")}])
def test_a_batch_equals_a_loop(bound, options):
    prior, clients = federation([3, 40, 0, 4, 1, 5, 5, 4, 12], bound=bound, **options)
    steps = client_steps(prior, clients, groups=GROUPS, max_steps=2, tolerance=0.0)
    assert len(steps) == len(clients)
    for step, rows in zip(steps, clients, strict=True):
        assert_equal(step, alone(prior, rows, max_steps=2))


def test_converged_batches_equal_converged_loops():
    prior, clients = federation([3, 4, 4, 5, 2, 9])
    for step, rows in zip(client_steps(prior, clients, tolerance=1e-13, max_steps=500), clients, strict=True):
        posterior, _, _ = alone(prior, rows, tolerance=1e-13, max_steps=500)
        assert step.bound == pytest.approx(posterior.bound, abs=1e-10)
        torch.testing.assert_close(step.marginals[0], posterior.q.m, rtol=0, atol=1e-5)


def test_personal_priors_stay_personal():
    prior, clients = federation([4, 5, 4])
    own = []
    for i in range(3):
        mine = build(KINDS, seed=0).prior
        own.append(mine.load({name: value + 0.1 * i for name, value in prior.state().items()}))
    steps = client_steps(Prior.stack(own), clients, groups=GROUPS, max_steps=3)
    for step, mine, rows in zip(steps, own, clients, strict=True):
        assert_equal(step, alone(mine, rows, max_steps=3, tolerance=1e-6))


def test_the_result_depends_neither_on_order_nor_on_company():
    prior, clients = federation([3, 4, 4, 5, 12, 1])
    together = client_steps(prior, clients, groups=GROUPS, max_steps=3, tolerance=0.0)
    backwards = client_steps(prior, clients[::-1], groups=GROUPS, max_steps=3, tolerance=0.0)[::-1]
    single = [client_steps(prior, [rows], groups=GROUPS, max_steps=3, tolerance=0.0)[0] for rows in clients]
    for a, b, c in zip(together, backwards, single, strict=True):
        for name in a.gradient:
            torch.testing.assert_close(a.gradient[name], b.gradient[name], rtol=0, atol=1e-11)
            torch.testing.assert_close(a.gradient[name], c.gradient[name], rtol=0, atol=1e-11)


def test_warm_starts_are_handed_on():
    prior, clients = federation([3, 7, 4])
    batch = ClientBatch(clients)
    first = batch.step(prior, max_steps=2, tolerance=0.0)
    again = batch.step(prior, start=first, max_steps=2, tolerance=0.0)
    for i, rows in enumerate(clients):
        posterior, _, _ = alone(prior, rows, start=of_client(first, i).marginals, max_steps=2)
        assert of_client(again, i).bound == pytest.approx(posterior.bound, abs=1e-10)
    assert (again.bound >= first.bound - 1e-9).all()


def test_some_clients_start_warm_and_others_cold():
    prior, clients = federation([3, 7, 4])
    batch = ClientBatch(clients)
    first = batch.step(prior, max_steps=2, tolerance=0.0)
    starts = [of_client(first, 0).marginals, None, of_client(first, 2).marginals]
    again = batch.step(prior, start=starts, max_steps=2, tolerance=0.0)
    for i, rows in enumerate(clients):
        posterior, _, _ = alone(prior, rows, start=starts[i], max_steps=2)
        assert of_client(again, i).bound == pytest.approx(posterior.bound, abs=1e-10)


def test_no_gradient_unless_it_is_asked_for():
    prior, clients = federation([3, 3])
    assert client_steps(prior, clients)[0].gradient == {}
    (only,) = client_steps(prior, clients[:1], groups=["noise"])
    assert only.gradient.keys() == prior.group("noise").keys()
    assert client_steps(prior, []) == []


def test_buckets_hold_every_client_once_and_clients_of_like_size():
    sizes = np.random.default_rng(0).integers(0, 400, 300).tolist()
    groups = list(buckets(sizes))
    assert sorted(i for group in groups for i in group) == list(range(300))
    for group in groups:
        largest, smallest = max(sizes[i] for i in group), min(sizes[i] for i in group)
        assert largest <= PADDING * max(smallest, 1)


def test_a_broken_client_is_named():
    prior, clients = federation([4, 4], kinds=("gaussian", "gaussian"))
    broken = build(("gaussian", "gaussian"), seed=0).prior
    with torch.no_grad():
        broken.parameters["mixing.gaussian.0"].fill_(float("nan"))
    with pytest.raises(NotPositiveDefinite, match=r"task 'gaussian\.\d': parameter 'mixing.gaussian.0' is not finite"):
        client_steps(Prior.stack([prior, broken]), clients)


def test_priors_that_do_not_fit_together_are_rejected():
    prior, _ = federation([1])
    other = Prior(kernels=["rbf"], dims=2, outputs={"y": 1})
    with pytest.raises(ConfigError, match="priors of different parts cannot be stacked"):
        Prior.stack([prior, other])
